"""The driver of endpoints with a real store: a fault of the service itself is reported, and nothing gets stuck."""

import asyncio
import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from separate_executor import SeparateExecutor

from tidemill.control.channels import reference
from tidemill.control.credentials import CREDENTIAL, Credentials, access_key_id
from tidemill.control.endpoints import EndpointDriver
from tidemill.control.hosting import ENDPOINT
from tidemill.control.resources import endpoint_record
from tidemill.control.server_keys import ServerKeys
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Instance, Variant
from tidemill.core.instances import InstanceRef, ObjectReference, StreamName
from tidemill.errors import MachinesBusy
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceStatus
from tidemill.services.sagemaker.hosting import endpoint_description
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.signing.credentials import Credential

REF = InstanceRef("00ff", 0)
MODEL = {"ExecutionRoleArn": "R", "PrimaryContainer": {"Image": "tensorflow-inference:2.21"}}


class BreakingExecutor(SeparateExecutor):
    """Instances that never become healthy, calls that fail and machines that are busy as long as a test wants."""

    def __init__(self, root: Path, **parts: Any) -> None:
        super().__init__(root, **parts)
        self.broken: set[str] = set()
        self.failed: list[str] = []
        self.busy = ""
        self.refused = self.observed = 0

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        self._pass("launch")
        if self.busy:
            self.refused += 1
            raise MachinesBusy(self.busy)
        super().launch(specs)

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        status = super().observe(ref)
        if status.launched:
            self.observed += 1
            self._pass("observe")
        return status

    def reap(self, job_id: str, *, keep_files: bool = False) -> bool:
        self._pass("reap")
        return super().reap(job_id, keep_files=keep_files)

    def _pass(self, call: str) -> None:
        if call in self.broken:
            self.failed.append(call)
            raise RuntimeError(f"{call} is broken")


class Planner:
    """Plans specs of a model that only waits; or, without a model, of an instance that a test simulates."""

    def __init__(self, model: ObjectReference | None) -> None:
        self.model = model

    def plan_endpoint(
        self, endpoint: Endpoint, variant: Variant, instance: Instance, *, variables: Mapping[str, str]
    ) -> InstanceSpec:
        return InstanceSpec(
            ref=InstanceRef(instance.job_id, instance.index),
            kind="endpoint",
            job_name=endpoint.name,
            hosts=("algo-1",),
            framework_version="2.21",
            log=StreamName("endpoints", endpoint.name),
            model=self.model,
        )


class Stage:
    """One endpoint and its driver."""

    def __init__(self, database: Database, executor: BreakingExecutor, model: ObjectReference) -> None:
        clock = SystemClock()
        self.clock = clock
        self.records = SqlRecordStore(database, clock=clock)
        self.executor = executor
        self.planner = Planner(model)
        self.credentials = Credentials(Credential("AKIA", "s"), self.records, clock=clock)
        self.driver = EndpointDriver(
            self.records,
            self.executor,
            planner=self.planner,  # type: ignore[arg-type]
            keys=ServerKeys(self.credentials, service_variables={}),
            clock=clock,
        )

    async def create(self, *, serves: bool = False, ago_s: int = 0, limit_s: int | None = None) -> None:
        self.news = asyncio.create_task(self._forward_changes())
        now_ms = self.clock.now_ms() - ago_s * 1000
        instance = Instance(job_id=REF.job_id, log_stream="primary/0", created_ms=now_ms)
        variant = Variant(request={"VariantName": "primary"}, model=MODEL, instances=(instance,))
        starting = Deployment(config_name="digits", variants=(variant,), begun_ms=now_ms, limit_s=limit_s)
        endpoint = Endpoint(name="digits", arn="arn", endpoint_id="0e", created_ms=now_ms, starting=starting)
        if serves:
            endpoint = endpoint.made_ready(instance).promoted()
        await self.records.insert(endpoint_record(endpoint))
        self.driver.wake(endpoint)

    async def close(self) -> None:
        self.news.cancel()
        await self.driver.close()

    async def _forward_changes(self) -> None:
        while True:
            for ref in await self.executor.changed(timeout_s=60):
                self.driver.changed(ref)

    async def delete(self) -> None:
        record = await self.records.update(
            ENDPOINT, "digits", lambda now: endpoint_record(replace(_read(now), status=EndpointStatus.DELETING))
        )
        self.driver.wake(_read(record))

    def endpoint(self) -> Endpoint | None:
        record = self.records.get(ENDPOINT, "digits")
        return _read(record) if record else None

    def has_keys(self, ref: InstanceRef) -> bool:
        return self.credentials.lookup(access_key_id(ref.job_id)) is not None

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
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
def make_stage(tmp_path: Path) -> Iterator[Callable[[], Stage]]:
    """Yield a function that makes a stage, whose instances are removed when the test ends."""
    made: list[Stage] = []
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
        model = asyncio.run(_model(objects))

        def make() -> Stage:
            logs = SegmentSink(tmp_path / "logs")
            made.append(Stage(database, BreakingExecutor(tmp_path / "elsewhere", objects=objects, logs=logs), model))
            return made[-1]

        yield make
        for stage in made:
            stage.executor.broken = set()
            stage.executor.reap(REF.job_id)
            stage.executor.close()
        asyncio.run(objects.close())


async def _model(objects: ObjectStore) -> ObjectReference:
    buffer, script = io.BytesIO(), b"import signal; signal.pause()"
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("serve.py")
        member.size = len(script)
        archive.addfile(member, io.BytesIO(script))
    await objects.ensure_bucket("models")
    info = await objects.put_bytes("models", "model.tar.gz", buffer.getvalue())
    return reference(info, name="model.tar.gz")


@pytest.mark.parametrize("call", ["launch", "observe"])
def test_a_fault_of_our_own_fails_the_endpoint_with_its_reason_and_lets_it_be_deleted(
    call: str, make_stage: Callable[[], Stage]
) -> None:
    async def run() -> None:
        stage = make_stage()
        stage.executor.broken = {call}
        await stage.create()
        failed = await stage.fails()
        assert failed.failure_reason == f"InternalServerError: RuntimeError: {call} is broken"
        stage.executor.broken = set()
        await stage.delete()
        await stage.until(lambda: stage.endpoint() is None)
        assert set(stage.executor.reaped) == {REF.job_id}
        assert not stage.executor.observe(REF).running
        await stage.close()

    asyncio.run(run())


def test_an_endpoint_waits_for_a_machine_for_as_long_as_it_takes(
    make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.endpoints.driver._BUSY_S", 0.05)

    async def run() -> None:
        stage = make_stage()
        stage.executor.busy = "PENDING (Priority)"
        await stage.create(ago_s=86400)
        await stage.until(lambda: stage.executor.refused >= 3)
        endpoint = stage.endpoint()
        assert endpoint is not None
        assert endpoint.status is EndpointStatus.CREATING
        (shown,) = endpoint_description(endpoint_record(endpoint))["PendingDeploymentSummary"]["ProductionVariants"]
        (status,) = shown["VariantStatus"]
        assert (status["Status"], status["StatusMessage"]) == ("Creating", "Waiting for machines: PENDING (Priority)")
        stage.executor.busy = ""
        await stage.until(lambda: REF in stage.executor.launches)
        seen = stage.executor.observed
        await stage.until(lambda: stage.executor.observed > seen + 3)
        endpoint = stage.endpoint()
        assert endpoint is not None
        assert endpoint.status is EndpointStatus.CREATING, "the server has its whole time to answer"
        (shown,) = endpoint_description(endpoint_record(endpoint))["PendingDeploymentSummary"]["ProductionVariants"]
        assert "VariantStatus" not in shown
        await stage.delete()
        await stage.until(lambda: stage.endpoint() is None)
        await stage.close()

    asyncio.run(run())


def test_an_endpoint_with_a_time_limit_does_not_wait_longer_for_a_machine(make_stage: Callable[[], Stage]) -> None:
    async def run() -> None:
        stage = make_stage()
        stage.executor.busy = "PENDING (Priority)"
        await stage.create(ago_s=601, limit_s=600)
        failed = await stage.fails()
        assert failed.failure_reason == "No machine was free within 600 s: PENDING (Priority)"
        await stage.close()

    asyncio.run(run())


def test_a_failed_deletion_is_retried(make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.endpoints.driver._LOOK_S", 0.01)

    async def run() -> None:
        stage = make_stage()
        await stage.create()
        await stage.until(lambda: REF in stage.executor.launches)
        assert stage.has_keys(REF)
        stage.executor.broken = {"reap"}
        await stage.delete()
        await stage.until(lambda: len(stage.executor.failed) >= 3)
        endpoint = stage.endpoint()
        assert endpoint is not None
        assert endpoint.status is EndpointStatus.DELETING
        stage.executor.broken = set()
        await stage.until(lambda: stage.endpoint() is None)
        assert not stage.has_keys(REF)
        await stage.close()

    asyncio.run(run())


def test_keys_are_renewed_while_their_instance_exists(
    make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.endpoints.driver._LOOK_S", 0.01)

    async def run() -> None:
        stage = make_stage()
        await stage.create()
        await stage.until(lambda: REF in stage.executor.launches)
        expired = stage.clock.now_ms() - 1
        key = access_key_id(REF.job_id)
        await stage.records.update(
            CREDENTIAL, key, lambda now: replace(now, document={**now.document, "expires_ms": expired})
        )

        def valid() -> bool:
            found = stage.credentials.lookup(key)
            return found is not None and (found.expires_ms or 0) > stage.clock.now_ms()

        await stage.until(valid)
        await stage.delete()
        await stage.until(lambda: stage.endpoint() is None)
        assert not stage.has_keys(REF)
        await stage.close()

    asyncio.run(run())


def test_an_instance_that_dies_is_replaced_and_if_all_do_in_a_row_the_endpoint_has_failed(
    make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.endpoints.replacements._FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("tidemill.control.endpoints.driver._SOON_S", 0.01)

    async def run() -> None:
        stage = make_stage()
        stage.planner.model = None
        await stage.create(serves=True)
        for turn in range(5):
            await stage.until(lambda: len(stage.executor.launches) == turn + 1)  # noqa: B023
            await stage.until(lambda: stage.executor.observe(stage.executor.launches[-1]).running)
            endpoint = stage.endpoint()
            assert endpoint is not None
            assert endpoint.status is EndpointStatus.IN_SERVICE
            assert [stage.has_keys(each) for each in stage.executor.launches[-1:]] == [True]
            stage.executor.lose(stage.executor.launches[-1])
        failed = await stage.fails()
        assert failed.failure_reason == "InternalServerError: instance agent lost"
        assert len({each.job_id for each in stage.executor.launches}) == 5
        await stage.until(lambda: len(stage.executor.reaped) == 5)
        await stage.until(lambda: not any(stage.has_keys(each) for each in stage.executor.launches))
        await stage.delete()
        await stage.until(lambda: stage.endpoint() is None)
        await stage.close()

    asyncio.run(run())
