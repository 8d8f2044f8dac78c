"""Leases over restarts of the service, by a clock that the test sets. The agents are calls of the test."""

from pathlib import Path

import pytest

from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.executors.cluster.lease_watch import LeaseWatch
from tidemill.executors.cluster.reports import UnknownInstance
from tidemill.instance.spec import InstanceRef, InstanceSpec, StreamName
from tidemill.store.logs.sink import SegmentSink

LEASE_S = 60.0
REF = InstanceRef("ab" * 16, 0)


class Services:
    """Services that follow each other on one state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now_s = 1000.0

    def start(self, *, is_reached: bool = True) -> ClusterInstances:
        started = ClusterInstances(
            self.root, logs=SegmentSink(self.root / "logs"), lease_s=LEASE_S, now_s=lambda: self.now_s
        )
        if is_reached:
            started.begin_leases()
        return started


@pytest.fixture
def services(tmp_path: Path) -> Services:
    """Return services of which the first has launched the instance `REF`, which has reported once."""
    made = Services(tmp_path)
    first = made.start()
    log = StreamName("jobs", "job")
    first.add(
        InstanceSpec(ref=REF, kind="training", job_name="job", hosts=("algo-1",), framework_version="2.21", log=log)
    )
    first.renew(REF, job_name="job")
    return made


def test_a_lease_begins_again_when_a_later_service_is_reached(services: Services) -> None:
    services.now_s += 10 * LEASE_S
    later = services.start(is_reached=False)
    watch = LeaseWatch(later.lease_end_s, now_s=lambda: services.now_s)
    watch.add(REF)
    for _ in range(3):  # a start may take longer than a lease
        assert later.status(REF).running
        assert watch.ended() == set()
        services.now_s += 2 * LEASE_S
    later.begin_leases()
    services.now_s += LEASE_S - 1
    assert watch.ended() == set()
    later.renew(REF, job_name="job")
    services.now_s += LEASE_S - 1
    assert later.status(REF).running
    assert watch.ended() == set()
    services.now_s += 1
    assert not later.status(REF).running
    assert watch.ended() == {REF}


def test_an_instance_that_does_not_report_to_a_later_service_is_lost_after_a_lease(services: Services) -> None:
    later = services.start()
    services.now_s += LEASE_S
    assert not later.status(REF).running
    with pytest.raises(UnknownInstance, match="has ended"):
        later.renew(REF, job_name="job")


def test_an_instance_that_was_lost_stays_lost_for_later_services(services: Services) -> None:
    second = services.start()
    services.now_s += LEASE_S
    assert not second.status(REF).running, "the job may start its next attempt now"
    third = services.start(is_reached=False)
    assert not third.status(REF).running
    third.begin_leases()
    assert not third.status(REF).running
    with pytest.raises(UnknownInstance, match="has ended"):
        third.renew(REF, job_name="job")
