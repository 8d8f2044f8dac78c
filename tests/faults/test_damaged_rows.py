"""Damaged rows of the database: the service starts, lists show and mark them, and nothing else is hidden."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

KINDS = ("training-job", "transform-job", "endpoint", "endpoint-removal", "async-invocation", "model", "log-group")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with objects and a model, and then with a damaged row of each kind."""
    root = tmp_path_factory.mktemp("damaged") / "state"
    with Service(state_dir=root) as service:
        s3 = service.client("s3")
        s3.create_bucket(Bucket="data")
        for key in ("a", "b", "c"):
            s3.put_object(Bucket="data", Key=key, Body=key.encode())
        s3.create_bucket(Bucket="inputs")
        for key in ("channel/1", "channel/damaged", "kept/1", "kept/damaged"):
            s3.put_object(Bucket="inputs", Key=key, Body=key.encode())
        s3.create_multipart_upload(Bucket="data", Key="upload")
        create_model(service, "sound")
        logs = service.client("logs")
        for group in ("/empty", "/team"):
            logs.create_log_group(logGroupName=group)
        logs.create_log_stream(logGroupName="/team", logStreamName="run")
        event = {"timestamp": int(time.time() * 1000), "message": "acknowledged"}
        logs.put_log_events(logGroupName="/team", logStreamName="run", logEvents=[event])
        service.kill()
        damage(root)
        service.start()
        yield service


def damage(root: Path) -> None:
    with sqlite3.connect(root / "state.db") as database:
        database.execute("UPDATE objects SET size_bytes = 77 WHERE key = CAST('b' AS BLOB)")
        database.execute("UPDATE objects SET etag = 'x' WHERE CAST(key AS TEXT) LIKE '%/damaged'")
        database.execute("UPDATE uploads SET document = '{'")
        for kind in KINDS:
            database.execute(
                "INSERT INTO records VALUES (?, 'damaged', 'InProgress', 1000, 2000, '{', x'00', '{', x'00')", (kind,)
            )
    database.close()


def create_model(service: Service, name: str) -> None:
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
    role = "arn:aws:iam::000000000000:role/SageMakerRole"
    service.client("sagemaker").create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)


def test_log_groups_outlive_a_kill_and_a_damaged_one_can_be_deleted(service: Service) -> None:
    logs = service.client("logs")

    def groups() -> list[str]:
        return [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]

    assert groups() == ["/empty", "/team", "damaged"]
    assert logs.filter_log_events(logGroupName="damaged")["events"] == []
    logs.delete_log_group(logGroupName="damaged")
    assert groups() == ["/empty", "/team"]
    (event,) = logs.get_log_events(logGroupName="/team", logStreamName="run")["events"]
    assert event["message"] == "acknowledged"


def test_a_bucket_with_a_damaged_row_is_listed_and_the_row_can_be_put_again(service: Service) -> None:
    s3 = service.client("s3")
    listed = s3.list_objects_v2(Bucket="data")["Contents"]
    assert [(each["Key"], each["StorageClass"]) for each in listed] == [
        ("a", "STANDARD"),
        ("b", "DAMAGED"),
        ("c", "STANDARD"),
    ]
    assert listed[1]["Size"] == 77
    with pytest.raises(ClientError, match=r"s3://data/b fails its checksum.*Put the object again"):
        s3.get_object(Bucket="data", Key="b")
    s3.put_object(Bucket="data", Key="b", Body=b"again")
    assert s3.get_object(Bucket="data", Key="b")["Body"].read() == b"again"
    (upload,) = s3.list_multipart_uploads(Bucket="data")["Uploads"]
    assert (upload["Key"], upload["StorageClass"]) == ("upload", "DAMAGED")
    s3.abort_multipart_upload(Bucket="data", Key="upload", UploadId=upload["UploadId"])


@pytest.mark.parametrize(
    ("operation", "member", "prefix"),
    [
        ("training_job", "TrainingJobSummaries", "TrainingJob"),
        ("transform_job", "TransformJobSummaries", "TransformJob"),
        ("endpoint", "Endpoints", "Endpoint"),
    ],
)
def test_a_list_marks_a_damaged_record_and_describe_says_what_to_do(
    service: Service, operation: str, member: str, prefix: str
) -> None:
    sagemaker = service.client("sagemaker")
    found = getattr(sagemaker, f"list_{operation}s")(NameContains="damaged")[member]
    assert [(each[f"{prefix}Name"], each[f"{prefix}Status"]) for each in found] == [("damaged", "Damaged")]
    request: dict[str, Any] = {f"{prefix}Name": "damaged"}
    with pytest.raises(ClientError, match=r"'damaged' fails its checksum.*Delete it, or go back to a backup"):
        getattr(sagemaker, f"describe_{operation}")(**request)
    assert "record.damaged" in service.log


@pytest.mark.parametrize(
    ("prefix", "members"),
    [
        (
            "channel",
            {
                "InputDataConfig": [
                    {
                        "ChannelName": "training",
                        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://inputs/channel/"}},
                    }
                ]
            },
        ),
        ("kept", {"CheckpointConfig": {"S3Uri": "s3://inputs/kept"}}),
    ],
)
def test_a_job_does_not_run_without_a_damaged_part_of_its_data(
    service: Service, jobs_of: Any, prefix: str, members: dict[str, Any]
) -> None:
    job = jobs_of(service).run("print('ran')", **members)
    assert job["TrainingJobStatus"] == "Failed"
    assert f"s3://inputs/{prefix}/damaged fails its checksum" in job["FailureReason"]


def test_a_damaged_model_job_and_endpoint_can_be_deleted(service: Service) -> None:
    sagemaker = service.client("sagemaker")
    names = [each["ModelName"] for each in sagemaker.list_models(SortBy="Name", SortOrder="Ascending")["Models"]]
    assert names == ["damaged", "sound"]
    sagemaker.delete_model(ModelName="damaged")
    create_model(service, "damaged")
    assert sagemaker.describe_model(ModelName="damaged")["ModelName"] == "damaged"
    sagemaker.delete_training_job(TrainingJobName="damaged")
    assert sagemaker.list_training_jobs(NameContains="damaged")["TrainingJobSummaries"] == []
    sagemaker.delete_endpoint(EndpointName="damaged")
    assert sagemaker.list_endpoints()["Endpoints"] == []
