"""kill -9 of the service in the middle of a transform job: the next service continues it."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.files import read_json
from tidemill.instance.directory import InstanceDirectory
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = b"""
def handler(data, context):
    print("asked for", data.read().decode())
    return "done", "text/plain"
"""


def _archive(model: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(model)) as source, tarfile.open(fileobj=buffer, mode="w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(SCRIPT)
        target.addfile(member, io.BytesIO(SCRIPT))
    return buffer.getvalue()


def _status(sagemaker: Any) -> str:
    return sagemaker.describe_transform_job(TransformJobName="killed")["TransformJobStatus"]


@pytest.mark.matrix
def test_objects_with_a_result_are_not_done_again_after_a_kill(
    archives: dict[int, bytes], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    hits = tmp_path / "hits"
    # Once after the third result, once before the fifth is stored, and once before the end is committed.
    points = ("object.after:exit:1:1:2", "object.before:exit:1:1:1", "end.before:exit")
    with Service(state_dir=tmp_path / "state") as service:
        s3, sagemaker = service.client("s3"), service.client("sagemaker")
        s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=_archive(archives[1]))
        for index in range(8):
            s3.put_object(Bucket=BUCKET, Key=f"in/{index}", Body=b"object %d" % index)
        # A result of another job does not count as one of this job.
        s3.put_object(Bucket=BUCKET, Key="out/7.out", Body=b"old")
        container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
        sagemaker.create_model(ModelName="m", PrimaryContainer=container)
        service.stop()
        for number, point in enumerate(points):
            service._variables = {"TIDEMILL_FAULTS": f"control.transform.{point}", "TIDEMILL_FAULTS_LOG": str(hits)}
            service.start()
            if number == 0:
                _create(service.client("sagemaker"))
            assert service._process is not None
            service._process.wait(300)  # the fault point kills it
            assert len(hits.read_text().splitlines()) == number + 1
            service.kill()
        service._variables = {}
        service.start()
        sagemaker, s3 = service.client("sagemaker"), service.client("s3")
        wait_until(lambda: _status(sagemaker) != "InProgress", "the end of the job")
        assert _status(sagemaker) == "Completed"
        found = s3.list_objects_v2(Bucket=BUCKET, Prefix="out/")["Contents"]
        assert [each["Key"] for each in found] == [f"out/{index}.out" for index in range(8)]
        assert s3.get_object(Bucket=BUCKET, Key="out/7.out")["Body"].read() == b"done"
        events = service.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TransformJobs", filterPattern='"asked for"'
        )["events"]
        # Only the fifth object, which had no result yet, was sent twice.
        assert sorted(each["message"][-1] for each in events) == list("012344567")
        [directory] = InstanceDirectory.all_below(service.state_dir)
        assert read_json(directory.spec_file)["kind"] == "transform"
        shim = directory.read_run()
        assert shim is not None
        wait_until(lambda: not shim.alive, "the end of the shim")  # it may still be exiting after its last report


def _create(sagemaker: Any) -> None:
    sagemaker.create_transform_job(
        TransformJobName="killed",
        ModelName="m",
        TransformInput={"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/in/"}}},
        TransformOutput={"S3OutputPath": f"s3://{BUCKET}/out"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
