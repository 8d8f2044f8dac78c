"""kill -9 of the server in the middle of a change of several records: after the restart all changes exist, or none."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
BUCKET = "sagemaker-us-west-2-000000000000"
CONTAINER = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": f"s3://{BUCKET}/nothing"}
VARIANTS = [{"VariantName": "v", "ModelName": "digits", "InstanceType": "local", "InitialInstanceCount": 1}]
TAGS = [{"Key": "team", "Value": "vision"}, {"Key": "cost", "Value": "7"}]
KINDS = ("model", "endpoint-config", "endpoint", "training-job")

WaitUntil = Callable[[Callable[[], Any], str], Any]


class Victim:
    """A service that dies at a fault point, and its next start without one."""

    def __init__(self, directory: Path, jobs_of: Any, wait_until: WaitUntil) -> None:
        self._log = directory / "faults.log"
        self._state_dir = directory / "state"
        self._jobs_of = jobs_of
        self._wait_until = wait_until
        self.service = Service(state_dir=self._state_dir)

    def start(self, faults: str = "") -> None:
        armed = {"TIDEMILL_FAULTS": faults, "TIDEMILL_FAULTS_LOG": str(self._log)}
        self.service = Service(state_dir=self._state_dir, variables=armed if faults else {})
        self.service.start()
        self._jobs = self._jobs_of(self.service)
        # A request that fails because the server dies must not be retried: the retry would reach the next server.
        config = Config(retries={"total_max_attempts": 1})
        self.sagemaker = self.service.boto3_session().client("sagemaker", config=config)

    def dies_at(self, point: str, call: Callable[[], Any]) -> None:
        """Make a call during which the server kills itself at ``point``, and start the server again."""
        with pytest.raises((BotoCoreError, ClientError)):
            call()
        self._wait_until(lambda: self.service.pid is None, f"the server's death at {point}")
        assert self._log.read_text().split()[:2] == [point, "exit"]
        self.service.kill()
        self.start()

    def create(self, kind: str, **members: Any) -> str:
        """Create the resource ``digits`` of a kind, and return its ARN."""
        if kind == "model":
            made = self.sagemaker.create_model(
                ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER, **members
            )
            return str(made["ModelArn"])
        if kind == "endpoint-config":
            made = self.sagemaker.create_endpoint_config(
                EndpointConfigName="digits", ProductionVariants=VARIANTS, **members
            )
            return str(made["EndpointConfigArn"])
        if kind == "endpoint":
            made = self.sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits", **members)
            return str(made["EndpointArn"])
        request = self._jobs.request("print('RUN')", name="digits")
        return str(self.sagemaker.create_training_job(**request, **members)["TrainingJobArn"])

    def tags(self, kind: str) -> list[dict[str, str]] | None:
        """Return the tags of the resource; None if it does not exist."""
        arn = f"arn:aws:sagemaker:us-west-2:000000000000:{kind}/digits"
        try:
            return self.sagemaker.list_tags(ResourceArn=arn)["Tags"]
        except ClientError as error:
            assert "not find" in str(error) or "not found" in str(error)
            return None


@pytest.fixture
def victim(tmp_path: Path, jobs_of: Any, wait_until: WaitUntil) -> Iterator[Victim]:
    made = Victim(tmp_path, jobs_of, wait_until)
    try:
        yield made
    finally:
        made.service._clean_up()


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_killed_between_a_resource_and_its_tags_has_stored_neither(kind: str, victim: Victim) -> None:
    point, earlier = "store.record.written", KINDS.index(kind) if kind != "training-job" else 0
    victim.start(f"{point}:exit:1:1:{earlier}")
    for needed in KINDS[:earlier]:
        victim.create(needed)
    victim.dies_at(point, lambda: victim.create(kind, Tags=TAGS))
    assert victim.tags(kind) is None
    victim.create(kind)
    assert victim.tags(kind) == [], "no tags lay in wait for the next resource of that name"


@pytest.mark.parametrize(
    ("kind", "point"), [("training-job", "control.created"), ("endpoint", "control.endpoint.created")]
)
def test_a_server_killed_right_after_a_create_has_stored_resource_and_tags(
    kind: str, point: str, victim: Victim
) -> None:
    victim.start(f"{point}:exit")
    if kind == "endpoint":
        victim.create("model")
        victim.create("endpoint-config")
    victim.dies_at(point, lambda: victim.create(kind, Tags=TAGS))
    assert victim.tags(kind) == TAGS


def test_a_server_killed_in_the_middle_of_a_deletion_has_deleted_nothing(victim: Victim) -> None:
    point = "store.record.written"
    victim.start(f"{point}:exit:1:1:2")
    victim.create("model", Tags=TAGS)
    victim.dies_at(point, lambda: victim.sagemaker.delete_model(ModelName="digits"))
    assert victim.tags("model") == TAGS
    victim.sagemaker.delete_model(ModelName="digits")
    assert victim.tags("model") is None
    victim.create("model")
    assert victim.tags("model") == []
