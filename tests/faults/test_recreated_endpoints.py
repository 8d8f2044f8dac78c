"""Delete an endpoint and create another of its name at once, as redeploy loops do, by boto3 on real servers."""

import contextlib
import io
import json
import subprocess
import tarfile
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemill.executors.directory import InstanceDirectory
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
WAIT = {"Delay": 1, "MaxAttempts": 90}


class Deployments:
    """Endpoints under one name whose model answers a number."""

    def __init__(self, service: Service, name: str, *, attempts: int = 3) -> None:
        session, config = service.boto3_session(), Config(retries={"total_max_attempts": attempts})
        self.sagemaker = session.client("sagemaker", config=config)
        self.runtime = session.client("sagemaker-runtime")
        self._s3 = session.client("s3")
        self._state_dir = service.state_dir
        self.name = name

    def prepare(self, number: int, archive: bytes) -> None:
        """Make the model and the configuration that answer ``number``."""
        name = f"{self.name}-{number}"
        self._s3.put_object(Bucket=BUCKET, Key=f"{name}/model.tar.gz", Body=archive)
        container = {
            "Image": "tensorflow-inference:2.21.0-cpu",
            "ModelDataUrl": f"s3://{BUCKET}/{name}/model.tar.gz",
        }
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {"VariantName": f"v{number}", "ModelName": name, "InstanceType": "local", "InitialInstanceCount": 1}
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def create(self, number: int, **members: Any) -> str:
        made = self.sagemaker.create_endpoint(
            EndpointName=self.name, EndpointConfigName=f"{self.name}-{number}", **members
        )
        return str(made["EndpointArn"])

    def delete(self) -> None:
        self.sagemaker.delete_endpoint(EndpointName=self.name)

    def describe(self) -> dict[str, Any]:
        return self.sagemaker.describe_endpoint(EndpointName=self.name)

    def await_service(self) -> None:
        self.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=self.name, WaiterConfig=WAIT)

    def await_deletion(self) -> None:
        self.sagemaker.get_waiter("endpoint_deleted").wait(EndpointName=self.name, WaiterConfig=WAIT)

    def predict(self) -> tuple[float, str]:
        """What the model answers, and the variant that answered."""
        reply = self.runtime.invoke_endpoint(
            EndpointName=self.name, ContentType="application/json", Body=b'{"instances": [5.0]}'
        )
        return json.loads(reply["Body"].read())["predictions"][0], reply["InvokedProductionVariant"]

    def live_instances(self) -> set[str]:
        """Ids of the instances whose shim lives."""
        found = set()
        for directory in InstanceDirectory.all_below(self._state_dir):
            spec = json.loads(directory.spec_file.read_text())
            shim = directory.read_run()
            if spec["job_name"] == self.name and shim is not None and shim.alive:
                found.add(directory.ref.job_id)
        return found


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory, root: Path) -> dict[int, bytes]:
    """model.tar.gz by the number that the model answers."""
    directory = tmp_path_factory.mktemp("constants")
    script = directory / "make.py"
    script.write_text(textwrap.dedent(MODEL))
    subprocess.run([root / ".venvs/tf-2.21/bin/python", script, directory], check=True, capture_output=True)
    return {number: _packed(directory / str(number)) for number in (1, 2)}


def _packed(directory: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(directory, arcname="1")
    return buffer.getvalue()


@pytest.fixture
def deployments(tidemill_service: Service, archives: dict[int, bytes]) -> Iterator[Deployments]:
    made = Deployments(tidemill_service, f"again-{uuid.uuid4().hex[:8]}")
    for number, archive in archives.items():
        made.prepare(number, archive)
    yield made
    try:
        made.delete()
    except ClientError as error:
        assert "Could not find" in str(error) or "being deleted" in str(error)


def test_an_endpoint_is_created_right_after_the_deletion_of_one_of_its_name(
    deployments: Deployments, wait_until: Callable[[Callable[[], Any], str], Any]
) -> None:
    arn = deployments.create(1, Tags=[{"Key": "of", "Value": "first"}])
    deployments.await_service()
    assert deployments.predict() == (1.0, "v1")
    first = deployments.live_instances()
    assert len(first) == 1
    deployments.delete()
    assert deployments.create(2, Tags=[{"Key": "of", "Value": "second"}]) == arn
    shown = deployments.describe()
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("Creating", f"{deployments.name}-2")
    deployments.await_service()
    assert deployments.predict() == (2.0, "v2")
    wait_until(lambda: not first & deployments.live_instances(), "the end of the first endpoint's server")
    assert len(deployments.live_instances()) == 1
    assert deployments.predict() == (2.0, "v2"), "the end of the old one did not take the new one along"
    assert deployments.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "of", "Value": "second"}]
    deployments.delete()
    deployments.await_deletion()
    assert not deployments.live_instances()


def test_a_name_can_be_deleted_and_created_again_many_times_in_a_row(
    deployments: Deployments, wait_until: Callable[[Callable[[], Any], str], Any]
) -> None:
    for turn in range(6):
        deployments.create(1 + turn % 2)
        with pytest.raises(ClientError, match="already existing"):
            deployments.create(1)
        if turn < 5:
            deployments.delete()
            with pytest.raises(ClientError, match="being deleted"):
                deployments.delete()
    deployments.await_service()
    assert deployments.predict() == (2.0, "v2")
    wait_until(lambda: len(deployments.live_instances()) == 1, "the end of all endpoints but the last")
    deployments.delete()
    deployments.await_deletion()
    wait_until(lambda: not deployments.live_instances(), "the end of the last server")


@pytest.mark.parametrize(
    ("point", "skipping"),
    [("control.endpoint.deleting", 0), ("control.endpoint.created", 1), ("control.endpoint.launched", 1)],
)
def test_a_server_killed_between_deletion_and_creation_mixes_nothing(
    point: str,
    skipping: int,
    archives: dict[int, bytes],
    tmp_path: Path,
    wait_until: Callable[[Callable[[], Any], str], Any],
) -> None:
    log = tmp_path / "faults.log"
    armed = {"TIDEMILL_FAULTS": f"{point}:exit:1:1:{skipping}", "TIDEMILL_FAULTS_LOG": str(log)}
    service = Service(state_dir=tmp_path / "state", variables=armed)
    try:
        service.start()
        before = Deployments(service, "again", attempts=1)
        for number, archive in archives.items():
            before.prepare(number, archive)
        before.create(1)
        before.await_service()
        first = before.live_instances()
        with contextlib.suppress(BotoCoreError, ClientError):  # the server may die under any of them
            before.delete()
            before.create(2)
        wait_until(lambda: service.pid is None, f"the server's death at {point}")
        assert log.read_text().split()[:2] == [point, "exit"]
        service.kill()
        again = Service(state_dir=tmp_path / "state")
        service = again
        again.start()
        after = Deployments(again, "again")
        if point == "control.endpoint.deleting":
            after.create(2)
        after.await_service()
        assert after.predict() == (2.0, "v2")
        wait_until(lambda: not first & after.live_instances(), "the end of the first endpoint's server")
        assert len(after.live_instances()) == 1
        assert after.predict() == (2.0, "v2")
        after.delete()
        after.await_deletion()
        assert not after.live_instances()
    finally:
        service._clean_up()
