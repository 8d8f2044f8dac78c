"""Bad input on the wire: the error has AWS's format, names the fault, and is never a server error.

Signatures, chunked bodies and HTTP itself are covered by the tests of `tidemill.wire`.
"""

import json
from collections.abc import Mapping
from typing import Any

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
import urllib3

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"


class Raw:
    """Sends signed requests whose bodies no client library has checked."""

    def __init__(self, service: Service) -> None:
        self._url = service.url
        variables = service.environment
        self._keys = botocore.credentials.Credentials(
            variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]
        )
        self._pool = urllib3.PoolManager(retries=False)

    def sagemaker(self, operation: str, body: bytes) -> tuple[int, dict[str, Any]]:
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": f"SageMaker.{operation}"}
        request = botocore.awsrequest.AWSRequest("POST", self._url + "/", headers=headers, data=body)
        botocore.auth.SigV4Auth(self._keys, "sagemaker", "us-west-2").add_auth(request)
        reply = self._pool.request("POST", self._url + "/", headers=dict(request.headers), body=body)
        return reply.status, json.loads(reply.data)


@pytest.fixture(scope="module")
def raw(tidemill_service: Service) -> Raw:
    return Raw(tidemill_service)


@pytest.fixture(scope="module")
def good(jobs: Any) -> dict[str, Any]:
    return jobs.request("print()", name="never-created")


def code_of(reply: Mapping[str, Any]) -> str:
    return str(reply["__type"]).rpartition("#")[2]


NOT_JSON = {
    "nesting of 100,000": b'{"TrainingJobName":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "an integer of 5,000 digits": b'{"a":' + b"9" * 5000 + b"}",
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "a key twice": b'{"TrainingJobName": "a", "TrainingJobName": "b"}',
    "a lone surrogate": b'{"a": "\\ud800"}',
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "broken UTF-8": b'{"a": "\xff"}',
    "a list": b"[]",
    "half an object": b'{"a": ',
    "nothing": b"",
}


@pytest.mark.parametrize("case", list(NOT_JSON))
def test_a_body_that_is_not_strict_json_is_a_serialization_exception(raw: Raw, case: str) -> None:
    status, reply = raw.sagemaker("CreateTrainingJob", NOT_JSON[case])
    assert (status, code_of(reply)) == (
        400,
        "SerializationException" if NOT_JSON[case] else code_of(reply),
    )
    assert status == 400


def member(**changes: Any) -> Any:
    """Return the valid request with some members replaced."""
    return lambda good: {**good, **changes}


def resources(**changes: Any) -> Any:
    return lambda good: {**good, "ResourceConfig": {**good["ResourceConfig"], **changes}}


INVALID: dict[str, tuple[Any, str]] = {
    "no name": (lambda good: {k: v for k, v in good.items() if k != "TrainingJobName"}, "trainingJobName"),
    "a name with a newline": (member(TrainingJobName="a\n"), "trainingJobName"),
    "a name of 64 characters": (member(TrainingJobName="a" * 64), "trainingJobName"),
    "a name that is a path": (member(TrainingJobName="../x"), "trainingJobName"),
    "an empty name": (member(TrainingJobName=""), "trainingJobName"),
    "a name that is a number": (member(TrainingJobName=7), "trainingJobName"),
    "a string for a map": (member(HyperParameters="x"), "hyperParameters"),
    "a number for a hyperparameter": (member(HyperParameters={"epochs": 3}), "hyperParameters"),
    "101 hyperparameters": (member(HyperParameters={f"h{i}": "1" for i in range(101)}), "hyperParameters"),
    "a hyperparameter of 2,501 characters": (member(HyperParameters={"a": "x" * 2501}), "hyperParameters"),
    "101 variables": (member(Environment={f"V{i}": "1" for i in range(101)}), "environment"),
    "a variable of 513 characters": (member(Environment={"A": "x" * 513}), "environment"),
    "101 instances": (resources(InstanceCount=101), "instanceCount"),
    "no instances": (resources(InstanceCount=0), "instanceCount"),
    "a stop after no time": (member(StoppingCondition={"MaxRuntimeInSeconds": 0}), "maxRuntimeInSeconds"),
    "a stop after 2^63 seconds": (member(StoppingCondition={"MaxRuntimeInSeconds": 2**63}), "maxRuntimeInSeconds"),
    "an input mode that does not exist": (
        lambda good: {**good, "AlgorithmSpecification": {"TrainingImage": "x", "TrainingInputMode": "Slow"}},
        "trainingInputMode",
    ),
    "an output bucket that does not exist": (
        member(OutputDataConfig={"S3OutputPath": "s3://no-such-bucket-here/x"}),
        "no-such-bucket-here",
    ),
    "a local file as a channel": (
        member(
            InputDataConfig=[
                {
                    "ChannelName": "a",
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "file:///etc"}},
                }
            ]
        ),
        "s3Uri",
    ),
    "a channel named ..": (
        member(
            InputDataConfig=[
                {
                    "ChannelName": "..",
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://b-b/c"}},
                }
            ]
        ),
        "channelName",
    ),
    "SM_ variables": (member(Environment={"SM_HPS": "x"}), "SM_HPS"),
}


@pytest.mark.parametrize("case", list(INVALID))
def test_a_request_that_cannot_be_honored_is_a_validation_exception_that_names_the_member(
    raw: Raw, good: dict[str, Any], case: str
) -> None:
    change, named = INVALID[case]
    status, reply = raw.sagemaker("CreateTrainingJob", json.dumps(change(good)).encode())
    assert status == 400
    assert code_of(reply) in ("ValidationException", "SerializationException")
    assert named.lower() in reply["message"].lower()


def test_none_of_it_left_a_job(jobs: Any) -> None:
    found = jobs.sagemaker.list_training_jobs(NameContains="never-created")["TrainingJobSummaries"]
    assert found == []


def test_an_unknown_member_is_passed_over(raw: Raw, jobs: Any) -> None:
    request = jobs.request("print('ran')", name="with-unknown-member")
    status, reply = raw.sagemaker("CreateTrainingJob", json.dumps({**request, "NewInTheYear2030": 1}).encode())
    assert status == 200, reply
    assert jobs.wait(request["TrainingJobName"])["TrainingJobStatus"] == "Completed"


def test_an_unknown_operation_is_an_error_that_names_it(raw: Raw) -> None:
    status, reply = raw.sagemaker("MakeTea", b"{}")
    assert (status, code_of(reply)) == (400, "UnknownOperationException")


def test_a_token_of_another_origin_is_refused(raw: Raw) -> None:
    status, reply = raw.sagemaker("ListTrainingJobs", b'{"NextToken": "bm90IG91cnM="}')
    assert (status, code_of(reply)) == (400, "ValidationException")
    assert "nextToken" in reply["message"]


RUN = """
    import json, os, sys
    print("ARGV", json.dumps(sys.argv[1:]))
    print("ENV", json.dumps({k: v for k, v in os.environ.items() if k.startswith(("AWS_", "TIDEMILL"))}))
"""


def test_hostile_hyperparameters_arrive_as_they_are(jobs: Any) -> None:
    values = ["; touch /tmp/x", "$(id)", "`id`", "a\nb", "--", "-v", "it's", '"', "\u6f22\u5b57", ""]
    job = jobs.run(RUN, HyperParameters={f"h{i}": json.dumps(value) for i, value in enumerate(values)})
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    line = next(line for line in jobs.log(job["TrainingJobName"]) if line.startswith("ARGV "))
    arguments = json.loads(line.removeprefix("ARGV "))
    assert arguments == [item for i, value in enumerate(values) for item in (f"--h{i}", value)]


def test_an_entry_point_that_is_not_there_is_named(jobs: Any) -> None:
    for program in ("absent.py", "../train.py", "train.py; id"):
        job = jobs.run("print()", HyperParameters={"sagemaker_program": json.dumps(program)})
        assert job["TrainingJobStatus"] == "Failed"
        assert program in job["FailureReason"]


def test_code_that_is_not_an_archive_fails_the_job_with_its_uri(jobs: Any) -> None:
    request = jobs.request("print()")
    uri = json.loads(request["HyperParameters"]["sagemaker_submit_directory"])
    jobs.s3.put_object(Bucket=BUCKET, Key=uri.split("/", 3)[3], Body=b"not a gzip tar")
    jobs.sagemaker.create_training_job(**request)
    job = jobs.wait(request["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Failed"
    assert "InvalidArchive" in job["FailureReason"]
    assert uri in job["FailureReason"]


def test_missing_data_and_missing_code_are_named(jobs: Any) -> None:
    channel = {
        "ChannelName": "train",
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/nothing/here"}},
    }
    job = jobs.run("print()", InputDataConfig=[channel])
    assert f"s3://{BUCKET}/nothing/here" in job["FailureReason"]
    gone = f"s3://{BUCKET}/gone/sourcedir.tar.gz"
    job = jobs.run("print()", HyperParameters={"sagemaker_submit_directory": json.dumps(gone)})
    assert gone in job["FailureReason"]


def test_object_keys_that_leave_the_channel_fail_the_job_and_write_nothing(jobs: Any) -> None:
    for index, key in enumerate(("../../x", "a/../../x", "b//c", "n" * 300)):
        prefix = f"hostile-{index}/"
        jobs.s3.put_object(Bucket=BUCKET, Key=prefix + key, Body=b"x")
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}
        job = jobs.run("print()", InputDataConfig=[{"ChannelName": "c", "DataSource": {"S3DataSource": source}}])
        assert job["TrainingJobStatus"] == "Failed", key
        assert job["FailureReason"].startswith("ClientError:"), job["FailureReason"]
        assert prefix in job["FailureReason"]


def test_a_job_sees_its_own_keys_and_nothing_of_the_service(jobs: Any, tidemill_service: Service) -> None:
    script = (
        RUN
        + """
    for path in (sys.argv[sys.argv.index("--state") + 1], os.path.expanduser("~/.aws")):
        try:
            print("SEES", path, os.listdir(path))
        except OSError as error:
            print("BLIND", path, type(error).__name__)
    """
    )
    job = jobs.run(script, HyperParameters={"state": json.dumps(str(tidemill_service.state_dir))})
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    log = jobs.log(job["TrainingJobName"])
    variables = json.loads(next(line for line in log if line.startswith("ENV ")).removeprefix("ENV "))
    keys = tidemill_service.environment
    assert variables["AWS_ACCESS_KEY_ID"].startswith("ASIA")
    assert keys["AWS_SECRET_ACCESS_KEY"] not in json.dumps(variables)
    if any("isolation=mount" in line for line in log):
        assert not any(line.startswith("SEES") for line in log), log
