"""Updates of endpoints under load and under kill -9 of the service, by boto3 on real servers."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from deployments import WAIT, Deployments

from tidemill.testing import Service, ServiceDied

WaitUntil = Callable[[Callable[[], Any], str], Any]
CLIENTS = 4


class Load:
    """Clients that invoke an endpoint in a loop, and record the answers and every failure."""

    def __init__(self, deployments: Deployments, service: Service) -> None:
        session, config = service.boto3_session(), Config(retries={"total_max_attempts": 1})
        clients = [session.client("sagemaker-runtime", config=config) for _ in range(CLIENTS)]
        self._name = deployments.name
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(client,)) for client in clients]
        self.answers: Counter[float] = Counter()
        self.failures: list[str] = []

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _work(self, client: Any) -> None:
        while not self._done.is_set():
            try:
                reply = client.invoke_endpoint(
                    EndpointName=self._name, ContentType="application/json", Body=b'{"instances": [5.0]}'
                )
                self.answers[json.loads(reply["Body"].read())["predictions"][0]] += 1
            except Exception as error:  # noqa: BLE001 - every kind counts
                self.failures.append(repr(error))
            self._done.wait(0.01)  # leaves CPU for the servers


def test_no_request_fails_while_an_endpoint_is_updated_back_and_forth(
    deployments: Deployments, tidemill_service: Service, wait_until: WaitUntil
) -> None:
    deployments.create(1)
    deployments.await_service()
    with Load(deployments, tidemill_service) as load:
        for number in (2, 1):
            before, seen = deployments.live_instances(), load.answers[float(number)]
            deployments.update(number)
            shown = deployments.describe()
            assert shown["EndpointStatus"] == "Updating"
            assert shown["PendingDeploymentSummary"]["EndpointConfigName"] == f"{deployments.name}-{number}"
            deployments.await_service()
            assert deployments.describe()["EndpointConfigName"] == f"{deployments.name}-{number}"
            assert deployments.predict() == (float(number), f"v{number}")
            wait_until(lambda: not before & deployments.live_instances(), "the end of the old instance")  # noqa: B023
            wait_until(lambda: load.answers[float(number)] > seen + 20, "answers of the new model")  # noqa: B023
    assert load.failures == []
    assert len(deployments.live_instances()) == 1


def test_a_failing_update_is_rolled_back_with_a_reason(
    deployments: Deployments, archives: dict[int, bytes], tidemill_service: Service, wait_until: WaitUntil
) -> None:
    deployments.create(1)
    deployments.await_service()
    serving = deployments.live_instances()
    deployments.prepare(3, b"this is no archive")
    with Load(deployments, tidemill_service) as load:
        deployments.update(3)
        deployments.sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=deployments.name, WaiterConfig=WAIT)
        wait_until(lambda: deployments.live_instances() == serving, "the end of what did not come up")
    assert load.failures == []
    shown = deployments.describe()
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("InService", f"{deployments.name}-1")
    assert "InvalidArchive" in shown["FailureReason"]
    assert deployments.predict() == (1.0, "v1")
    deployments.update(2)
    deployments.await_service()
    assert "FailureReason" not in deployments.describe()


def test_variants_share_the_requests_by_weight_and_a_resize_keeps_instances(
    deployments: Deployments, tidemill_service: Service, wait_until: WaitUntil
) -> None:
    name = deployments.name
    both = [
        {"VariantName": f"v{number}", "ModelName": f"{name}-{number}", "InstanceType": "local",
         "InitialInstanceCount": 1, "InitialVariantWeight": weight}
        for number, weight in ((1, 3.0), (2, 1.0))
    ]  # fmt: skip
    deployments.configure("both", *both)
    deployments.create("both")
    deployments.await_service()
    assert Counter(deployments.predict()[1] for _ in range(20)) == {"v1": 15, "v2": 5}
    assert deployments.predict(TargetVariant="v2") == (2.0, "v2")
    first = deployments.live_instances()
    with Load(deployments, tidemill_service) as load:
        deployments.sagemaker.update_endpoint_weights_and_capacities(
            EndpointName=name,
            DesiredWeightsAndCapacities=[
                {"VariantName": "v1", "DesiredWeight": 0.0},
                {"VariantName": "v2", "DesiredWeight": 1.0, "DesiredInstanceCount": 2},
            ],
        )
        v1, v2 = deployments.describe()["ProductionVariants"]
        assert (v1["CurrentWeight"], v1["DesiredWeight"]) == (3.0, 0.0)
        assert (v2["CurrentInstanceCount"], v2["DesiredInstanceCount"]) == (1, 2)
        deployments.await_service()
    assert load.failures == []
    assert {deployments.predict() for _ in range(6)} == {(2.0, "v2")}
    assert deployments.predict(TargetVariant="v1") == (1.0, "v1")
    grown = deployments.live_instances()
    assert first < grown, "what ran runs on"
    assert len(grown) == 3
    deployments.sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=name, DesiredWeightsAndCapacities=[{"VariantName": "v2", "DesiredInstanceCount": 1}]
    )
    deployments.await_service()
    wait_until(lambda: deployments.live_instances() == first, "the end of the instance that came last")


SCALING_POINTS = ["control.scaling.decided", "control.scaling.begun"]


@pytest.mark.matrix
def test_instances_are_added_and_removed_by_themselves_whichever_step_the_service_died_at(
    updated_state: Path, archives: dict[int, bytes], tmp_path: Path, wait_until: WaitUntil
) -> None:
    target = {
        "ServiceNamespace": "sagemaker",
        "ResourceId": "endpoint/scaled/variant/v1",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }
    with serving(updated_state) as service:
        deployments = Deployments(service, "scaled")
        deployments.prepare(1, archives[1])
        deployments.create(1)
        deployments.await_service()
    (first,) = deployments.stored_instances()
    for point in SCALING_POINTS:
        log = tmp_path / f"{point}.log"
        armed = {"TIDEMILL_FAULTS": f"{point}:exit:1:1:0", "TIDEMILL_FAULTS_LOG": str(log)}
        dying = Service(state_dir=updated_state, variables=armed)
        # It may die during the call; with a target of the service before, already before it answers.
        with contextlib.suppress(BotoCoreError, ClientError, ServiceDied):
            dying.start()
            client = dying.boto3_session().client(
                "application-autoscaling", config=Config(retries={"total_max_attempts": 1})
            )
            client.register_scalable_target(**target, MinCapacity=2, MaxCapacity=3)
        wait_until(lambda: dying.pid is None, f"the service's death at {point}")  # noqa: B023
        assert log.read_text().split()[:2] == [point, "exit"]
        dying.kill()
    with serving(updated_state) as service:
        deployments, client = Deployments(service, "scaled"), service.boto3_session().client("application-autoscaling")

        def last() -> tuple[str, str]:
            newest = client.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"][0]
            return newest["Description"].rpartition(" ")[2], newest["StatusCode"]

        wait_until(lambda: last() == ("2.", "Successful"), "the second instance")
        assert len(deployments.live_instances()) == 2
        with Load(deployments, service) as load:
            client.register_scalable_target(**target, MinCapacity=1, MaxCapacity=1)
            wait_until(lambda: last() == ("1.", "Successful"), "the first instance alone")
            wait_until(lambda: deployments.live_instances() == {first}, "the end of the second instance")
            answered = load.answers[1.0]
            wait_until(lambda: load.answers[1.0] > answered + 20, "answers of the first instance")
        assert load.failures == []
        assert len(client.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"]) == 2


POINTS = [
    "control.endpoint.updating",
    "control.endpoint.launched",
    "control.endpoint.warmed",
    "control.endpoint.swapped",
    "control.endpoint.drained",
    "control.endpoint.ended",
    "control.endpoint.retired",
]


@pytest.fixture
def updated_state(tmp_path: Path) -> Iterator[Path]:
    """Yield a state directory that the services of a test use one after the other."""
    state_dir = tmp_path / "state"
    yield state_dir
    Service(state_dir=state_dir)._clean_up()


@contextlib.contextmanager
def serving(state_dir: Path) -> Iterator[Service]:
    """Yield a service that leaves its endpoints running at the end of the block."""
    service = Service(state_dir=state_dir)
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.mark.parametrize("points", [POINTS[::3], pytest.param(POINTS, marks=pytest.mark.matrix)], ids=["some", "all"])
def test_an_update_is_finished_by_the_next_service_whichever_step_the_last_one_died_at(
    points: list[str], updated_state: Path, archives: dict[int, bytes], tmp_path: Path, wait_until: WaitUntil
) -> None:
    with serving(updated_state) as service:
        deployments = Deployments(service, "steps")
        for number, archive in archives.items():
            deployments.prepare(number, archive)
        deployments.create(1)
        deployments.await_service()
    for turn, point in enumerate(points):
        number, log = 2 - turn % 2, tmp_path / f"{turn}.log"
        # The service first passes the launch of the instance that already serves.
        skip = 1 if point == "control.endpoint.launched" else 0
        armed = {"TIDEMILL_FAULTS": f"{point}:exit:1:1:{skip}", "TIDEMILL_FAULTS_LOG": str(log)}
        dying = Service(state_dir=updated_state, variables=armed)
        with contextlib.suppress(BotoCoreError, ClientError, ServiceDied):  # it may die during the call, or earlier
            dying.start()
            Deployments(dying, "steps", attempts=1).update(number)
        wait_until(lambda: dying.pid is None, f"the service's death at {point}")  # noqa: B023
        assert log.read_text().split()[:2] == [point, "exit"]
        dying.kill()
        with serving(updated_state) as service:
            after = Deployments(service, "steps")
            if turn == len(points) - 1:
                after.update(3 - number)
                after.await_service()
                number = 3 - number
            else:
                after.await_service()
            assert after.predict() == (float(number), f"v{number}"), (point, after.describe())
            # The files go first: a service that stops before the record follows leaves the next one that to do, and it
            # would pass the last points before its own update.
            wait_until(lambda: len(after.stored_instances()) == 1, "the clean-up of all but one")  # noqa: B023
            assert len(after.kept_instances()) == 1
            assert after.predict() == (float(number), f"v{number}"), point
