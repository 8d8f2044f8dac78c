"""Delete an endpoint and immediately create another of its name, as redeploy loops do, by boto3 on real servers."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from deployments import Deployments

from tidemill.testing import Service


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
        with contextlib.suppress(BotoCoreError, ClientError):  # the server may die during any of them
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
