"""kill -9 of the server while a processing job is created, launched, run, uploaded and ended: nothing is lost or done
twice."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from victim import Victim

from tidemill.instance.directory import InstanceDirectory

BUCKET = "sagemaker-us-west-2-000000000000"
COMMAND = """
import os, pathlib, time
base = pathlib.Path("/opt/ml/processing")
print("RUN", os.getpid(), flush=True)
(base / "early" / "begun.txt").write_text("begun")
while not (base / "late" / "go.txt").exists():
    time.sleep(0.02)
(base / "late" / "rows.txt").write_text("rows")
pathlib.Path("/opt/ml/output/message").write_text("2 rows")
print("END", flush=True)
"""
BEFORE = ("control.created", "control.launch.after", "control.phase.Training")
AFTER = ("control.phase.Uploading", "control.publish.after", "control.finalize.before", "control.cleaned")


@pytest.fixture
def victim(tmp_path: Path, jobs_of: Any) -> Iterator[Victim]:
    with socket.socket() as reserved:  # outputs are uploaded to the address that the job was launched with
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        made = Victim(tmp_path, jobs_of, port=reserved.getsockname()[1])
        try:
            yield made
        finally:
            made.service._clean_up()


def test_a_processing_job_survives_deaths_of_the_server(victim: Victim) -> None:
    outputs = [("early", "Continuous"), ("late", "EndOfJob")]
    request = {
        "ProcessingJobName": "prepare",
        "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
        "AppSpecification": {
            "ImageUri": "tensorflow-training:2.21.0-cpu-py311",
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/code/prepare.py"],
        },
        "ProcessingInputs": [
            {
                "InputName": "code",
                "S3Input": {
                    "S3Uri": f"s3://{BUCKET}/code/prepare.py",
                    "LocalPath": "/opt/ml/processing/code",
                    "S3DataType": "S3Prefix",
                    "S3InputMode": "File",
                },
            }
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {
                    "OutputName": name,
                    "S3Output": {
                        "S3Uri": f"s3://{BUCKET}/prepared/{name}",
                        "LocalPath": f"/opt/ml/processing/{name}",
                        "S3UploadMode": mode,
                    },
                }
                for name, mode in outputs
            ]
        },
        "ProcessingResources": {
            "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}
        },
    }
    first, *others = BEFORE
    victim.start(first)
    victim.jobs.s3.put_object(Bucket=BUCKET, Key="code/prepare.py", Body=COMMAND.encode())
    with contextlib.suppress(BotoCoreError, ClientError):  # the server may die during the request
        victim.jobs.sagemaker.create_processing_job(**request)
    victim.await_death(first)
    for point in others:
        victim.die_again(point)
    _release(victim)
    for point in AFTER:
        victim.die_again(point)
    victim.revive()
    job = victim.jobs.wait_until(lambda: _ended(victim), "the end of the job")
    assert (job["ProcessingJobStatus"], job["ExitMessage"]) == ("Completed", "2 rows")
    log = victim.jobs.log("prepare", group="/aws/sagemaker/ProcessingJobs")
    assert sum(line.startswith("RUN ") for line in log) == 1
    assert len(log) == len(set(log))
    listed = victim.jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix="prepared/")["Contents"]
    assert [each["Key"] for each in listed] == [
        "prepared/early/begun.txt",
        "prepared/late/go.txt",
        "prepared/late/rows.txt",
    ]
    (directory,) = (victim.state_dir / "jobs").iterdir()
    victim.jobs.wait_until((directory / "published.json").exists, "the clean-up")


def _release(victim: Victim) -> None:
    """Let the command of the only job end, although no server runs."""

    def output() -> Path | None:
        found = (each.ml / "processing/late" for each in InstanceDirectory.all_below(victim.state_dir))
        return next((each for each in found if each.exists()), None)

    (victim.jobs.wait_until(output, "the directory of the output") / "go.txt").touch()


def _ended(victim: Victim) -> dict[str, Any] | None:
    job: dict[str, Any] = victim.jobs.sagemaker.describe_processing_job(ProcessingJobName="prepare")
    return job if job["ProcessingJobStatus"] in ("Completed", "Failed", "Stopped") else None
