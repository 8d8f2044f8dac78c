"""Processing jobs by boto3, unmodified; every reply is validated by botocore's model."""

import textwrap
import uuid
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"

SPLIT = """
    import json, os, pathlib, sys

    base = pathlib.Path("/opt/ml/processing")
    print("arguments", sys.argv[1:], "of", os.environ["TEAM"], flush=True)
    print("toolkit", [name for name in os.environ if name.startswith(("SM_", "TRAINING_JOB"))])
    config = json.loads(pathlib.Path("/opt/ml/config/processingjobconfig.json").read_text())
    hosts = json.loads(pathlib.Path("/opt/ml/config/resourceconfig.json").read_text())
    print("config", config["ProcessingJobName"], config["ProcessingJobArn"], hosts["current_host"], hosts["hosts"])
    rows = sorted(path.read_text() for path in (base / "input").rglob("*.csv"))
    (base / "train" / "deep").mkdir()
    (base / "train" / "deep" / "rows.csv").write_text("\\n".join(rows))
    (base / "report" / "rows.txt").write_text(str(len(rows)))
    pathlib.Path("/opt/ml/output/message").write_text(f"{len(rows)} rows")
"""


class Processing:
    """Creates processing jobs of a service."""

    def __init__(self, jobs: Any, session: boto3.Session) -> None:
        self._jobs = jobs
        self.sagemaker, self.s3 = session.client("sagemaker"), session.client("s3")

    def request(
        self,
        script: str,
        *,
        outputs: Mapping[str, str] | None = None,
        data: Mapping[str, str] | None = None,
        **members: Any,
    ) -> dict[str, Any]:
        """Return a request that runs a script as AWS's SDKs do, and upload script and data.

        Args:
            script: Text of the script.
            outputs: Mode of upload by the name of each output.
            data: Texts of the input ``data`` by name.
            **members: Further members.
        """
        name = f"prepare-{uuid.uuid4().hex[:8]}"
        self.put(f"{name}/input/code/prepare.py", textwrap.dedent(script))
        inputs = [source("code", f"{name}/input/code/prepare.py", "input/code")]
        for file, text in (data or {}).items():
            self.put(f"{name}/data/{file}", text)
        if data:
            inputs.append(source("data", f"{name}/data", "input"))
        return {
            "ProcessingJobName": name,
            "RoleArn": ROLE,
            "AppSpecification": {
                "ImageUri": IMAGE,
                "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/prepare.py"],
            },
            "ProcessingInputs": inputs,
            "ProcessingOutputConfig": {
                "Outputs": [
                    {
                        "OutputName": output,
                        "S3Output": {
                            "S3Uri": f"s3://{BUCKET}/{name}/output/{output}",
                            "LocalPath": f"/opt/ml/processing/{output}",
                            "S3UploadMode": mode,
                        },
                    }
                    for output, mode in (outputs or {}).items()
                ]
            },
            "ProcessingResources": {
                "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 10}
            },
            **members,
        }

    def put(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=text.encode())

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Create a job, wait for its end, and return its description."""
        self.sagemaker.create_processing_job(**request)
        name = request["ProcessingJobName"]
        return self.until(name, "Completed", "Failed", "Stopped")

    def until(self, name: str, *statuses: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            job = self.sagemaker.describe_processing_job(ProcessingJobName=name)
            return job if job["ProcessingJobStatus"] in statuses else None

        return self._jobs.wait_until(reached, f"{name} is none of {statuses}")

    def stored(self, name: str) -> dict[str, str]:
        """Return the uploaded texts by key below the prefix of the job's outputs."""
        prefix = f"{name}/output/"
        listed = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {
            each["Key"].removeprefix(prefix): self.s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read().decode()
            for each in listed
        }

    def log(self, name: str) -> str:
        return "\n".join(self._jobs.log(name, group="/aws/sagemaker/ProcessingJobs"))


def source(name: str, key: str, path: str, **members: str) -> dict[str, Any]:
    """Return an input of a CreateProcessingJob request, as AWS's SDKs send it."""
    return {
        "InputName": name,
        "AppManaged": False,
        "S3Input": {
            "S3Uri": f"s3://{BUCKET}/{key}",
            "LocalPath": f"/opt/ml/processing/{path}",
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3DataDistributionType": "FullyReplicated",
            "S3CompressionType": "None",
            **members,
        },
    }


@pytest.fixture
def processing(jobs: Any, replies: tuple[boto3.Session, list[str]]) -> Processing:
    return Processing(jobs, replies[0])


def test_a_processing_job_from_its_inputs_to_its_outputs(processing: Processing) -> None:
    request = processing.request(
        SPLIT,
        outputs={"train": "EndOfJob", "report": "Continuous"},
        data={"a.csv": "1", "sub/b.csv": "2"},  # at the directory that also holds that of the script
        Environment={"TEAM": "tides"},
        Tags=[{"Key": "team", "Value": "tides"}],
        ExperimentConfig={"ExperimentName": "splits"},
        StoppingCondition={"MaxRuntimeInSeconds": 600},
    )
    request["AppSpecification"]["ContainerArguments"] = ["--ratio", "0.3"]
    name, sagemaker = request["ProcessingJobName"], processing.sagemaker
    arn = sagemaker.create_processing_job(**request)["ProcessingJobArn"]
    sagemaker.get_waiter("processing_job_completed_or_stopped").wait(
        ProcessingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120}
    )
    job = sagemaker.describe_processing_job(ProcessingJobName=name)
    log = processing.log(name)
    assert job["ProcessingJobStatus"] == "Completed", log
    assert job["ExitMessage"] == "2 rows"
    assert job["ProcessingStartTime"] <= job["ProcessingEndTime"]
    assert {member: job[member] for member in request if member != "Tags"} == {
        member: value for member, value in request.items() if member != "Tags"
    }
    assert "arguments ['--ratio', '0.3'] of tides" in log
    assert "toolkit []" in log
    assert f"config {name} {arn} algo-1 ['algo-1']" in log
    assert processing.stored(name) == {"train/deep/rows.csv": "1\n2", "report/rows.txt": "2"}
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "tides"}]
    (summary,) = sagemaker.list_processing_jobs(NameContains=name)["ProcessingJobSummaries"]
    assert (summary["ProcessingJobStatus"], summary["ExitMessage"]) == ("Completed", "2 rows")
    with pytest.raises(ClientError, match="only a job that is InProgress can be stopped"):
        sagemaker.stop_processing_job(ProcessingJobName=name)
    sagemaker.delete_processing_job(ProcessingJobName=name)
    with pytest.raises(ClientError, match="Could not find requested job with name"):
        sagemaker.describe_processing_job(ProcessingJobName=name)


def test_a_failed_job_says_why_and_uploads_no_output_of_its_end(processing: Processing) -> None:
    request = processing.request(
        """
        import pathlib
        for name in ("train", "report"):
            pathlib.Path("/opt/ml/processing", name, "half.txt").write_text(name)
        pathlib.Path("/opt/ml/output/message").write_text("half done")
        raise ValueError("no rows")
        """,
        outputs={"train": "EndOfJob", "report": "Continuous"},
    )
    job = processing.run(request)
    assert job["ProcessingJobStatus"] == "Failed"
    assert "ValueError: no rows" in job["FailureReason"]
    assert job["ExitMessage"] == "half done"
    assert processing.stored(job["ProcessingJobName"]) == {"report/half.txt": "report"}


def test_a_stopped_job_is_stopping_until_its_command_has_ended(processing: Processing) -> None:
    request = processing.request(
        """
        import pathlib, signal, sys
        def save(number, frame):
            pathlib.Path("/opt/ml/processing/train/saved.txt").write_text("saved")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        pathlib.Path("/opt/ml/processing/begun/begun.txt").write_text("begun")
        signal.pause()
        """,
        outputs={"train": "EndOfJob", "begun": "Continuous"},
    )
    name = request["ProcessingJobName"]
    processing.sagemaker.create_processing_job(**request)
    processing._jobs.wait_until(lambda: processing.stored(name), "the command has begun")
    processing.sagemaker.stop_processing_job(ProcessingJobName=name)
    job = processing.until(name, "Stopped")
    assert "FailureReason" not in job
    assert processing.stored(name) == {"begun/begun.txt": "begun", "train/saved.txt": "saved"}
