"""Two services on one PostgreSQL and one state directory: one leads, the other forwards to it and takes over."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from tidemill.server.standby import Predecessor, end_predecessor
from tidemill.server.state import StateDirectory
from tidemill.store.database.postgresql.lead import Lead
from tidemill.testing import Service, ServiceDied

if TYPE_CHECKING:
    from postgresql_server import PostgresqlServer

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


@pytest.fixture
def pair(postgresql: "PostgresqlServer", tmp_path: Path) -> Iterator[list[Service]]:
    """Two services, each the standby of the other; the first leads."""
    url = postgresql.empty_database()
    services = [Service(state_dir=tmp_path / "s", settings={"database_url": url, "standby": True}) for _ in range(2)]
    with services[0], services[1]:
        yield services


def client(service: Service, name: str = "sagemaker") -> Any:
    """Return a client that calls this service, whichever of the two leads."""
    keys = json.loads((service.state_dir / "keys.json").read_text())
    session = boto3.Session(keys["access_key_id"], keys["secret_access_key"], region_name="us-east-1")
    config = Config(retries={"total_max_attempts": 10, "mode": "standard"}, read_timeout=20)
    return session.client(name, endpoint_url=service.url, config=config)


def create_model(service: Service, name: str) -> None:
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
    client(service).create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)


def models(service: Service) -> list[str]:
    found = client(service).list_models(SortBy="Name", SortOrder="Ascending")["Models"]
    return [each["ModelName"] for each in found]


def takeover(service: Service) -> str:
    """Return why a service took the lead over the last time."""
    (*_, line) = (line for line in service.log.splitlines() if "standby.takes_over" in line)
    return line.partition("reason=")[2].strip("'\"")


def test_the_second_service_answers_through_the_first_and_follows_its_death(pair: list[Service]) -> None:
    first, second = pair
    assert first.url != second.url
    create_model(second, "through-the-second")
    content = os.urandom(5 << 20)
    s3 = client(second, "s3")
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="key", Body=content)
    assert models(first) == ["through-the-second"]
    first.kill()
    create_model(second, "after-the-death")
    assert models(second) == ["after-the-death", "through-the-second"]
    assert s3.get_object(Bucket="data", Key="key")["Body"].read() == content
    assert takeover(second) == "its process has ended", "nothing else had to be waited for"
    # At the first service's address, jobs and clients now reach the second service.
    assert models(first) == ["after-the-death", "through-the-second"]


@pytest.mark.parametrize(
    ("gave_back", "is_over", "lives_s", "status"),
    [(True, True, 1.5, 0), (False, True, 60.0, -signal.SIGKILL), (False, False, 1.5, 0)],
)
def test_a_predecessor_that_gave_the_lead_back_has_time_to_exit_and_one_that_hangs_is_killed(
    gave_back: bool, is_over: bool, lives_s: float, status: int, tmp_path: Path
) -> None:
    state = StateDirectory(tmp_path)
    program = "import pathlib, sys, time; from tidemill.server.state import StateDirectory\n"
    program += f"with StateDirectory(pathlib.Path(sys.argv[1])).locked(): print(flush=True); time.sleep({lives_s})"
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as predecessor:
        assert predecessor.stdout is not None
        predecessor.stdout.readline()
        end_predecessor(Predecessor(Lead(1, 0, ended=gave_back), state.holder(), lambda: is_over))
        assert predecessor.wait() == status


def test_a_hanging_leader_is_replaced_and_makes_no_more_changes(pair: list[Service]) -> None:
    first, second = pair
    create_model(first, "before")
    assert first.pid is not None
    os.kill(first.pid, signal.SIGSTOP)
    create_model(second, "after")
    assert models(second) == ["after", "before"]
    assert takeover(second) == "it is silent"
    with pytest.raises(ServiceDied):
        first.stop()


def test_after_a_normal_exit_the_standby_leads_and_the_first_becomes_the_standby(pair: list[Service]) -> None:
    first, second = pair
    create_model(first, "one")
    first.stop()
    create_model(second, "two")
    first.start()
    second.kill()
    assert models(first) == ["one", "two"]
    create_model(first, "three")
    assert second.log.count("standby.takes_over") == 3


@pytest.mark.parametrize(
    "pause_s", [pytest.param(0.0, marks=pytest.mark.matrix), 0.3, pytest.param(0.6, marks=pytest.mark.matrix)]
)
def test_a_service_can_be_stopped_during_a_takeover(pause_s: float, pair: list[Service]) -> None:
    first, second = pair
    first.stop()
    time.sleep(pause_s)
    second.stop()


def test_a_standby_needs_a_shared_database() -> None:
    with pytest.raises(ServiceDied, match="set database_url"), Service(settings={"standby": True}):
        pass
