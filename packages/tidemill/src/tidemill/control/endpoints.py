"""Drives every endpoint: starts its servers, watches them, takes them away, and passes invocations on.

As with training jobs the truth is in the store and in the instances' files; the servers outlive this process.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

import structlog

from tidemill.control.attention import Attention
from tidemill.control.full_disk import delayed_by_full_disk
from tidemill.control.hosting import ENDPOINT
from tidemill.control.invoker import Answer, Invoker, Unreachable
from tidemill.control.plan import DataMissing, InstancePlanner
from tidemill.control.resources import ENDPOINT_REMOVAL, endpoint_record
from tidemill.control.tags import delete_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint, EndpointStatus
from tidemill.errors import AwsError, LaunchError, ServiceUnavailable
from tidemill.executors.base import Executor, InstanceRef, InstanceStatus, StopReason
from tidemill.store.base import Query, Record, RecordStore, Transaction

__all__ = ["EndpointDriver"]

_log = structlog.get_logger("tidemill.endpoints")
_PING_EVERY_S = 0.1
_PING_TIMEOUT_S = 10.0
_LOOK_S = 5.0
_HEALTHY_WITHIN_S = 15 * 60


class EndpointDriver:
    """Runs the endpoints.

    Args:
        records: Where endpoints are kept.
        executor: Runs their instances.
        planner: Makes specs of instances.
        clock: Time.
    """

    def __init__(self, records: RecordStore, executor: Executor, *, planner: InstancePlanner, clock: Clock) -> None:
        self._records = records
        self._executor = executor
        self._planner = planner
        self._clock = clock
        self._attention = Attention("endpoint", self._drive)
        self._invokers: dict[InstanceRef, Invoker] = {}
        self._turn = itertools.count()

    async def start(self) -> None:
        """Take up every endpoint that there is, and those whose name a new one has taken."""
        for kind in (ENDPOINT, ENDPOINT_REMOVAL):
            async for endpoint in self._all(kind):
                self.wake(endpoint)

    def wake(self, endpoint: Endpoint) -> None:
        """An endpoint was created, or something about it changed."""
        self._attention.wake(_key(endpoint))

    def changed(self, ref: InstanceRef) -> bool:
        """The executor reports news of an instance. Returns whether it is one of an endpoint."""
        return self._attention.changed(ref)

    async def close(self) -> None:
        """Leave the endpoints to themselves; their servers run on."""
        await self._attention.close()
        for invoker in self._invokers.values():
            invoker.close()

    async def invoke(self, endpoint: Endpoint, body: bytes, *, headers: Mapping[str, str], timeout_s: float) -> Answer:
        """Pass a request to one of the endpoint's servers.

        A request that a dying server cannot have seen is given to it once more after its restart.

        Raises:
            AwsError: ModelError, when no server answers in time.
        """
        refs = _refs(endpoint)
        ref = refs[next(self._turn) % len(refs)]
        try:
            try:
                return await self._invoker(ref).post("/invocations", body, headers=headers, timeout_s=timeout_s)
            except Unreachable as error:
                if error.sent:
                    raise
                await self._answering(ref, within_s=timeout_s)
                return await self._invoker(ref).post("/invocations", body, headers=headers, timeout_s=timeout_s)
        except (Unreachable, TimeoutError) as error:
            reason = str(error) or f"the model did not answer within {timeout_s:g} s"
            raise AwsError(f"Received no answer from primary: {reason}", code="ModelError", status=424) from error

    async def _answering(self, ref: InstanceRef, *, within_s: float) -> None:
        async with asyncio.timeout(within_s):
            while not await self._healthy(ref):
                await asyncio.sleep(_PING_EVERY_S)

    def _invoker(self, ref: InstanceRef) -> Invoker:
        if ref not in self._invokers:
            self._invokers[ref] = Invoker(self._executor.socket_path(ref))
        return self._invokers[ref]

    async def _all(self, kind: str) -> AsyncIterator[Endpoint]:
        query = Query(descending=False, limit=100)
        while True:
            page = await self._records.list(kind, query)
            for record in page.records:
                yield Endpoint.from_document(record.document)
            if page.next_token is None:
                return
            query = replace(query, after=page.next_token)

    async def _drive(self, key: str) -> None:
        while True:
            try:
                await self._run(key)
            except ServiceUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - a fault of ours must end in the FailureReason, not in silence
                _log.exception("endpoint.driver_failed", endpoint=key)
                await self._fail(key, f"InternalServerError: {type(error).__name__}: {error}")
                # What has failed still waits to be deleted, and a deletion that failed to be tried again.
                await self._attention.wait(key, timeout_s=_LOOK_S)
            else:
                return

    async def _run(self, key: str) -> None:
        endpoint = self._endpoint(key)
        if endpoint is None:
            return
        self._attention.listen(endpoint.instance_id, key)
        try:
            await self._launch(endpoint)
        except (DataMissing, LaunchError) as error:
            await self._fail(key, str(error))
        await self._follow(key)

    async def _launch(self, endpoint: Endpoint) -> None:
        if endpoint.status in (EndpointStatus.FAILED, EndpointStatus.DELETING):
            return
        for ref in _refs(endpoint):
            if self._executor.observe(ref).launched:
                self._executor.relaunch(ref)
            else:
                with delayed_by_full_disk(f"endpoint {endpoint.name}"):
                    spec = await asyncio.to_thread(self._planner.plan_endpoint, endpoint, ref.instance_index)
                    await asyncio.to_thread(self._executor.launch, spec)
                faults.point("control.endpoint.launched")

    async def _follow(self, key: str) -> None:
        """Until the endpoint is gone."""
        while (endpoint := self._endpoint(key)) is not None:
            if endpoint.status is EndpointStatus.DELETING:
                if await self._removed(endpoint):
                    return
            elif endpoint.status is not EndpointStatus.FAILED:
                await self._check(endpoint)
            soon = endpoint.status is EndpointStatus.CREATING
            await self._attention.wait(key, timeout_s=_PING_EVERY_S if soon else _LOOK_S)

    async def _check(self, endpoint: Endpoint) -> None:
        states = [await asyncio.to_thread(self._executor.observe, ref) for ref in _refs(endpoint)]
        failure = next(filter(None, map(_failure, states)), "")
        if failure:
            await self._fail(_key(endpoint), failure)
        elif endpoint.status is EndpointStatus.CREATING:
            if all([await self._serving(ref, state) for ref, state in zip(_refs(endpoint), states, strict=True)]):
                await self._enter(_key(endpoint), EndpointStatus.IN_SERVICE)
                _log.info("endpoint.in_service", name=endpoint.name)
            elif self._clock.now_ms() - endpoint.created_ms > _healthy_within_s(endpoint) * 1000:
                within_s = _healthy_within_s(endpoint)
                await self._fail(_key(endpoint), f"The server did not answer /ping within {within_s} s; see its logs")

    async def _serving(self, ref: InstanceRef, state: InstanceStatus) -> bool:
        if not state.phases or state.phases[-1].status != "Serving":
            return False
        return await self._healthy(ref)

    async def _healthy(self, ref: InstanceRef) -> bool:
        try:
            return (await self._invoker(ref).get("/ping", timeout_s=_PING_TIMEOUT_S)).status == 200
        except (Unreachable, TimeoutError):
            return False

    async def _removed(self, endpoint: Endpoint) -> bool:
        """Stop what still runs; when nothing does, remove the endpoint."""
        for ref in _refs(endpoint):
            state = await asyncio.to_thread(self._executor.observe, ref)
            if state.launched and state.running and state.exit is None:
                await asyncio.to_thread(self._executor.stop, ref, reason=StopReason.STOPPED)
                return False
        for ref in _refs(endpoint):
            if ref in self._invokers:
                self._invokers.pop(ref).close()
        await asyncio.to_thread(self._executor.reap, endpoint.instance_id)
        await self._records.change(lambda transaction: _remove(transaction, endpoint))
        faults.point("control.endpoint.deleted")
        return True

    async def _fail(self, key: str, reason: str) -> None:
        _log.warning("endpoint.failed", endpoint=key, reason=reason)
        await self._enter(key, EndpointStatus.FAILED, reason=reason)

    async def _enter(self, key: str, status: EndpointStatus, *, reason: str = "") -> None:
        name, _, instance_id = key.partition("/")

        def change(record: Record) -> Record | None:
            now = Endpoint.from_document(record.document)
            if now.instance_id != instance_id or now.status in (EndpointStatus.DELETING, status):
                return None
            return endpoint_record(replace(now, status=status, failure_reason=reason[:1024]))

        await self._records.update(ENDPOINT, name, change)

    def _endpoint(self, key: str) -> Endpoint | None:
        name, _, instance_id = key.partition("/")
        # In this order: a record moves from its name to its instance id, never back.
        for kind, record_name in ((ENDPOINT, name), (ENDPOINT_REMOVAL, instance_id)):
            record = self._records.get(kind, record_name)
            if record is not None and record.document["instance_id"] == instance_id:
                return Endpoint.from_document(record.document)
        return None


def _key(endpoint: Endpoint) -> str:
    """Key of the task that drives an endpoint. The name alone will not do: another endpoint may take it."""
    return f"{endpoint.name}/{endpoint.instance_id}"


def _remove(transaction: Transaction, endpoint: Endpoint) -> None:
    """Delete the records of an endpoint that is gone; those of another one that has its name stay."""
    record = transaction.get(ENDPOINT, endpoint.name)
    if record is not None and record.document["instance_id"] == endpoint.instance_id:
        transaction.delete(ENDPOINT, endpoint.name)
        delete_tags(transaction, endpoint.arn)
    transaction.delete(ENDPOINT_REMOVAL, endpoint.instance_id)


def _refs(endpoint: Endpoint) -> list[InstanceRef]:
    return [InstanceRef(endpoint.instance_id, index) for index in range(len(endpoint.log_streams))]


def _failure(state: InstanceStatus) -> str:
    if state.exit is not None:
        return state.exit.failure or "The server ended"
    if state.launched and not state.running:
        return "InternalServerError: instance agent lost"
    return ""


def _healthy_within_s(endpoint: Endpoint) -> int:
    return int(endpoint.variant.get("ContainerStartupHealthCheckTimeoutInSeconds", _HEALTHY_WITHIN_S))
