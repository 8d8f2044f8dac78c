"""Endpoints under one name whose models each answer a number, by boto3 on real servers."""

import contextlib
import io
import json
import sqlite3
import subprocess
import tarfile
import textwrap
from pathlib import Path
from typing import Any

from botocore.config import Config

from tidemill.control.resources import ENDPOINT
from tidemill.core.hosting import Endpoint
from tidemill.instance.directory import InstanceDirectory
from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
BUCKET = "sagemaker-us-west-2-000000000000"
MODEL = """
    import sys
    import tensorflow as tf

    class Constant(tf.Module):
        def __init__(self, value):
            self.value = tf.Variable(value)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": x * 0.0 + self.value}

    for value in (1.0, 2.0):
        model = Constant(value)
        tf.saved_model.save(model, f"{sys.argv[1]}/{int(value)}", signatures=model.__call__)
"""
WAIT = {"Delay": 1, "MaxAttempts": 120}


class Deployments:
    """Endpoints under one name whose model answers a number."""

    def __init__(self, service: Service, name: str, *, attempts: int = 3) -> None:
        session, config = service.boto3_session(), Config(retries={"total_max_attempts": attempts})
        self.sagemaker = session.client("sagemaker", config=config)
        self.runtime = session.client("sagemaker-runtime")
        self._s3 = session.client("s3")
        self._state_dir = service.state_dir
        self.name = name

    def prepare(self, number: int, archive: bytes, *, instances: int = 1) -> None:
        """Create the model and the configuration that answer ``number``."""
        name = f"{self.name}-{number}"
        self._s3.put_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz", Body=archive)
        container = {
            "Image": "tensorflow-inference:2.21.0-cpu",
            "ModelDataUrl": f"s3://{BUCKET}/{name}/model.tar.gz",
        }
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {"ModelName": name, "InstanceType": "local", "InitialInstanceCount": instances}
        self.configure(number, {**variant, "VariantName": f"v{number}"})

    def configure(self, config: object, *variants: dict[str, Any], **members: Any) -> None:
        """Create a configuration with variants of prepared models."""
        self.sagemaker.create_endpoint_config(
            EndpointConfigName=f"{self.name}-{config}", ProductionVariants=variants, **members
        )

    def create(self, number: int, **members: Any) -> str:
        made = self.sagemaker.create_endpoint(
            EndpointName=self.name, EndpointConfigName=f"{self.name}-{number}", **members
        )
        return str(made["EndpointArn"])

    def update(self, config: object, **members: Any) -> None:
        self.sagemaker.update_endpoint(EndpointName=self.name, EndpointConfigName=f"{self.name}-{config}", **members)

    def delete(self) -> None:
        self.sagemaker.delete_endpoint(EndpointName=self.name)

    def describe(self) -> dict[str, Any]:
        return self.sagemaker.describe_endpoint(EndpointName=self.name)

    def await_service(self) -> None:
        self.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=self.name, WaiterConfig=WAIT)

    def await_deletion(self) -> None:
        self.sagemaker.get_waiter("endpoint_deleted").wait(EndpointName=self.name, WaiterConfig=WAIT)

    def predict(self, **members: Any) -> tuple[float, str]:
        """Return the model's answer, and the variant that answered."""
        reply = self.runtime.invoke_endpoint(
            EndpointName=self.name, ContentType="application/json", Body=b'{"instances": [5.0]}', **members
        )
        return json.loads(reply["Body"].read())["predictions"][0], reply["InvokedProductionVariant"]

    def kept_instances(self) -> set[str]:
        """Return the ids of the instances whose files still exist."""
        return {each.ref.job_id for each in InstanceDirectory.all_below(self._state_dir) if each.ml.exists()}

    def stored_instances(self) -> set[str]:
        """Return the ids of the instances in the endpoint's record, retiring ones included."""
        with contextlib.closing(sqlite3.connect(f"file:{self._state_dir}/state.db?mode=ro", uri=True)) as database:
            query = "SELECT document FROM records WHERE kind = ? AND name = ?"
            (document,) = database.execute(query, (ENDPOINT, self.name)).fetchone()
        return {each.job_id for each in Endpoint.from_document(json.loads(document)).instances}

    def live_instances(self) -> set[str]:
        """Return the ids of the instances whose shim is alive."""
        found = set()
        for directory in InstanceDirectory.all_below(self._state_dir):
            spec = json.loads(directory.spec_file.read_text())
            shim = directory.read_run()
            if spec["job_name"] == self.name and shim is not None and shim.alive:
                found.add(directory.ref.job_id)
        return found


def make_archives(python: Path, directory: Path) -> dict[int, bytes]:
    """Return model.tar.gz by the number that the model answers."""
    script = directory / "make.py"
    script.write_text(textwrap.dedent(MODEL))
    subprocess.run([python, script, directory], check=True, capture_output=True)
    return {number: _packed(directory / str(number)) for number in (1, 2)}


def _packed(directory: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(directory, arcname="1")
    return buffer.getvalue()
