"""The driver of endpoints against a real store: a fault of the service's own is told, and leaves nothing stuck."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.endpoints import EndpointDriver
from tidemill.control.hosting import ENDPOINT
from tidemill.control.resources import endpoint_record
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Endpoint, EndpointStatus
from tidemill.executors.base import InstanceRef, InstanceSpec, InstanceStatus, Isolation, StopReason
from tidemill.store.database import Database
from tidemill.store.records import SqlRecordStore
from tidemill.store.schema import metadata

REF = InstanceRef("00ff", 0)


class BreakingExecutor:
    """Instances that never come up, and calls that fail for as long as a test says."""

    isolation = Isolation.PLAIN

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.failed: list[str] = []
        self.launched: set[InstanceRef] = set()
        self.reaped: list[str] = []
        self.news: Callable[[InstanceRef], object] = lambda _: None

    def _pass(self, call: str) -> None:
        if call in self.broken:
            self.failed.append(call)
            raise RuntimeError(f"{call} is broken")

    def launch(self, spec: InstanceSpec) -> None:
        self._pass("launch")
        self.launched.add(spec.ref)

    def relaunch(self, ref: InstanceRef) -> None:
        self._pass("relaunch")

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        if ref in self.launched:
            self._pass("observe")
        return InstanceStatus(launched=ref in self.launched, running=ref in self.launched, phases=(), exit=None)

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        self._pass("stop")
        self.launched.discard(ref)
        self.news(ref)

    def kill(self, ref: InstanceRef) -> None:
        raise AssertionError("nothing here kills")

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        return set()

    def socket_path(self, ref: InstanceRef) -> Path:
        raise AssertionError("no server is ever asked")

    def reap(self, job_id: str) -> None:
        self._pass("reap")
        self.reaped.append(job_id)


class Planner:
    """Specs of nothing."""

    def plan_endpoint(self, endpoint: Endpoint, index: int) -> InstanceSpec:
        return InstanceSpec(
            ref=InstanceRef(endpoint.instance_id, index),
            kind="endpoint",
            job_name=endpoint.name,
            hosts=("algo-1",),
            framework_version="2.21",
            log_directory=Path("/nowhere"),
        )


class Stage:
    """One endpoint and its driver."""

    def __init__(self, database: Database) -> None:
        clock = SystemClock()
        self.clock = clock
        self.records = SqlRecordStore(database, clock=clock)
        self.executor = BreakingExecutor()
        self.driver = EndpointDriver(
            self.records,
            self.executor,
            planner=Planner(),  # type: ignore[arg-type]
            clock=clock,
        )

    async def create(self) -> None:
        loop = asyncio.get_running_loop()
        self.executor.news = lambda ref: loop.call_soon_threadsafe(self.driver.changed, ref)
        endpoint = Endpoint(
            name="digits",
            arn="arn",
            config_name="digits",
            instance_id=REF.job_id,
            variant={},
            model={},
            log_streams=("primary/0",),
            created_ms=self.clock.now_ms(),
        )
        await self.records.insert(endpoint_record(endpoint))
        self.driver.wake(endpoint)

    async def delete(self) -> None:
        record = await self.records.update(
            ENDPOINT, "digits", lambda now: endpoint_record(replace(_read(now), status=EndpointStatus.DELETING))
        )
        self.driver.wake(_read(record))

    def endpoint(self) -> Endpoint | None:
        record = self.records.get(ENDPOINT, "digits")
        return _read(record) if record else None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    async def fails(self) -> Endpoint:
        def failed() -> bool:
            endpoint = self.endpoint()
            return endpoint is not None and endpoint.status is EndpointStatus.FAILED

        await self.until(failed)
        endpoint = self.endpoint()
        assert endpoint is not None
        return endpoint


def _read(record: Any) -> Endpoint:
    return Endpoint.from_document(record.document)


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with Database.open(tmp_path / "state.db", metadata=metadata) as database:
        yield database


@pytest.mark.parametrize("call", ["launch", "observe"])
def test_a_fault_of_our_own_fails_the_endpoint_with_its_reason_and_lets_it_be_deleted(
    call: str, database: Database
) -> None:
    async def run() -> None:
        stage = Stage(database)
        stage.executor.broken = {call}
        await stage.create()
        failed = await stage.fails()
        assert failed.failure_reason == f"InternalServerError: RuntimeError: {call} is broken"
        stage.executor.broken = set()
        await stage.delete()
        await stage.until(lambda: stage.endpoint() is None)
        assert stage.executor.reaped == [REF.job_id]
        assert not stage.executor.launched
        await stage.driver.close()

    asyncio.run(run())


def test_a_deletion_that_meets_a_fault_is_tried_again(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.endpoints._LOOK_S", 0.01)

    async def run() -> None:
        stage = Stage(database)
        await stage.create()
        await stage.until(lambda: REF in stage.executor.launched)
        stage.executor.broken = {"reap"}
        await stage.delete()
        await stage.until(lambda: len(stage.executor.failed) >= 3)
        endpoint = stage.endpoint()
        assert endpoint is not None
        assert endpoint.status is EndpointStatus.DELETING
        stage.executor.broken = set()
        await stage.until(lambda: stage.endpoint() is None)
        await stage.driver.close()

    asyncio.run(run())
