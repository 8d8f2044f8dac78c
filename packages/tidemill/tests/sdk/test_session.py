"""Sessions: adopting other sessions, buckets, roles, data."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.errors import JobFailed
from tidemill.sdk import LocalSession, Session, get_execution_role
from tidemill.sdk.boto import EndpointSession
from tidemill.sdk.workflow.pipeline_session import LocalPipelineSession, PipelineSession

BUCKET = "sagemaker-us-west-2-000000000000"


def test_every_client_of_the_boto_session_goes_to_the_service(aws: Any, session: Session) -> None:
    for name in ("s3", "sts", "sagemaker", "logs"):
        client = session.boto_session.client(name)
        assert client.meta.endpoint_url == aws.url
        client.close()
    assert not session.is_aws


def test_the_default_bucket_is_made_once(aws: Any, session: Session) -> None:
    aws.buckets.clear()
    assert session.default_bucket() == session.default_bucket() == BUCKET
    assert [name for name, _ in aws.requests] == ["HEAD bucket", "PUT bucket"]


def test_a_role_name_becomes_an_arn_without_asking(aws: Any, session: Session) -> None:
    assert session.expand_role("SageMakerRole") == "arn:aws:iam::000000000000:role/SageMakerRole"
    assert session.expand_role("arn:aws:iam::1:role/x") == "arn:aws:iam::1:role/x"
    assert aws.requests == []


def test_the_execution_role_is_the_callers(session: Session) -> None:
    assert get_execution_role(session) == "arn:aws:iam::000000000000:role/SageMakerRole"
    assert session.account_id() == "000000000000"


@pytest.mark.parametrize("kind", ["Processing", "Transform"])
def test_a_job_is_awaited_by_its_name(
    aws: Any, session: Session, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    resources = {"ClusterConfig": {"InstanceCount": 1}} if kind == "Processing" else {"InstanceCount": 1}
    aws.jobs["job"] = {f"{kind}JobStatus": "Completed", f"{kind}Resources": resources}
    aws.log("job/algo-1", "a line", at_ms=1)
    getattr(session, f"logs_for_{kind.lower()}_job")("job")
    assert "a line" in capsys.readouterr().out
    getattr(session, f"logs_for_{kind.lower()}_job")("job", wait=True)
    assert "a line" in capsys.readouterr().out
    assert getattr(session, f"wait_for_{kind.lower()}_job")("job")[f"{kind}JobStatus"] == "Completed"
    assert "a line" not in capsys.readouterr().out
    aws.jobs["job"] |= {f"{kind}JobStatus": "Failed", "FailureReason": "the reason"}
    with pytest.raises(JobFailed, match="the reason"):
        getattr(session, f"wait_for_{kind.lower()}_job")("job")


def test_a_directory_is_uploaded_and_downloaded(aws: Any, session: Session, tmp_path: Path) -> None:
    (tmp_path / "up/deep").mkdir(parents=True)
    (tmp_path / "up/deep/a").write_text("x")
    assert session.upload_data(str(tmp_path / "up"), key_prefix="p/q") == f"s3://{BUCKET}/p/q"
    assert session.upload_data(tmp_path / "up/deep/a", bucket="other") == "s3://other/data/a"
    assert session.upload_string_as_file_body("text", BUCKET, "t") == f"s3://{BUCKET}/t"
    assert session.read_s3_file(BUCKET, "t") == "text"
    assert session.download_data(tmp_path / "down", BUCKET, "p/q") == [str(tmp_path / "down/deep/a")]
    assert (tmp_path / "down/deep/a").read_text() == "x"


def test_a_key_that_climbs_out_of_the_directory_is_refused(aws: Any, session: Session, tmp_path: Path) -> None:
    aws.objects[BUCKET, "p/../../evil"] = b""
    with pytest.raises(ValueError, match="would be written outside"):
        session.download_data(tmp_path / "down", BUCKET, "p")


def test_a_session_of_another_sdk_is_adopted_without_asking_it_for_a_bucket(session: Session) -> None:
    class Foreign:
        boto_session = session.boto_session
        sagemaker_client = session.sagemaker_client
        _default_bucket = "mine"

        def default_bucket(self) -> str:
            raise AssertionError("this asks the public STS")

    adopted = Session.adopt(Foreign())
    assert adopted.default_bucket() == "mine"
    assert Session.adopt(session) is session
    assert isinstance(LocalSession(), Session)
    adopted.s3_client.close()
    with pytest.raises(ValueError, match="is no session"):
        Session.adopt(object())
    for pipelines in (
        PipelineSession(session.boto_session, session.sagemaker_client, "mine"),
        LocalPipelineSession(session.boto_session, "mine"),
        PipelineSession.adopt(Foreign()),
    ):
        assert pipelines.default_bucket() == "mine"
        assert pipelines.is_deferring
        pipelines.s3_client.close()


@pytest.mark.parametrize(("tries", "variables"), [(3, {}), (2, {"AWS_MAX_ATTEMPTS": "2"})])
def test_an_endpoint_that_keeps_failing_is_asked_three_times_or_as_often_as_the_user_says(
    aws: Any, monkeypatch: pytest.MonkeyPatch, tries: int, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    aws.invocation_status = 503
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "s", "region_name": "us-west-2"}
    session = Session(EndpointSession(endpoint_url=aws.url, **keys))
    with pytest.raises(ClientError):
        session.sagemaker_runtime_client.invoke_endpoint(EndpointName="broken", Body=b"[1]")
    assert len(aws.invocations) == tries


def test_a_local_endpoint_that_keeps_failing_is_asked_three_times(
    aws: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    aws.invocation_status = 503
    with pytest.raises(ClientError):
        session.sagemaker_runtime_client.invoke_endpoint(EndpointName="broken", Body=b"[1]")
    assert len(aws.invocations) == 3
    assert session.sagemaker_runtime_client.meta.config.read_timeout == 80
