"""Take the pictures of the page for the documentation, in both themes, from a real run: `make screenshots`.

The run is small: training jobs of which one fails and one still runs, a tuning job, a pipeline, versions of a model,
and an endpoint that answers requests. Everything runs in a service of its own, which is gone afterwards.
"""

import argparse
import base64
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tidemill.environments.builder import Environments
from tidemill.server.client import own_client
from tidemill.settings import Settings
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
TRAINING = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
INFERENCE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu"
WIDTH, HEIGHT = 1280, 800
QUALITY = 45
PATIENCE_S = 600

TRAINS = """
    import json, math, os, random, time
    settings = json.loads(os.environ["SM_HPS"])
    rate, units = float(settings["learning_rate"]), int(settings["units"])
    epochs, pause = int(settings["epochs"]), float(settings.get("pause", 0.02))
    random.seed(units)
    for epoch in range(epochs):
        speed = 1 - math.exp(-epoch * rate * 8 / epochs ** 0.5)
        loss = 2.3 * (1 - speed) + 12 / units + 0.05 + random.uniform(-0.03, 0.03)
        accuracy = min(0.995, 0.1 + 0.88 * speed - 4 / units + random.uniform(-0.01, 0.01))
        print(f"epoch {epoch + 1}/{epochs} - loss: {loss:.4f} - val_accuracy: {accuracy:.4f}", flush=True)
        sum(number * number for number in range(int(4e5 * pause)))
        time.sleep(pause)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "units.txt"), "w") as file:
        file.write(str(units))
"""
FAILS = """
    def batches(path):
        raise ValueError(f"{path} has rows of 783 pixels; expected 784")

    print("reading the training data", flush=True)
    batches("/opt/ml/input/data/train/part-3.csv")
"""
SAVES = """
    import sys
    import tensorflow as tf

    class Digits(tf.Module):
        def __init__(self):
            self.weights = tf.Variable(tf.random.stateless_normal([16, 10], seed=(1, 2)))

        @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32, name="pixels")])
        def __call__(self, pixels):
            return {"probabilities": tf.nn.softmax(pixels @ self.weights)}

    model = Digits()
    tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.__call__})
"""


class Stage:
    """What the pictures show, made by plain requests."""

    def __init__(self, service: Service) -> None:
        session = service.boto3_session()
        self.sagemaker = session.client("sagemaker")
        self.s3 = session.client("s3")
        self.runtime = session.client("sagemaker-runtime")

    def request(self, script: str, **hyperparameters: Any) -> dict[str, Any]:
        """Return a CreateTrainingJob request without a name; its code is uploaded."""
        source = archive({"train.py": textwrap.dedent(script).encode()})
        key = f"code/{len(script)}/sourcedir.tar.gz"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=source)
        return {
            "AlgorithmSpecification": {
                "TrainingImage": TRAINING,
                "TrainingInputMode": "File",
                "MetricDefinitions": [
                    {"Name": "loss", "Regex": "loss: ([0-9.]+)"},
                    {"Name": "val_accuracy", "Regex": "val_accuracy: ([0-9.]+)"},
                ],
            },
            "RoleArn": ROLE,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/models"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            "HyperParameters": {
                "sagemaker_program": json.dumps("train.py"),
                "sagemaker_submit_directory": json.dumps(f"s3://{BUCKET}/{key}"),
                **{name: json.dumps(value) for name, value in hyperparameters.items()},
            },
        }

    def train(self) -> None:
        """Create six jobs: four that complete, one that fails, and one that runs."""
        tags = [{"Key": "team", "Value": "vision"}]
        for number, (rate, units) in enumerate([(0.1, 64), (0.3, 64), (0.1, 256), (0.3, 256)], start=1):
            request = self.request(TRAINS, learning_rate=rate, units=units, epochs=60)
            self.sagemaker.create_training_job(TrainingJobName=f"digits-dense-{number}", Tags=tags, **request)
        self.sagemaker.create_training_job(TrainingJobName="digits-wide", Tags=tags, **self.request(FAILS))
        request = self.request(TRAINS, learning_rate=0.2, units=512, epochs=2000, pause=0.5)
        self.sagemaker.create_training_job(TrainingJobName="digits-deep", Tags=tags, **request)

    def tune(self) -> None:
        """Create a tuning job of nine trainings."""
        request = self.request(TRAINS, epochs=40)
        request["StaticHyperParameters"] = request.pop("HyperParameters")
        self.sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName="digits-tuning",
            HyperParameterTuningJobConfig={
                "Strategy": "Random",
                "RandomSeed": 7,
                "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "val_accuracy"},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 2},
                "ParameterRanges": {
                    "ContinuousParameterRanges": [
                        {"Name": "learning_rate", "MinValue": "0.01", "MaxValue": "1", "ScalingType": "Logarithmic"}
                    ],
                    "IntegerParameterRanges": [{"Name": "units", "MinValue": "16", "MaxValue": "512"}],
                },
            },
            TrainingJobDefinition=request,
        )

    def run_pipeline(self) -> str:
        """Run a pipeline with a condition, and return the id of its execution."""
        steps = [
            {"Name": "prepare", "Type": "Training", "Arguments": self.request("print('ready')")},
            {
                "Name": "train",
                "Type": "Training",
                "DependsOn": ["prepare"],
                "Arguments": self.request(TRAINS, learning_rate=0.3, units=256, epochs=40),
            },
            {
                "Name": "good-enough",
                "Type": "Condition",
                "DependsOn": ["train"],
                "Arguments": {
                    "Conditions": [
                        {"Type": "GreaterThan", "LeftValue": {"Get": "Parameters.least"}, "RightValue": 0.5}
                    ],
                    "IfSteps": [
                        {"Name": "evaluate", "Type": "Training", "Arguments": self.request("print('evaluated')")}
                    ],
                    "ElseSteps": [{"Name": "refuse", "Type": "Fail", "Arguments": {"ErrorMessage": "not good enough"}}],
                },
            },
        ]
        definition = {
            "Version": "2020-12-01",
            "Parameters": [{"Name": "least", "Type": "Float", "DefaultValue": 0.9}],
            "Steps": steps,
        }
        self.sagemaker.create_pipeline(
            PipelineName="digits",
            PipelineDefinition=json.dumps(definition),
            RoleArn=ROLE,
            ClientRequestToken="p" * 32,
        )
        started = self.sagemaker.start_pipeline_execution(PipelineName="digits", ClientRequestToken="e" * 32)
        return str(started["PipelineExecutionArn"]).rpartition("/")[2]

    def register(self) -> None:
        """Register two versions of a model."""
        self.sagemaker.create_model_package_group(
            ModelPackageGroupName="digits", ModelPackageGroupDescription="Handwritten digits"
        )
        for version, status in ((1, "Approved"), (2, "PendingManualApproval")):
            self.sagemaker.create_model_package(
                ModelPackageGroupName="digits",
                ModelApprovalStatus=status,
                ModelPackageDescription=f"256 units, trained by digits-dense-{version + 2}",
                CustomerMetadataProperties={"val_accuracy": f"0.96{version}"},
                InferenceSpecification={
                    "Containers": [{"Image": INFERENCE, "ModelDataUrl": f"s3://{BUCKET}/models/digits.tar.gz"}],
                    "SupportedContentTypes": ["application/json"],
                    "SupportedResponseMIMETypes": ["application/json"],
                },
            )

    def put_data(self) -> None:
        """Store a small data set and the model of the endpoint."""
        rows = ["label,pixel0,pixel1,pixel2,pixel3"] + [f"{n % 10},{n % 7},{n % 5},{n % 3},{n}" for n in range(40)]
        for part in range(1, 5):
            self.s3.put_object(
                Bucket=BUCKET,
                Key=f"digits/train/part-{part}.csv",
                Body="\n".join(rows).encode(),
                ContentType="text/csv",
            )
        with tempfile.TemporaryDirectory() as directory:
            python = Environments(Settings().environments_dir).describe("tf-2.21").python
            saved = Path(directory, "1")
            subprocess.run([python, "-c", textwrap.dedent(SAVES), str(saved)], check=True, capture_output=True)
            files = {str(file.relative_to(directory)): file.read_bytes() for file in saved.rglob("*") if file.is_file()}
        self.s3.put_object(Bucket=BUCKET, Key="models/digits.tar.gz", Body=archive(files))

    def deploy(self) -> None:
        """Create the endpoint."""
        container = {"Image": INFERENCE, "ModelDataUrl": f"s3://{BUCKET}/models/digits.tar.gz"}
        self.sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {"VariantName": "AllTraffic", "ModelName": "digits", "InstanceType": "local"}
        self.sagemaker.create_endpoint_config(
            EndpointConfigName="digits", ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
        )
        self.sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")

    def ask(self, *, seconds: float) -> None:
        """Send requests to the endpoint for a while, so that there are curves."""
        body = json.dumps({"instances": [{"pixels": [0.5] * 16}]})
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            for _ in range(1 + int(time.monotonic() % 10)):
                self.runtime.invoke_endpoint(EndpointName="digits", Body=body, ContentType="application/json")
            time.sleep(0.2)

    def wait(self) -> None:
        """Wait until everything has ended but the job that runs on."""
        sagemaker = self.sagemaker
        waits: tuple[Callable[[], bool], ...] = (
            lambda: self._status("digits-dense-4") == "Completed",
            lambda: self._status("digits-wide") == "Failed",
            lambda: self._status("digits-deep") == "InProgress",
            lambda: sagemaker.describe_endpoint(EndpointName="digits")["EndpointStatus"] == "InService",
            lambda: (
                sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="digits-tuning")[
                    "HyperParameterTuningJobStatus"
                ]
                == "Completed"
            ),
            lambda: (
                sagemaker.list_pipeline_executions(PipelineName="digits")["PipelineExecutionSummaries"][0][
                    "PipelineExecutionStatus"
                ]
                == "Succeeded"
            ),
        )
        end_s = time.monotonic() + PATIENCE_S
        for number, holds in enumerate(waits):
            while not holds():
                if time.monotonic() > end_s:
                    sys.exit(f"what the pictures show is not there after {PATIENCE_S} s: condition {number}")
                time.sleep(1)

    def _status(self, name: str) -> str:
        return str(self.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"])


def archive(files: dict[str, bytes]) -> bytes:
    """Return a tar.gz of files by their names."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target.getvalue()


def views(execution: str) -> dict[str, tuple[str, str]]:
    """Return path and a selector of what has to be there, by the names of the pictures."""
    jobs = "&job=".join(f"digits-dense-{number}" for number in range(1, 5))
    return {
        "jobs": ("jobs", "text=digits-deep"),
        "job": ("jobs/training/digits-deep", "text=/epoch [0-9]+.2000/"),
        "metrics": ("jobs/training/digits-deep?tab=metrics", "canvas"),
        "compare": (f"compare?job={jobs}", "canvas"),
        "tuning": ("tuning/digits-tuning", "svg.parallel"),
        "pipeline": (f"pipelines/digits/{execution}", ".graph-area button"),
        "registry": ("registry/digits/1", "text=Approved"),
        "endpoint": ("endpoints/digits", "canvas"),
        "data": (f"data/{BUCKET}?object=digits%2Ftrain%2Fpart-1.csv", "td"),
        "system": ("system", "text=digits-deep"),
    }


def take(page: Page, target: Path) -> None:
    """Write what a page shows as a compressed picture."""
    session = page.context.new_cdp_session(page)
    shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY, "optimizeForSpeed": False})
    target.write_bytes(base64.b64decode(shot["data"]))


def take_all(browser: Browser, service: Service, execution: str, directory: Path) -> None:
    """Take the pictures of all views in both themes."""
    context = browser.new_context(base_url=service.url, viewport={"width": WIDTH, "height": HEIGHT})
    context.set_default_timeout(60_000)
    page = context.new_page()
    token = own_client(service.boto3_session(), service.url).create_page_token()["Token"]
    page.goto(f"/_tidemill/#token={token}")
    page.get_by_role("button", name="Sign out").wait_for()
    for name, (path, selector) in views(execution).items():
        page.goto(f"/_tidemill/{path}")
        page.locator("main").locator(selector).first.wait_for()
        expect(page.locator("main [aria-busy=true]")).to_have_count(0, timeout=60_000)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type] - one of two literals
            page.wait_for_timeout(500)  # the curves are drawn again in the colors of the theme
            take(page, directory / f"{name}-{theme}.webp")
    context.close()


def main() -> None:
    """Set up what the pictures show, and take them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("no Chromium here: apt install chromium")
    with Service(settings={"max_instances": 3, "stop_grace_s": 1}) as service:
        stage = Stage(service)
        stage.put_data()
        stage.deploy()
        stage.train()
        stage.tune()
        stage.register()
        execution = stage.run_pipeline()
        stage.wait()
        stage.ask(seconds=45)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            take_all(browser, service, execution, directory)
            browser.close()


if __name__ == "__main__":
    main()
