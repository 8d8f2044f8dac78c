"""Batch transform by boto3: real servers, with a plain SavedModel and with a script."""

import gzip
import io
import json
import struct
import tarfile
import textwrap
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from awscrt.checksums import crc32c
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
INFERENCE = """
    import json
    import os
    import time

    def handler(data, context):
        body = data.read()
        time.sleep(float(os.environ.get("DELAY_S", "0")))
        print("asked", context.request_content_type, len(body))
        if b"exit" in body:
            os._exit(3)
        if b"bad" in body:
            raise ValueError("bad is no number")
        if context.request_content_type == "text/csv":
            rows = [[float(each) for each in line.split(",")] for line in body.decode().split("\\n")]
            return "\\n".join(str(sum(row)) for row in rows) + "\\n", "text/csv"
        if context.request_content_type == "application/json":
            return json.dumps({"sum": sum(json.loads(body)["values"]), "batch": os.environ["SAGEMAKER_BATCH"],
                               "word": os.environ.get("WORD")}), "application/json"
        return body[::-1], context.accept_header
"""


class Transforms:
    """Transform jobs of a service, by plain boto3."""

    def __init__(self, service: Service, wait_until: Callable[..., Any]) -> None:
        self.service = service
        self.wait_until = wait_until
        session = service.boto3_session()
        self.sagemaker = session.client("sagemaker")
        self.s3 = session.client("s3")
        self.logs = session.client("logs")

    def model(self, name: str, archive: bytes, **container: Any) -> None:
        """Create a model once."""
        self.s3.put_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz", Body=archive)
        self.sagemaker.create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE,
            PrimaryContainer={
                "Image": "tensorflow-inference:2.21.0-cpu",
                "ModelDataUrl": f"s3://{BUCKET}/{name}/model.tar.gz",
                **container,
            },
        )

    def create(self, model: str, inputs: Mapping[str, bytes], *, data: str = "", count: int = 1, **members: Any) -> str:
        """Upload objects below a new prefix, create a job for them, and return its name."""
        name = f"transform-{uuid.uuid4().hex[:12]}"
        for key, content in inputs.items():
            self.s3.put_object(Bucket=BUCKET, Key=f"{name}/in/{key}", Body=content)
        source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{data or f'{name}/in/'}"}
        given = members.pop("TransformInput", {})
        self.sagemaker.create_transform_job(
            TransformJobName=name,
            ModelName=model,
            TransformInput={"DataSource": {"S3DataSource": source | given.pop("S3DataSource", {})}, **given},
            TransformOutput={"S3OutputPath": f"s3://{BUCKET}/{name}/out", **members.pop("TransformOutput", {})},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": count},
            **members,
        )
        return name

    def describe(self, name: str) -> dict[str, Any]:
        return self.sagemaker.describe_transform_job(TransformJobName=name)

    def wait(self, name: str) -> dict[str, Any]:
        """Wait for the end of the job, and return its description."""
        self.wait_until(
            lambda: self.describe(name)["TransformJobStatus"] not in ("InProgress", "Stopping"),
            lambda: self.describe(name),
        )
        return self.describe(name)

    def results(self, name: str) -> dict[str, bytes]:
        """Return the results of a job by the rest of their key."""
        prefix = f"{name}/out/"
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {
            each["Key"].removeprefix(prefix): self.s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read()
            for each in found
        }

    def completed(self, *arguments: Any, **members: Any) -> dict[str, bytes]:
        """Run a job to its end, and return its results."""
        name = self.create(*arguments, **members)
        job = self.wait(name)
        assert job["TransformJobStatus"] == "Completed", job
        return self.results(name)

    def failed(self, *arguments: Any, **members: Any) -> tuple[str, str]:
        """Run a job that must fail, and return its name and reason."""
        name = self.create(*arguments, **members)
        job = self.wait(name)
        assert job["TransformJobStatus"] == "Failed", job
        return name, job["FailureReason"]

    def log(self, name: str, stream: str = "") -> list[str]:
        events = self.logs.filter_log_events(
            logGroupName="/aws/sagemaker/TransformJobs", logStreamNamePrefix=f"{name}/{stream}"
        )["events"]
        return [event["message"] for event in events]


@pytest.fixture(scope="module")
def scripted(saved_model: Path) -> bytes:
    """Return a model archive with a script."""
    buffer = io.BytesIO()
    with tarfile.open(saved_model) as source, tarfile.open(fileobj=buffer, mode="w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        script = textwrap.dedent(INFERENCE).encode()
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(script)
        target.addfile(member, io.BytesIO(script))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def transforms(
    tidemill_service: Service, saved_model: Path, scripted: bytes, wait_until: Callable[..., Any]
) -> Transforms:
    transforms = Transforms(tidemill_service, wait_until)
    transforms.model("plain", saved_model.read_bytes())
    transforms.model("scripted", scripted, Environment={"WORD": "model"})
    return transforms


def _tf_record(*records: bytes) -> bytes:
    def check(data: bytes) -> bytes:
        value = crc32c(data)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    framed = []
    for each in records:
        length = struct.pack("<Q", len(each))
        framed.append(length + check(length) + each + check(each))
    return b"".join(framed)


def test_a_saved_model_transforms_every_object_below_a_prefix(transforms: Transforms) -> None:
    inputs = {"a.csv": b"2\n4\n", "deep/b.csv": b"6\r\n\r\n8", "deep/c d.csv": b"", "deep/": b""}
    name = transforms.create(
        "plain",
        inputs,
        TransformInput={"ContentType": "text/csv", "SplitType": "Line"},
        Tags=[{"Key": "team", "Value": "tides"}],
    )
    job = transforms.wait(name)
    assert job["TransformJobStatus"] == "Completed", job
    results = transforms.results(name)
    assert {key: json.loads(value)["predictions"] for key, value in results.items() if value} == {
        "a.csv.out": [3.0, 4.0],
        "deep/b.csv.out": [5.0, 6.0],
    }
    assert results["deep/c d.csv.out"] == b""
    assert job["CreationTime"] <= job["TransformStartTime"] <= job["TransformEndTime"]
    assert transforms.sagemaker.list_tags(ResourceArn=job["TransformJobArn"])["Tags"] == [
        {"Key": "team", "Value": "tides"}
    ]
    [summary] = transforms.sagemaker.list_transform_jobs(NameContains=name)["TransformJobSummaries"]
    assert (summary["TransformJobStatus"], summary["TransformEndTime"]) == ("Completed", job["TransformEndTime"])
    assert sum(line.startswith("transformed s3://") for line in transforms.log(name, "data-log")) == 3
    assert transforms.log(name, "algo-1-")


def test_compressed_tf_records_are_sent_one_by_one(transforms: Transforms) -> None:
    name = transforms.create(
        "scripted",
        {"x": gzip.compress(_tf_record(b"abcde", b"fg"))},
        TransformInput={
            "ContentType": "application/octet-stream",
            "SplitType": "TFRecord",
            "CompressionType": "Gzip",
        },
        TransformOutput={"Accept": "application/x-reversed", "AssembleWith": "Line", "KmsKeyId": "1234abcd"},
        BatchStrategy="SingleRecord",
    )
    job = transforms.wait(name)
    assert (job["TransformJobStatus"], job["TransformOutput"]["KmsKeyId"]) == ("Completed", "1234abcd")
    assert transforms.results(name) == {"x.out": b"edcba\ngf\n"}
    stored = transforms.s3.head_object(Bucket=BUCKET, Key=f"{name}/out/x.out")
    assert stored["SSEKMSKeyId"] == "arn:aws:kms:us-west-2:000000000000:key/1234abcd"
    assert [line for line in transforms.log(name) if "nothing is encrypted with TransformOutput.KmsKeyId" in line]


def test_records_are_filtered_and_joined(transforms: Transforms) -> None:
    csv = {"SplitType": "Line", "ContentType": "text/csv"}
    rows = b'7,1,2\n"8",3,4\n'
    joined = transforms.completed(
        "scripted",
        {"x": rows},
        TransformInput=dict(csv),
        TransformOutput={"AssembleWith": "Line", "Accept": "text/csv"},
        DataProcessing={"InputFilter": "$[1:]", "JoinSource": "Input", "OutputFilter": "$[0,-1]"},
    )
    assert joined == {"x.out": b"7,3.0\n8,7.0\n"}
    documents = b'{"id": 1, "values": [1, 2]}\n{"id": 2, "values": [3, 4]}\n'
    json_lines = {"SplitType": "Line", "ContentType": "application/json"}
    joined = transforms.completed(
        "scripted",
        {"x": documents},
        TransformInput=dict(json_lines),
        TransformOutput={"AssembleWith": "Line"},
        BatchStrategy="SingleRecord",
        DataProcessing={"JoinSource": "Input", "OutputFilter": "$['id','SageMakerOutput']"},
        Environment={"WORD": "job"},
    )
    assert [json.loads(line) for line in joined["x.out"].splitlines()] == [
        {"id": 1, "SageMakerOutput": {"sum": 3, "batch": "true", "word": "job"}},
        {"id": 2, "SageMakerOutput": {"sum": 7, "batch": "true", "word": "job"}},
    ]


def test_several_servers_share_the_objects_of_a_manifest(transforms: Transforms) -> None:
    place = f"manifest-{uuid.uuid4().hex[:8]}"
    for index in range(6):
        transforms.s3.put_object(Bucket=BUCKET, Key=f"{place}/in/{index}", Body=f"{index},1".encode())
    manifest = json.dumps([{"prefix": f"s3://{BUCKET}/{place}/in/"}, *(str(index) for index in range(6))])
    transforms.s3.put_object(Bucket=BUCKET, Key=f"{place}/list", Body=manifest.encode())
    name = transforms.create(
        "scripted",
        {},
        count=2,
        data=f"{place}/list",
        MaxConcurrentTransforms=2,
        TransformInput={"ContentType": "text/csv", "S3DataSource": {"S3DataType": "ManifestFile"}},
    )
    assert transforms.wait(name)["TransformJobStatus"] == "Completed"
    assert transforms.results(name) == {f"{index}.out": f"{index + 1.0}\n".encode() for index in range(6)}
    assert all("asked text/csv 3" in transforms.log(name, f"algo-{index}-") for index in (1, 2))


def test_a_record_that_fails_is_named_and_the_other_objects_have_results(transforms: Transforms) -> None:
    inputs = {"a": b"1,2\n3,4\n5,6\nbad,6\n", "b": b"1,1\n", "c": b"bad\n"}
    name, reason = transforms.failed(
        "scripted",
        inputs,
        TransformInput={"ContentType": "text/csv", "SplitType": "Line"},
        BatchStrategy="SingleRecord",
        ModelClientConfig={"InvocationsMaxRetries": 1},
    )
    assert reason.startswith(f"AlgorithmError: s3://{BUCKET}/{name}/in/a: record 4: the model answered 500: ")
    assert "bad is no number" in reason
    assert "(tried 2 times)" in reason
    assert reason.endswith(f"(1 more objects have no result; see the log stream {name}/data-log)")
    assert transforms.results(name) == {"b.out": b"2.0\n"}
    assert any("trying again" in line for line in transforms.log(name, "data-log"))


def test_a_job_without_data_or_with_a_missing_model_archive_fails_with_the_reason(transforms: Transforms) -> None:
    _, reason = transforms.failed("scripted", {})
    assert reason.startswith("ClientError: TransformInput: no S3 objects found under s3://")
    transforms.sagemaker.create_model(
        ModelName="no-archive",
        PrimaryContainer={"Image": "tensorflow-inference:2.21", "ModelDataUrl": f"s3://{BUCKET}/nowhere.tar.gz"},
    )
    _, reason = transforms.failed("no-archive", {"x": b"1"})
    assert reason == f"ClientError: the model archive s3://{BUCKET}/nowhere.tar.gz does not exist"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"ModelName": "nowhere"}, 'Could not find model "arn:aws:sagemaker:us-west-2:000000000000:model/nowhere"'),
        ({"MaxPayloadInMB": 60, "MaxConcurrentTransforms": 2}, "its product with MaxPayloadInMB"),
        ({"DataProcessing": {"InputFilter": "$..a"}}, "'dataProcessing.inputFilter'"),
        ({"DataProcessing": {"OutputFilter": "$[?@.a]"}}, "filters are not offered"),
        ({"DataProcessing": {"JoinSource": "Input"}}, "'transformInput.contentType'"),
        ({"Environment": {"AWS_SESSION_TOKEN": "x"}}, "are set by the service"),
        ({"DataCaptureConfig": {"DestinationS3Uri": "s3://x/y"}}, "are not captured"),
    ],
)
def test_arguments_that_cannot_be_honored_are_refused_at_the_call(
    transforms: Transforms, members: dict[str, Any], words: str
) -> None:
    request = {
        "TransformJobName": "refused",
        "ModelName": "plain",
        "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/x"}}},
        "TransformOutput": {"S3OutputPath": f"s3://{BUCKET}/y"},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        **members,
    }
    with pytest.raises(ClientError, match="ValidationException") as caught:
        transforms.sagemaker.create_transform_job(**request)
    assert words in str(caught.value)


def test_a_job_is_stopped_and_keeps_the_results_it_has(transforms: Transforms) -> None:
    inputs = {f"{index:03}": b"1,2" for index in range(60)}
    name = transforms.create(
        "scripted", inputs, TransformInput={"ContentType": "text/csv"}, Environment={"DELAY_S": "0.3"}
    )
    transforms.wait_until(lambda: transforms.results(name), lambda: transforms.describe(name))
    transforms.sagemaker.stop_transform_job(TransformJobName=name)
    job = transforms.wait(name)
    assert job["TransformJobStatus"] == "Stopped"
    assert 0 < len(transforms.results(name)) < 60
    with pytest.raises(ClientError, match="is in status Stopped"):
        transforms.sagemaker.stop_transform_job(TransformJobName=name)
