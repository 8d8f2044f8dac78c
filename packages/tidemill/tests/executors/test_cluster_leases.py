"""Leases over restarts of the service, by a clock that the test sets. The agents are calls of the test."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Table, func, select

from tidemill.core.instances import InstanceRef, StreamName
from tidemill.errors import ServiceUnavailable
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.executors.cluster.lease_watch import LeaseWatch
from tidemill.executors.cluster.reports import UnknownInstance
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.spec import InstanceSpec
from tidemill.store.database.base import Database
from tidemill.store.database.postgresql.database import PostgresqlDatabase
from tidemill.store.database.postgresql.succession import Succession
from tidemill.store.database.schema import leases, metadata, starts
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.leases import SqlLeaseRecords
from tidemill.store.logs.sink import SegmentSink

LEASE_S = 60.0
STEP_S = 1.0
REF = InstanceRef("ab" * 16, 0)
OTHER = InstanceRef("cd" * 16, 0)


class Services:
    """Services that follow each other on one state directory and one database."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        self.database = database
        self.now_s = 1000.0

    def start(self, *, is_reached: bool = True, lease_s: float = LEASE_S) -> ClusterInstances:
        """Start a service. An earlier one has been killed."""
        started = ClusterInstances(
            self.root,
            logs=SegmentSink(self.root / "logs"),
            leases=SqlLeaseRecords(self.database),
            lease_s=lease_s,
            now_s=lambda: self.now_s,
        )
        if is_reached:
            started.begin_leases()
        return started

    def run(self, service: ClusterInstances, seconds: float) -> None:
        """Let time pass; the service stores it at each step."""
        end_s = self.now_s + seconds
        while self.now_s + STEP_S <= end_s:
            self.now_s += STEP_S
            asyncio.run(service.store_time())
        self.now_s = end_s

    def count(self, table: Table) -> int:
        """Return the number of rows of a table."""
        query = select(func.count()).select_from(table)
        return self.database.read(lambda connection: connection.execute(query).scalar_one())


def spec_of(ref: InstanceRef) -> InstanceSpec:
    log = StreamName("jobs", "job")
    return InstanceSpec(ref=ref, kind="training", job_name="job", hosts=("algo-1",), framework_version="2.21", log=log)


def renew(service: ClusterInstances, ref: InstanceRef = REF) -> None:
    """Report as an agent does, and return when the service answers."""
    asyncio.run(service.renew(ref, session="job"))


@pytest.fixture(params=["sqlite", "postgresql"])
def open_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    """Return a function that opens the database; on PostgreSQL for a service that takes the lead over."""
    with ExitStack() as opened:
        if request.param == "sqlite":
            yield lambda: opened.enter_context(SqliteDatabase.open(tmp_path / "state.db", metadata=metadata))
            return
        url = request.getfixturevalue("postgresql").empty_database()

        def take_over() -> Database:
            Succession(url).clear()
            return opened.enter_context(PostgresqlDatabase.open(url, metadata=metadata))

        first = opened.enter_context(PostgresqlDatabase.open(url, metadata=metadata))
        databases = iter([first])
        yield lambda: next(databases, None) or take_over()


@pytest.fixture
def services(tmp_path: Path, open_database: Callable[[], Database]) -> Services:
    """Return services of which the first has launched the instance `REF`, which has reported once."""
    made = Services(tmp_path, open_database())
    first = made.start()
    first.add(spec_of(REF))
    renew(first)
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
    renew(later)
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
        renew(later)


def test_an_instance_that_was_lost_stays_lost_for_later_services(services: Services) -> None:
    second = services.start()
    services.now_s += LEASE_S
    assert not second.status(REF).running, "the job may start its next attempt now"
    third = services.start(is_reached=False)
    assert not third.status(REF).running
    third.begin_leases()
    assert not third.status(REF).running
    with pytest.raises(UnknownInstance, match="has ended"):
        renew(third)


def test_an_instance_is_lost_after_a_lease_in_which_many_services_were_reached(services: Services) -> None:
    for _ in range(5):
        service = services.start(is_reached=False)
        services.now_s += 3 * LEASE_S  # does not count: no agent can report
        service.begin_leases()
        services.run(service, 10)
        assert service.status(REF).running
    last = services.start(is_reached=False)
    watch = LeaseWatch(last.lease_end_s, now_s=lambda: services.now_s)
    watch.add(REF)
    assert watch.ended() == set()
    last.begin_leases()
    services.run(last, 9)
    assert last.status(REF).running
    services.run(last, 1)
    assert watch.ended() == {REF}, "the watch looks as soon as this lease may have ended"
    assert not last.status(REF).running
    with pytest.raises(UnknownInstance, match="has ended"):
        renew(last)


def test_a_lease_that_ended_as_its_service_was_killed_ends_in_the_next_start(services: Services) -> None:
    service = services.start()
    services.run(service, LEASE_S - 1)
    services.now_s += 1 - 1e-3
    asyncio.run(service.store_time())
    later = services.start(is_reached=False)
    assert later.status(REF).running
    later.begin_leases()
    services.now_s += 1e-2
    assert not later.status(REF).running


def test_a_renewal_by_a_later_service_is_a_whole_lease_for_the_services_after_it(services: Services) -> None:
    for _ in range(5):
        services.run(services.start(), 11)
    sixth = services.start()
    services.run(sixth, 3)
    renew(sixth)  # the agent may count on a whole lease from here
    services.run(sixth, 40)  # and on later renewals, which are not stored
    for _ in range(5):
        service = services.start()
        services.run(service, 11)
        assert service.status(REF).running
    last = services.start()
    services.run(last, 4)
    assert last.status(REF).running
    services.run(last, 1)
    assert not last.status(REF).running


def test_an_instance_that_reports_to_every_service_is_never_lost(services: Services) -> None:
    for _ in range(10):
        service = services.start()
        services.run(service, LEASE_S - 1)
        renew(service)
        services.run(service, 2)
        assert service.status(REF).running
        services.now_s += 10 * LEASE_S
    assert services.count(starts) == 1, "the starts that count for no lease are removed"


def test_a_renewal_is_stored_before_it_is_answered_and_once_per_service(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services.start()
    monkeypatch.setattr(services.database, "write", lambda *_: pytest.fail("only the first renewal waits for a write"))
    with pytest.raises(pytest.fail.Exception):
        renew(service)
    monkeypatch.undo()
    renew(service)
    monkeypatch.setattr(services.database, "write", lambda *_: pytest.fail("only the first renewal waits for a write"))
    renew(service)
    services.run(service, 3)  # nor is time stored while all instances report


def test_a_service_that_is_killed_within_a_step_does_not_count(services: Services) -> None:
    for _ in range(200):
        service = services.start()
        services.run(service, 0.9 * STEP_S)
        assert service.status(REF).running, "this is the price for a write per second at most"
    services.run(service, LEASE_S)
    assert not service.status(REF).running
    assert services.count(starts) == 1


def test_a_service_that_ends_by_itself_stores_the_rest_of_a_step(services: Services) -> None:
    async def run_for_half_a_step(service: ClusterInstances) -> None:
        keeping = asyncio.create_task(service.keep_time())
        await asyncio.sleep(0)
        services.now_s += 0.5 * STEP_S
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    for _ in range(119):
        service = services.start()
        asyncio.run(run_for_half_a_step(service))
    assert service.status(REF).running
    service = services.start()
    services.now_s += 0.5 * STEP_S
    assert not service.status(REF).running


def test_instances_that_report_together_are_stored_together(services: Services) -> None:
    refs = [InstanceRef(f"{number:032x}", 0) for number in range(300)]
    first = services.start()
    for ref in refs:
        first.add(spec_of(ref))
    second = services.start()
    services.run(second, 50)

    async def renew_all() -> None:
        await asyncio.gather(*(second.renew(ref, session="job") for ref in refs))

    asyncio.run(renew_all())
    third = services.start()
    services.run(third, 15)
    assert all(third.status(ref).running for ref in refs)
    assert not third.status(REF).running


def test_a_lease_keeps_the_length_with_which_its_agent_was_started(services: Services) -> None:
    service = services.start(lease_s=LEASE_S / 10)
    services.run(service, LEASE_S - 1)
    assert service.status(REF).running
    renew(service)
    services.run(service, LEASE_S - 1)
    assert service.status(REF).running
    services.run(service, 1)
    assert not service.status(REF).running


def test_an_instance_of_a_release_that_stored_no_leases_is_lost_like_others(services: Services) -> None:
    services.database.write_sync(lambda connection: connection.execute(leases.delete()) and None)
    services.database.write_sync(lambda connection: connection.execute(starts.delete()) and None)
    for _ in range(6):
        service = services.start(is_reached=False)
        service.adopt([REF])
        assert service.status(REF).running
        service.begin_leases()
        services.run(service, 10)
    assert not service.status(REF).running


def test_leases_without_instances_are_removed(services: Services) -> None:
    services.start().add(spec_of(OTHER))
    assert services.count(leases) == 2
    services.start().adopt([REF])
    assert services.count(leases) == 1
    service = services.start()
    service.end_job(REF.job_id)
    assert services.count(leases) == 0
    service.add(spec_of(OTHER))
    service.remove(OTHER)
    assert services.count(leases) == 0


@pytest.mark.parametrize("open_database", ["postgresql"], indirect=True)
def test_a_service_that_takes_over_counts_on_and_the_former_leader_renews_and_ends_nothing(
    services: Services, open_database: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.database.postgresql.database.LOCK_WAIT_S", 0.0)  # its successor has the lock
    leader = services.start()
    leader.add(spec_of(OTHER))
    services.run(leader, 40)
    services.database = open_database()  # the leader hangs
    successor = services.start()
    services.run(successor, 19)
    assert successor.status(REF).running
    renew(successor, OTHER)
    with pytest.raises(ServiceUnavailable, match="another service has taken the database over"):
        renew(leader)
    services.now_s += LEASE_S
    for ref in (REF, OTHER):
        with pytest.raises(ServiceUnavailable):
            leader.status(ref)  # to it all leases seem to have ended
    services.now_s -= LEASE_S
    third = services.start()
    assert third.status(OTHER).running, "the former leader has not ended the lease that its successor renewed"
    services.run(third, 1)
    assert not third.status(REF).running


def test_a_lease_that_ended_is_stored_before_its_end_is_known(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services.start()
    services.now_s += LEASE_S

    def refuse(*_: object) -> None:
        raise ServiceUnavailable("the disk is full")

    monkeypatch.setattr(services.database, "write_sync", refuse)
    with pytest.raises(ServiceUnavailable):
        service.status(REF)
    monkeypatch.undo()
    lease_file = InstanceDirectory.of(services.root, REF).path / "lease"
    assert lease_file.stat().st_mtime > 1.0
    assert not service.status(REF).running
    assert lease_file.stat().st_mtime == 1.0
