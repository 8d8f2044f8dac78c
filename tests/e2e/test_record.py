"""Every job has a record with which it can be repeated."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"


def test_a_job_leaves_a_record_of_environment_code_data_and_command(tidemill_service: Service, jobs: Any) -> None:
    jobs.s3.put_object(Bucket=BUCKET, Key="recorded/a.txt", Body=b"a")
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/recorded/"}
    job = jobs.run("print()", InputDataConfig=[{"ChannelName": "train", "DataSource": {"S3DataSource": source}}])
    name = job["TrainingJobName"]
    record = recorded(tidemill_service, name, jobs.wait_until)
    code = json.loads(job["HyperParameters"]["sagemaker_submit_directory"])
    assert record["code"] == {"uri": code, "sha256": hashlib.sha256(jobs.object(code)).hexdigest()}
    assert record["inputs"]["train"]["objects"] == 1
    assert record["inputs"]["train"]["size_bytes"] == 1
    assert record["environment"] == "tf-2.21"
    assert len(record["lock_sha256"]) == 64
    assert "tidemill_runtime" in " ".join(record["command"])
    assert record["request"]["TrainingJobName"] == name


def recorded(service: Service, name: str, wait_until: Callable[..., Any]) -> dict[str, Any]:
    """Return the record of a job, which is written just after its end is committed."""

    def found() -> dict[str, Any] | None:
        records = (json.loads(file.read_text()) for file in (service.state_dir / "jobs").glob("*/record.json"))
        return next((record for record in records if record["name"] == name), None)

    return wait_until(found, f"the record of {name}")
