"""An endpoint and jobs on the machines of a cluster, whichever scheduler places them."""

import collections
import contextlib
import json
import threading
import time
import uuid
from collections.abc import Generator
from typing import Any

import pytest
from botocore.config import Config

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
IMAGE = "763104351884.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311-ubuntu22.04-sagemaker"
WHOLE_MACHINE = "ml.c5.large"
"""An instance type for which the settings of the tests reserve a whole machine."""
DIGIT = {"instances": [[0.5] * 64]}


class ServedDigits:
    """An endpoint with the model of a training job.

    Args:
        jobs: A service's `conftest.Jobs`.
        trained: Description of a job that ran `cluster_scripts.DIGITS`.
        instances: How many instances it has.
    """

    def __init__(self, jobs: Any, trained: dict[str, Any], *, instances: int) -> None:
        self.jobs = jobs
        self.name = f"digits-{uuid.uuid4().hex[:8]}"
        self._instances = instances
        self.take_up(jobs)
        container = {
            "Image": "tensorflow-inference:2.21.0-cpu",
            "ModelDataUrl": trained["ModelArtifacts"]["S3ModelArtifacts"],
        }
        self.sagemaker.create_model(ModelName=self.name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {
            "VariantName": "v",
            "ModelName": self.name,
            "InstanceType": WHOLE_MACHINE,
            "InitialInstanceCount": instances,
        }
        self.sagemaker.create_endpoint_config(EndpointConfigName=self.name, ProductionVariants=[variant])
        self.sagemaker.create_endpoint(EndpointName=self.name, EndpointConfigName=self.name)

    def take_up(self, jobs: Any) -> None:
        """Use the clients of a service that was started again."""
        self.jobs, self.sagemaker = jobs, jobs.sagemaker
        once = Config(retries={"total_max_attempts": 1}, read_timeout=70)
        self._runtime = jobs.service.boto3_session().client("sagemaker-runtime", config=once)

    def describe(self) -> dict[str, Any]:
        return self.sagemaker.describe_endpoint(EndpointName=self.name)

    def wait(self) -> None:
        """Wait until all instances answer."""

        def answers() -> bool:
            now = self.describe()
            assert now["EndpointStatus"] in ("Creating", "InService"), now
            (variant,) = now.get("ProductionVariants", [{"CurrentInstanceCount": 0}])
            return now["EndpointStatus"] == "InService" and variant["CurrentInstanceCount"] == self._instances

        self.jobs.wait_until(answers, self.describe)

    def invoke(self) -> list[float]:
        """Return the answer to `DIGIT`."""
        body = json.dumps(DIGIT).encode()
        answer = self._runtime.invoke_endpoint(EndpointName=self.name, ContentType="application/json", Body=body)
        (scores,) = json.loads(answer["Body"].read())["predictions"]
        return scores

    @contextlib.contextmanager
    def asked_all_the_time(self) -> Generator[list[float]]:
        """Invoke from four threads until the block ends, and check that every answer is right.

        Yields:
            Seconds that the answers took, as they arrive.
        """
        expected, over = self.invoke(), threading.Event()
        failures: list[BaseException] = []
        waited_s: list[float] = []

        def ask() -> None:
            while not over.is_set():
                begun_s = time.monotonic()
                try:
                    assert self.invoke() == pytest.approx(expected, rel=1e-4)
                except BaseException as error:  # noqa: BLE001 - shown by the test
                    failures.append(error)
                finally:
                    waited_s.append(time.monotonic() - begun_s)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            yield waited_s
        finally:
            over.set()
            for thread in threads:
                thread.join(80)
        assert not failures, collections.Counter(map(str, failures))

    def begin_transform(self, *, instances: int) -> None:
        """Create a batch transform job over eight objects, each with `DIGIT`."""
        prefix = f"{self.name}/in"
        for number in range(8):
            self.jobs.s3.put_object(Bucket=BUCKET, Key=f"{prefix}/{number}", Body=json.dumps(DIGIT).encode())
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}/"}}
        self.sagemaker.create_transform_job(
            TransformJobName=self.name,
            ModelName=self.name,
            TransformInput={"DataSource": source, "ContentType": "application/json"},
            TransformOutput={"S3OutputPath": f"s3://{BUCKET}/{self.name}/out"},
            TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": instances},
        )

    def ended_transform(self) -> dict[str, Any]:
        """Wait for the end of the transform job, and return its description."""

        def describe() -> dict[str, Any]:
            return self.sagemaker.describe_transform_job(TransformJobName=self.name)

        self.jobs.wait_until(lambda: describe()["TransformJobStatus"] not in ("InProgress", "Stopping"), describe)
        return describe()

    def transform(self, *, instances: int) -> list[list[float]]:
        """Run a transform job, and return the answers to `DIGIT`."""
        self.begin_transform(instances=instances)
        job = self.ended_transform()
        assert job["TransformJobStatus"] == "Completed", job
        results = [self.jobs.object(f"s3://{BUCKET}/{self.name}/out/{number}.out") for number in range(8)]
        return [json.loads(result)["predictions"][0] for result in results]

    def delete(self) -> None:
        """Delete the endpoint and wait until it is gone."""
        self.sagemaker.delete_endpoint(EndpointName=self.name)
        self.jobs.wait_until(
            lambda: self.name not in {each["EndpointName"] for each in self.sagemaker.list_endpoints()["Endpoints"]},
            "the end of the endpoint",
        )


def process(jobs: Any, script: str) -> tuple[dict[str, Any], bytes]:
    """Run a processing job whose script writes ``/opt/ml/processing/out/result``; return its description and that."""
    name = f"prepare-{uuid.uuid4().hex[:8]}"
    jobs.s3.put_object(Bucket=BUCKET, Key=f"{name}/code/prepare.py", Body=script.encode())
    code = {"S3Uri": f"s3://{BUCKET}/{name}/code/prepare.py", "LocalPath": "/opt/ml/processing/input/code"}
    out = {"S3Uri": f"s3://{BUCKET}/{name}/out", "LocalPath": "/opt/ml/processing/out", "S3UploadMode": "EndOfJob"}
    jobs.sagemaker.create_processing_job(
        ProcessingJobName=name,
        RoleArn=ROLE,
        AppSpecification={
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/prepare.py"],
        },
        ProcessingInputs=[
            {"InputName": "code", "S3Input": {**code, "S3DataType": "S3Prefix", "S3InputMode": "File"}},
        ],
        ProcessingOutputConfig={"Outputs": [{"OutputName": "out", "S3Output": out}]},
        ProcessingResources={"ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}},
    )

    def describe() -> dict[str, Any]:
        return jobs.sagemaker.describe_processing_job(ProcessingJobName=name)

    jobs.wait_until(lambda: describe()["ProcessingJobStatus"] not in ("InProgress", "Stopping"), describe)
    assert describe()["ProcessingJobStatus"] == "Completed", describe()
    return describe(), jobs.object(f"s3://{BUCKET}/{name}/out/result")
