"""Fixtures for the tests across packages: one service per session, and jobs submitted as plain requests."""

import contextlib
import functools
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.loaders
import pytest

from forked_sdk import ForkedSdk
from polling import poll
from tidemill.core.frameworks import FRAMEWORKS
from tidemill.environments.builder import Environments, JobEnvironment
from tidemill.errors import MissingInterpreterError
from tidemill.server.discovery import find_service
from tidemill.server.exports import proxy_environment
from tidemill.server.state import StateDirectory
from tidemill.settings import Settings
from tidemill.testing import Service

ROOT = Path(__file__).parents[1]
# Clients and services of these tests have a separate HOME, but share the user's environments.
os.environ.setdefault("TIDEMILL_ENVIRONMENTS_DIR", str(Settings().environments_dir))
IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
BUCKET = "sagemaker-us-west-2-000000000000"


@pytest.fixture(scope="session", autouse=True)
def _service_models_are_parsed_once() -> Iterator[None]:
    """Make all sessions of botocore share one loader: otherwise each parses SageMaker's model, for 0.2 s of CPU."""
    shared = functools.cache(botocore.loaders.create_loader)
    with mock.patch("botocore.session.create_loader", shared):
        yield


def archive(files: Mapping[str, str]) -> bytes:
    """Return a sourcedir.tar.gz with the given texts."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            data = textwrap.dedent(text).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


class Jobs:
    """Training jobs of a service, by plain boto3."""

    wait_until = staticmethod(poll)

    def __init__(self, service: Service) -> None:
        self.service = service
        session = service.boto3_session()
        self.sagemaker = session.client("sagemaker")
        self.s3 = session.client("s3")
        self.logs_client = session.client("logs")

    def request(
        self, script: str, *, name: str | None = None, files: Mapping[str, str] | None = None, **members: Any
    ) -> dict[str, Any]:
        """Return a CreateTrainingJob request for a script, and upload its code."""
        name = name or f"job-{uuid.uuid4().hex[:12]}"
        key = f"{name}/source/sourcedir.tar.gz"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=archive({"train.py": script, **(files or {})}))
        hyperparameters = {
            "sagemaker_program": json.dumps("train.py"),
            "sagemaker_submit_directory": json.dumps(f"s3://{BUCKET}/{key}"),
            **members.pop("HyperParameters", {}),
        }
        return {
            "TrainingJobName": name,
            "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
            "RoleArn": ROLE,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            "HyperParameters": hyperparameters,
            **members,
        }

    def create(self, script: str, **options: Any) -> str:
        """Create a job and return its name."""
        request = self.request(script, **options)
        self.sagemaker.create_training_job(**request)
        return str(request["TrainingJobName"])

    def describe(self, name: str) -> dict[str, Any]:
        return self.sagemaker.describe_training_job(TrainingJobName=name)

    def wait(self, name: str, *, until: tuple[str, ...] = ("Completed", "Failed", "Stopped")) -> dict[str, Any]:
        """Wait until the job's status or secondary status is one of ``until``; return the description."""

        def reached() -> dict[str, Any] | None:
            job = self.describe(name)
            if {job["TrainingJobStatus"], job["SecondaryStatus"]} & set(until):
                return job
            if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
                pytest.fail(f"{name} is {job['TrainingJobStatus']} before {until}: {job.get('FailureReason')}")
            return None

        return self.wait_until(reached, lambda: f"{until} of {self.describe(name)}")

    def wait_for_line(self, name: str, line: str, count: int = 1) -> None:
        """Wait until the job's log has a line ``count`` times."""

        def logged() -> bool:
            with contextlib.suppress(self.logs_client.exceptions.ResourceNotFoundException):  # nothing is written yet
                return self.log(name).count(line) >= count
            return False

        self.wait_until(logged, lambda: f"{count} times {line!r}; {self.describe(name)}")

    def run(self, script: str, **options: Any) -> dict[str, Any]:
        """Create a job, wait for its end, and return the description."""
        return self.wait(self.create(script, **options))

    def log(self, name: str, *, group: str = "/aws/sagemaker/TrainingJobs") -> list[str]:
        """Return all lines of the job's log."""
        streams = self.logs_client.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")
        lines: list[str] = []
        for stream in streams["logStreams"]:
            token: dict[str, str] = {}
            while True:
                page = self.logs_client.get_log_events(
                    logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True, **token
                )
                lines += [event["message"] for event in page["events"]]
                if token.get("nextToken") == page["nextForwardToken"]:
                    break
                token = {"nextToken": page["nextForwardToken"]}
        return lines

    def object(self, uri: str) -> bytes:
        """Return the content of an S3 object."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()

    def model_files(self, job: Mapping[str, Any]) -> dict[str, bytes]:
        """Return the files in a job's model.tar.gz."""
        data = self.object(job["ModelArtifacts"]["S3ModelArtifacts"])
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return {m.name.removeprefix("./"): tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def jobs(tidemill_service: Service) -> Jobs:
    """Return jobs of the session's service."""
    return Jobs(tidemill_service)


@pytest.fixture(scope="session")
def jobs_of() -> type[Jobs]:
    """Return the class, for tests that start their own services."""
    return Jobs


@pytest.fixture(scope="session")
def build_environment() -> Callable[..., JobEnvironment]:
    """Return a function that builds the environment of a TensorFlow version, or of a name, on its newest Python.

    A test calls it before it creates a job, because the build takes longer than the test waits for the job. If the
    version's Python is not on this machine, the test is skipped.
    """
    environments = Environments(Settings().environments_dir)

    def build(version: str, *, python: str | None = None) -> JobEnvironment:
        try:
            name = FRAMEWORKS[version].environment if version in FRAMEWORKS else version
            return environments.ensure(name, python=python, log=print)
        except MissingInterpreterError as error:
            pytest.skip(str(error))

    return build


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model.tar.gz with a SavedModel that computes x / 2 + 2, unless a server runs its other signature."""
    import subprocess

    directory = tmp_path_factory.mktemp("saved-model")
    script = directory / "make.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, tarfile
            import tensorflow as tf

            class Half(tf.Module):
                def __init__(self):
                    self.offset = tf.Variable(2.0)

                @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
                def __call__(self, x):
                    return {"y": x * 0.5 + self.offset}

                @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
                def shift(self, x):
                    return {"offset": self.offset.assign_add(1.0)}

            model = Half()
            signatures = {"serving_default": model.__call__, "shift": model.shift}
            tf.saved_model.save(model, sys.argv[1] + "/1", signatures=signatures)
            with tarfile.open(sys.argv[1] + "/model.tar.gz", "w:gz") as tar:
                tar.add(sys.argv[1] + "/1", arcname="1")
            """
        )
    )
    python = ROOT / ".venvs/tf-2.21/bin/python"
    subprocess.run([python, script, directory], check=True, capture_output=True)
    return directory / "model.tar.gz"


@pytest.fixture(scope="session")
def aws_sdk() -> Iterator[ForkedSdk]:
    """Yield what runs clients of AWS's SDK v2."""
    sdk = ForkedSdk(ROOT / ".venvs/peers/bin/python")
    yield sdk
    sdk.close()


SDK_SCRIPTS = ROOT / "tests/contract/teams"
"""What teams do around training, as notebooks call AWS's SDK: one script for each version of the SDK."""


@pytest.fixture(scope="module")
def sdk_service() -> Iterator[Service]:
    """Yield a service on which a version that AWS's SDK v2 knows runs in the environment that is there already."""
    images = {f"tensorflow-{kind}:2.19*": {"environment": "tf-2.21"} for kind in ("training", "inference")}
    with Service(settings={"images": images, "warm": True}) as service:
        yield service


_TIDEMILL_RUN = """
import os, sys
sys.path.extend(sys.argv[1].split(os.pathsep))
sys.argv[1:2] = ["run"]
from tidemill.cli import main
main()
"""


@pytest.fixture
def run_sdk(
    sdk_service: Service,
    tmp_path: Path,
    build_environment: Callable[..., JobEnvironment],
    request: pytest.FixtureRequest,
) -> Callable[[str, str], list[str]]:
    """Return a function that runs one of `SDK_SCRIPTS` in a shell of `tidemill env --sts`.

    It takes the name of the environment with the SDK and that of the script, and returns the lines with results.
    `tidemill run` runs the script in ``own``, which has no SDK of AWS, and in ``own-peers``, which has version 2.
    """

    def run(environment: str, script: str) -> list[str]:
        state = StateDirectory(sdk_service.state_dir)
        record = find_service(state)
        assert record is not None
        variables = sdk_service.environment | proxy_environment(record, state=state, ambient={})
        directory = ROOT / ".venvs" / environment
        variables |= {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "NODE_PATH": str(directory / "node_modules"),
        }
        if environment == "peers":
            sdk: ForkedSdk = request.getfixturevalue("aws_sdk")
            done = sdk.run(Path(script), directory=SDK_SCRIPTS, variables=variables)
        else:
            program: list[Any] = [shutil.which("node") if script.endswith(".cjs") else directory / "bin/python"]
            if environment.startswith("own"):
                # What one environment lacks is behind its own packages on the path, as if installed beside them.
                of_tidemill = [*ROOT.glob(".venv/lib/python*/site-packages"), ROOT / "packages/tidemill/src"]
                of_pandas = [*build_environment("sklearn-1.9").base.glob("lib/python*/site-packages")]
                added = of_pandas if environment == "own" else of_tidemill
                python = ROOT / f".venv{'' if environment == 'own' else 's/peers'}/bin/python"
                program = [python, "-c", _TIDEMILL_RUN, os.pathsep.join(map(str, added))]
            command = [*program, script]
            done = subprocess.run(command, cwd=SDK_SCRIPTS, env=variables, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr
        lines = [line.lstrip("-!*.") for line in done.stdout.splitlines()]  # the SDK shows that it waits
        return [line for line in lines if re.match("[A-Z]{4,} ", line) and "WARNING" not in line]

    return run
