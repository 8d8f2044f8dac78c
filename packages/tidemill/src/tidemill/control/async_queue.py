"""The queue of requests to asynchronous endpoints, which are processed in the order of arrival.

A request is stored before its caller gets an answer, and removed when its result is in S3. After kill -9 the next
service continues with the stored requests: a model may see a request twice, but its result is stored once.
"""

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable

import structlog

from tidemill.control.endpoints import EndpointDriver
from tidemill.control.endpoints.traffic import ModelCall
from tidemill.control.plan import DataMissing
from tidemill.control.resources import ASYNC_INVOCATION, async_invocation_record, sound_records
from tidemill.control.transform.rights import NotAllowed, RoleRights
from tidemill.core import faults
from tidemill.core.async_invocation import AsyncInvocation
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint
from tidemill.core.names import S3Uri
from tidemill.core.roles import Roles
from tidemill.errors import AwsError, ServiceUnavailable
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo, check_key
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import Query, RecordStore

_log = structlog.get_logger("tidemill.async")
_MARK = "tidemill-async-invocation"
_CONCURRENT = 4
_RETRY_S = 5.0
_INPUT_MAX_BYTES = 100 * 1000 * 1000


class _InvocationFailed(Exception):
    """A request failed; the message is stored at its FailureLocation."""


class AsyncQueue:
    """The requests that asynchronous endpoints have not answered yet.

    Args:
        objects: Holds the bodies, and stores the results.
        endpoints: Forwards requests to the servers.
        endpoint_of: Returns the endpoint of a name if it accepts requests; raises AwsError otherwise.
        roles: The policies of roles.
        clock: Provides the time at which requests expire.
    """

    def __init__(
        self,
        records: RecordStore,
        objects: ObjectStore,
        endpoints: EndpointDriver,
        *,
        endpoint_of: Callable[[str], Endpoint],
        roles: Roles,
        clock: Clock,
    ) -> None:
        self._records = records
        self._objects = objects
        self._endpoints = endpoints
        self._endpoint_of = endpoint_of
        self._roles = roles
        self._clock = clock
        self._waiting: dict[str, deque[AsyncInvocation]] = {}
        self._running: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Continue with the requests that an earlier service accepted, oldest first."""
        async for record in sound_records(self._records, ASYNC_INVOCATION, Query(descending=False)):
            self._enqueue(AsyncInvocation.from_document(record.document))

    def now_ms(self) -> int:
        """Return the time by which requests expire, in milliseconds since the epoch."""
        return self._clock.now_ms()

    async def submit(self, invocation: AsyncInvocation) -> None:
        """Accept a request. After this returns, the request survives kill -9.

        Raises:
            ServiceUnavailable: The disk is full.
        """
        await self._records.change(
            lambda transaction: transaction.insert(async_invocation_record(invocation)), grows=True
        )
        faults.point("control.async.accepted")
        self._enqueue(invocation)

    async def close(self) -> None:
        """Stop processing; the next service continues with the stored requests."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _enqueue(self, invocation: AsyncInvocation) -> None:
        self._waiting.setdefault(invocation.endpoint_id, deque()).append(invocation)
        self._pump(invocation.endpoint_id)

    def _pump(self, endpoint_id: str) -> None:
        """Start as many requests as the endpoint's instances accept."""
        waiting = self._waiting.get(endpoint_id)
        while waiting and self._running[endpoint_id] < self._room(waiting[0]):
            invocation = waiting.popleft()
            self._running[endpoint_id] += 1
            task = asyncio.create_task(self._run(invocation), name=f"async invocation {invocation.invocation_id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not waiting:
            self._waiting.pop(endpoint_id, None)

    def _room(self, invocation: AsyncInvocation) -> int:
        try:
            serving = self._current(invocation).serving
        except AwsError:
            return _CONCURRENT  # requests to a deleted endpoint fail quickly
        if serving is None or serving.asynchronous is None:
            return _CONCURRENT
        each = serving.asynchronous.get("ClientConfig", {}).get("MaxConcurrentInvocationsPerInstance", _CONCURRENT)
        return max(1, len(serving.instances)) * int(each)

    async def _run(self, invocation: AsyncInvocation) -> None:
        try:
            while not await self._answered(invocation):
                await asyncio.sleep(_RETRY_S)
        except Exception:  # noqa: BLE001 - no caller awaits this task; the request stays for the next service
            _log.exception("async.failed", invocation=invocation.invocation_id, endpoint=invocation.endpoint)
        finally:
            self._running[invocation.endpoint_id] -= 1
            if not self._running[invocation.endpoint_id]:
                del self._running[invocation.endpoint_id]
        self._pump(invocation.endpoint_id)

    async def _answered(self, invocation: AsyncInvocation) -> bool:
        """Answer a request and remove it; return False if its result cannot be stored now."""
        try:
            if not self._has_result(invocation):
                try:
                    await self._answer(invocation)
                except (_InvocationFailed, NotAllowed, DataMissing) as error:
                    await self._store_failure(invocation, str(error))
            faults.point("control.async.stored")
            await self._records.delete(ASYNC_INVOCATION, invocation.invocation_id)
        except ServiceUnavailable as error:
            _log.warning("async.delayed", invocation=invocation.invocation_id, reason=error.message)
            return False
        return True

    def _has_result(self, invocation: AsyncInvocation) -> bool:
        for uri in map(S3Uri.parse, filter(None, (invocation.output, invocation.failure))):
            info = self._objects.head(uri.bucket, uri.key)
            if info is not None and info.metadata.get(_MARK) == invocation.invocation_id:
                return True
        return False

    async def _answer(self, invocation: AsyncInvocation) -> None:
        waited_s = (self._clock.now_ms() - invocation.created_ms) / 1000
        if self._clock.now_ms() > invocation.expires_ms:
            raise _InvocationFailed(
                f"The request waited {waited_s:.0f} s, longer than RequestTTLSeconds; it was not sent"
            )
        rights = self._rights(invocation)
        rights.check("s3:GetObject", S3Uri.parse(invocation.input))
        rights.check("s3:PutObject", S3Uri.parse(invocation.output))
        info = self._input(invocation)
        call = ModelCall(
            body=await self._objects.read_bytes(info),
            # Without a ContentType in the request, use that of the uploaded body, which AWS's SDK sets.
            headers={"content-type": info.content_type, **invocation.headers},
            timeout_s=invocation.timeout_s,
            inference_id=invocation.inference_id,
        )
        try:
            answer, _ = await self._endpoints.invoke(lambda: self._current(invocation), call)
        except ServiceUnavailable:
            raise
        except AwsError as error:
            raise _InvocationFailed(error.message) from error
        if answer.status >= 400:
            raise _InvocationFailed(answer.failure)
        await self._store(invocation, invocation.output, answer.body, answer.headers.get("content-type", ""))

    def _input(self, invocation: AsyncInvocation) -> ObjectInfo:
        uri = S3Uri.parse(invocation.input)
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise _InvocationFailed(f"The object {uri} of InputLocation does not exist; upload it before the call")
        if info.size_bytes > _INPUT_MAX_BYTES:
            raise _InvocationFailed(
                f"The object {uri} of InputLocation has {info.size_bytes} bytes; a server takes at most"
                f" {_INPUT_MAX_BYTES}"
            )
        return info

    async def _store_failure(self, invocation: AsyncInvocation, reason: str) -> None:
        _log.info("async.refused", invocation=invocation.invocation_id, endpoint=invocation.endpoint, reason=reason)
        if invocation.failure:
            # JSON, because AWS's SDK parses failures like results.
            body = json.dumps({"error": reason}, ensure_ascii=False).encode()
            await self._store(invocation, invocation.failure, body, "application/json")

    async def _store(self, invocation: AsyncInvocation, place: str, body: bytes, content_type: str) -> None:
        uri = S3Uri.parse(place)
        attributes = ObjectAttributes(
            content_type=content_type or "application/octet-stream", metadata={_MARK: invocation.invocation_id}
        )
        try:
            check_key(uri.key)
            await self._objects.put_bytes(uri.bucket, uri.key, body, attributes=attributes)
        except ServiceUnavailable:
            raise
        except AwsError as error:
            # The bucket was deleted after the request was accepted, so only the log can show the failure.
            _log.warning("async.lost", invocation=invocation.invocation_id, place=place, reason=error.message)

    def _rights(self, invocation: AsyncInvocation) -> RoleRights:
        try:
            endpoint = self._current(invocation)
        except AwsError as error:
            raise _InvocationFailed(error.message) from error
        serving = endpoint.serving
        return RoleRights(
            self._roles,
            model=serving.variants[0].model if serving else {},
            arn=endpoint.arn,
            output=invocation.output.rpartition("/")[0],
        )

    def _current(self, invocation: AsyncInvocation) -> Endpoint:
        """Return the endpoint of a request in its current state."""
        endpoint = self._endpoint_of(invocation.endpoint)
        if endpoint.endpoint_id != invocation.endpoint_id:
            raise AwsError(
                f"Endpoint {invocation.endpoint} was deleted before the request was answered", code="ValidationError"
            )
        return endpoint
