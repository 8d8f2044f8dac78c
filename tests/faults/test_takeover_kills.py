"""Two services on one PostgreSQL, killed at random moments while jobs are created and run: no acknowledged job is lost,
and none runs twice.
"""

import json
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tidemill.server.client import own_client
from tidemill.testing import Service

sys.path.insert(0, str(Path(__file__).parents[2] / "packages/tidemill/tests/doubles"))
from postgresql_server import PostgresqlServer

CLIENTS = 3
PATIENCE_S = 60.0  # time limit of a client, far above the duration of a takeover
SCRIPT = """
    import os, time
    print("RUN", os.getpid(), flush=True)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w") as file:
        file.write("w" * 1000)
    time.sleep(0.5)
    print("END", flush=True)
"""


@pytest.fixture
def pair(tmp_path: Path, need: Callable[[str], None]) -> Iterator[list[Service]]:
    """Two services, each the standby of the other; the first leads."""
    need("postgresql")
    database = PostgresqlServer()
    try:
        database.start()
        settings = {"database_url": database.empty_database(), "standby": True, "stop_grace_s": 5}
        services = [Service(state_dir=tmp_path / "s", settings=settings) for _ in range(2)]
        with services[0], services[1]:
            yield services
    finally:
        database.close()


def client_of(service: Service, name: str = "sagemaker") -> Any:
    """Return a client that uses this service only, and retries while no service leads."""
    keys = json.loads((service.state_dir / "keys.json").read_text())
    session = boto3.Session(keys["access_key_id"], keys["secret_access_key"], region_name="us-west-2")
    config = Config(retries={"total_max_attempts": 8, "mode": "standard"}, connect_timeout=5, read_timeout=20)
    return session.client(name, endpoint_url=service.url, config=config)


class Creator:
    """A client in a thread: creates a job, waits for its end, creates the next, alternating between the services."""

    def __init__(self, pair: list[Service], request: dict[str, Any], seed: int) -> None:
        self.acknowledged: list[str] = []
        self.error: BaseException | None = None
        self._clients = [client_of(each) for each in pair]
        self._request = request
        self._chance = random.Random(seed)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._create_for_ever)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _create_for_ever(self) -> None:
        try:
            while not self._ends.is_set():
                name = f"job-{uuid.uuid4().hex[:12]}"
                self._until_answered(lambda client, name=name: self._create(client, name))
                self.acknowledged.append(name)
                while self._until_answered(lambda client, name=name: self._runs(client, name)):
                    time.sleep(0.2)
        except BaseException as error:  # noqa: BLE001  # raised again where the test can see it
            self.error = error

    def _create(self, client: Any, name: str) -> None:
        try:
            client.create_training_job(**{**self._request, "TrainingJobName": name})
        except ClientError as error:
            # An earlier try was committed, but its answer was lost.
            if error.response["Error"]["Code"] != "ResourceInUse":
                raise

    def _runs(self, client: Any, name: str) -> bool:
        return client.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "InProgress"

    def _until_answered(self, call: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call(self._chance.choice(self._clients))
            except (BotoCoreError, ClientError) as error:
                is_final = isinstance(error, ClientError) and error.response["ResponseMetadata"]["HTTPStatusCode"] < 500
                if is_final or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def kill_and_revive(pair: list[Service], chance: random.Random) -> None:
    """Kill one of the services (mostly the leader) or both, and start them again."""
    leader = json.loads((pair[0].state_dir / "service.json").read_text())["pid"]
    pair = sorted(pair, key=lambda each: each.pid != leader)
    victims = chance.choices([pair[:1], pair[1:], pair], weights=(6, 2, 2))[0]
    for each in victims:
        each.kill()
    time.sleep(chance.choice((0, 0, 1, 3)))
    for each in victims:
        each.start()


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.matrix)])
def test_no_job_is_lost_or_runs_twice(kills: int, pair: list[Service], jobs_of: Any, oracle_of: Any) -> None:
    chance = random.Random(kills)
    jobs = jobs_of(pair[0])
    jobs.sagemaker, jobs.s3, jobs.logs_client = (client_of(pair[0], name) for name in ("sagemaker", "s3", "logs"))
    request = jobs.request(SCRIPT)
    creators = [Creator(pair, request, seed) for seed in range(CLIENTS)]
    try:
        for _ in range(kills):
            time.sleep(chance.uniform(0.2, 4))
            kill_and_revive(pair, chance)
    finally:
        for each in creators:
            each.end()
    acknowledged = [name for each in creators for name in each.acknowledged]
    assert len(acknowledged) >= kills / 4
    assert pair[0].log.count("standby.takes_over") > kills / 4, "the lead has changed"
    oracle = oracle_of(jobs)
    for name in acknowledged:
        oracle.check(name, "Completed")
        log = jobs.log(name)
        assert sum(line.startswith("RUN ") for line in log) == 1, "the script ran once, no more and no less"
        assert len(log) == len(set(log)), "every line once"
        assert "END" in log
    print(f"{kills} kills, {len(acknowledged)} jobs, {pair[0].log.count('standby.takes_over')} takeovers")


@pytest.mark.matrix
def test_a_viewer_hears_what_changes_through_any_service_and_of_a_takeover(pair: list[Service], jobs_of: Any) -> None:
    leader = json.loads((pair[0].state_dir / "service.json").read_text())["pid"]
    first, second = sorted(pair, key=lambda each: each.pid != leader)
    sagemaker, viewer, jobs = client_of(first), own_client_of(second), jobs_of(first)
    models = [{"Kind": "model"}]

    def create(client: Any, name: str) -> None:
        container = {"Image": "x/tensorflow-inference:2.19.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
        role = "arn:aws:iam::000000000000:role/SageMakerRole"
        client.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=role)

    token = viewer.wait_for_changes(Interests=models)["Token"]
    create(sagemaker, "a")
    heard = viewer.wait_for_changes(Interests=models, Token=token)
    assert heard["Changes"] == [{"Kind": "model", "Names": ["a"]}], "the standby asks the service that leads"
    first.kill()
    jobs.wait_until(lambda: _everything(viewer, models, heard["Token"]), "the second service leads")
    token = viewer.wait_for_changes(Interests=models)["Token"]
    create(client_of(second), "b")
    assert viewer.wait_for_changes(Interests=models, Token=token)["Changes"] == [{"Kind": "model", "Names": ["b"]}]
    first.start()


def own_client_of(service: Service) -> Any:
    keys = json.loads((service.state_dir / "keys.json").read_text())
    session = boto3.Session(keys["access_key_id"], keys["secret_access_key"], region_name="us-west-2")
    return own_client(session, service.url)


def _everything(viewer: Any, interests: list[dict[str, str]], token: str) -> bool:
    """Return whether a service that does not know the token says that anything may have changed."""
    try:
        return bool(viewer.wait_for_changes(Interests=interests, Token=token, WaitSeconds=1)["Everything"])
    except (BotoCoreError, ClientError):
        return False
