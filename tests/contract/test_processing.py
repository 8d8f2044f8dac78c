"""Processing jobs by boto3, unmodified; every reply is validated by botocore's model."""

import json
import os
import subprocess
import textwrap
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

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
        self.jobs = jobs
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

        return self.jobs.wait_until(reached, f"{name} is none of {statuses}")

    def stored(self, name: str) -> dict[str, str]:
        """Return the uploaded texts by key below the prefix of the job's outputs."""
        prefix = f"{name}/output/"
        listed = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return {
            each["Key"].removeprefix(prefix): self.s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read().decode()
            for each in listed
        }

    def log(self, name: str) -> str:
        return "\n".join(self.jobs.log(name, group="/aws/sagemaker/ProcessingJobs"))


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
def tidemill(tidemill_service: Service, root: Path) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        command = [root / ".venv/bin/tidemill", *arguments]
        variables = {**os.environ, **tidemill_service.environment}
        return subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True).stdout

    return run


@pytest.fixture
def processing(jobs: Any, replies: tuple[boto3.Session, list[str]]) -> Processing:
    return Processing(jobs, replies[0])


def test_a_processing_job_from_its_inputs_to_its_outputs(processing: Processing) -> None:
    experiment = f"splits-{uuid.uuid4().hex[:8]}"
    processing.sagemaker.create_experiment(ExperimentName=experiment)
    request = processing.request(
        SPLIT,
        outputs={"train": "EndOfJob", "report": "Continuous"},
        data={"a.csv": "1", "sub/b.csv": "2"},  # at the directory that also holds that of the script
        Environment={"TEAM": "tides"},
        Tags=[{"Key": "team", "Value": "tides"}],
        ExperimentConfig={"ExperimentName": experiment},
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


def test_the_command_line_shows_and_stops_a_job_which_saves_its_work(
    processing: Processing, tidemill: Callable[..., str]
) -> None:
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
    processing.jobs.wait_until(lambda: processing.stored(name), "the command has begun")
    assert f"{name}  InProgress" in tidemill("ps")
    assert "ProcessingJobStatus: InProgress" in tidemill("describe", name)
    tidemill("stop", name)
    assert "tidemill: stop requested" in tidemill("logs", "-f", name)
    job = processing.until(name, "Stopped")
    assert "FailureReason" not in job
    assert processing.stored(name) == {"begun/begun.txt": "begun", "train/saved.txt": "saved"}


def test_instances_share_objects_find_each_other_and_reach_nothing_else(processing: Processing) -> None:
    request = processing.request(
        """
        import json, pathlib, socket
        import boto3, botocore
        base = pathlib.Path("/opt/ml/processing")
        config = json.loads(pathlib.Path("/opt/ml/config/resourceconfig.json").read_text())
        names = sorted(path.name for path in (base / "input").glob("*.csv"))
        hosts = {host: socket.gethostbyname(host) != "" for host in config["hosts"]}
        try:
            boto3.client("s3", config=botocore.config.Config(retries={"total_max_attempts": 1})).list_buckets()
            reached = True
        except botocore.exceptions.BotoCoreError:
            reached = False
        result = [names, hosts, reached]
        (base / "shards" / f"{config['current_host']}.json").write_text(json.dumps(result))
        """,
        data={f"{index}.csv": "" for index in range(5)},
        outputs={"shards": "EndOfJob"},
    )
    request["ProcessingInputs"][1]["S3Input"]["S3DataDistributionType"] = "ShardedByS3Key"
    request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] = 2
    request["NetworkConfig"] = {"EnableNetworkIsolation": True}
    job = processing.run(request)
    assert job["ProcessingJobStatus"] == "Completed", job.get("FailureReason")
    found = {name: json.loads(text) for name, text in processing.stored(job["ProcessingJobName"]).items()}
    hosts = {"algo-1": True, "algo-2": True}
    assert found == {
        "shards/algo-1.json": [["0.csv", "2.csv", "4.csv"], hosts, False],
        "shards/algo-2.json": [["1.csv", "3.csv"], hosts, False],
    }


def test_outputs_that_cannot_be_uploaded_fail_the_job_and_name_the_file(processing: Processing) -> None:
    request = processing.request(
        """
        import pathlib
        pathlib.Path("/opt/ml/processing/train/rows.txt").write_text("rows")
        """,
        outputs={"train": "EndOfJob"},
    )
    policy = {
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:PutObject",
                "Resource": f"arn:aws:s3:::{BUCKET}/{request['ProcessingJobName']}/output/*",
            }
        ]
    }
    processing.s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(policy))
    try:
        job = processing.run(request)
    finally:
        processing.s3.delete_bucket_policy(Bucket=BUCKET)
    assert job["ProcessingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("ClientError: 'rows.txt' is not uploaded to s3://")


def test_an_input_and_an_output_may_share_a_directory(processing: Processing) -> None:
    request = processing.request(
        """
        import pathlib
        for path in pathlib.Path("/opt/ml/processing/shared").iterdir():
            path.write_text(path.read_text() + "!")
        """,
        data={"a.txt": "a", "b.txt": "b"},
        outputs={"shared": "EndOfJob"},
    )
    request["ProcessingInputs"][1]["S3Input"]["LocalPath"] = "/opt/ml/processing/shared"
    job = processing.run(request)
    assert job["ProcessingJobStatus"] == "Completed", job.get("FailureReason")
    assert processing.stored(job["ProcessingJobName"]) == {"shared/a.txt": "a!", "shared/b.txt": "b!"}
    key = f"{job['ProcessingJobName']}/data/a.txt"
    assert processing.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"a"


REFUSED: list[tuple[tuple[Any, ...], Any, str]] = [
    (("AppSpecification", "ContainerEntrypoint"), None, "containerEntrypoint.*give the command"),
    (("AppSpecification", "ImageUri"), "acme/prepare:1", "appSpecification.imageUri.*scikit-learn"),
    (("ProcessingInputs", 0, "S3Input", "LocalPath"), "/data", "below /opt/ml/processing"),
    (("ProcessingInputs", 0, "S3Input", "LocalPath"), "/opt/ml/processing/../model", "below /opt/ml/processing"),
    (("ProcessingInputs", 0, "S3Input", "S3InputMode"), "Pipe", "File"),
    (("ProcessingInputs", 0, "S3Input", "S3CompressionType"), "Gzip", "unpack"),
    (("ProcessingInputs", 0, "DatasetDefinition"), {"LocalPath": "x"}, "neither Athena nor Redshift"),
    (("ProcessingOutputConfig", "Outputs", 0, "S3Output", "S3Uri"), "s3://no-such-bucket-here/x", "does not exist"),
    (("ProcessingOutputConfig", "Outputs", 1, "OutputName"), "train", "names are unique"),
    (("ProcessingResources", "ClusterConfig", "InstanceCount"), 99, "instances can run at the same time"),
    (("Environment",), {"SM_HOSTS": "x"}, "set by the service"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_honored_is_refused_at_create(
    processing: Processing, path: tuple[Any, ...], value: Any, message: str
) -> None:
    request = processing.request("pass", outputs={"train": "EndOfJob", "report": "Continuous"})
    place = request
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(ClientError, match=message):
        processing.sagemaker.create_processing_job(**request)


def test_without_mounts_the_paths_in_the_command_are_those_of_the_machine(jobs_of: Any) -> None:
    with Service(settings={"isolation": "plain"}) as service:
        processing = Processing(jobs_of(service), service.boto3_session())
        request = processing.request(
            """
            import os, pathlib, sys
            base = pathlib.Path(os.environ["SAGEMAKER_BASE_DIR"]) / "processing"
            (base / "train" / "rows.txt").write_text(str(sys.argv[1] == str(base / "train")))
            """,
            outputs={"train": "EndOfJob"},
        )
        request["AppSpecification"]["ContainerArguments"] = ["/opt/ml/processing/train"]
        job = processing.run(request)
        assert job["ProcessingJobStatus"] == "Completed", job.get("FailureReason")
        assert processing.stored(job["ProcessingJobName"]) == {"train/rows.txt": "True"}
