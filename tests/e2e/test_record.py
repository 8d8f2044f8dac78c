"""Every job has a record with which it can be repeated."""

import hashlib
import json
import time
from typing import Any

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"


def test_a_job_leaves_a_record_of_environment_code_data_and_command(tidemill_service: Service, jobs: Any) -> None:
    jobs.s3.put_object(Bucket=BUCKET, Key="recorded/a.txt", Body=b"a")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/recorded/"}
    job = jobs.run("print()", InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}])
    name = job["TrainingJobName"]
    record = recorded(tidemill_service, name)
    code = json.loads(job["HyperParameters"]["sagemaker_submit_directory"])
    assert record["code"] == {"uri": code, "sha256": hashlib.sha256(jobs.object(code)).hexdigest()}
    assert record["inputs"]["train"]["objects"] == 1
    assert record["inputs"]["train"]["size_bytes"] == 1
    assert record["environment"] == "tf-2.21"
    assert len(record["lock_sha256"]) == 64
    assert "tidemill_runtime" in " ".join(record["command"])
    assert record["request"]["TrainingJobName"] == name


def recorded(service: Service, name: str) -> dict[str, Any]:
    """Return the record of a job, which is written just after its end is committed."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for file in (service.state_dir / "jobs").glob("*/record.json"):
            record = json.loads(file.read_text())
            if record["name"] == name:
                return dict(record)
        time.sleep(0.02)
    raise AssertionError(f"{name} left no record")
