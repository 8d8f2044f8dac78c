"""Transform one object of a job: split it, send its records, and assemble the results in the order of the records.

The job limits the number of concurrent requests, and a request counts until its result is written. So the memory used
depends on the size of requests and answers, not on the size of the object.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import IO

from tidemill.control.invoker import Answer
from tidemill.control.transform.model_server import ModelServer, RecordFailed
from tidemill.control.transform.payloads import Payload, PayloadCutter
from tidemill.control.transform.processing import Processing, ProcessingFault
from tidemill.control.transform.records import BadObject, splitter
from tidemill.core.transform import TransformJob

_AHEAD_BYTES = 256 * 1024
_IN_LOOP_BYTES = 64 * 1024


class ObjectFailed(Exception):
    """An object has no result. The message names object, record and cause, in the form of a FailureReason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """How requests are built and results assembled.

    Attributes:
        cutter: Splits objects into request bodies.
        processing: Joins and filters results.
        by_line: Append a line feed to each result.
    """

    cutter: PayloadCutter
    processing: Processing
    headers: dict[str, str] = field(default_factory=dict)
    by_line: bool = False

    @classmethod
    def of_job(cls, job: TransformJob) -> "Assembly":
        """Return the assembly that the request of a job asks for."""
        source, target = job.request["TransformInput"], job.request["TransformOutput"]
        split, single = source.get("SplitType", "None"), job.strategy == "SingleRecord"
        processing = Processing.of_request(job.request)
        headers = {"content-type": source.get("ContentType"), "accept": target.get("Accept")}
        return cls(
            cutter=PayloadCutter(
                split=splitter(split),
                framed=not single and split != "None",
                single=single,
                limit_bytes=job.max_payload_bytes,
                gzipped=source.get("CompressionType") == "Gzip",
                processing=processing,
            ),
            processing=processing,
            headers={name: value for name, value in headers.items() if value},
            by_line=target.get("AssembleWith") == "Line",
        )


class ObjectTransform:
    """Transforms one object.

    Args:
        uri: URI of the object, for messages.
        file: Content of the object.
        assembly: Builds requests and assembles results.
        server: The server that gets the requests.
        room: Limits the concurrent requests to that server.
    """

    def __init__(
        self, uri: str, file: IO[bytes], *, assembly: Assembly, server: ModelServer, room: asyncio.Semaphore
    ) -> None:
        self.requests = 0
        self.content_type = ""
        self._uri = uri
        self._file = file
        self._assembly = assembly
        self._server = server
        self._room = room

    async def results(self) -> AsyncGenerator[bytes, None]:
        """Yield the parts of the result in order.

        Raises:
            ObjectFailed: A record has no result.
        """
        in_flight: deque[asyncio.Task[bytes]] = deque()
        try:
            async for payload in self._payloads():
                while self._room.locked() and in_flight:
                    yield await self._next_result(in_flight)
                await self._room.acquire()
                in_flight.append(asyncio.create_task(self._transform(payload)))
                while in_flight and in_flight[0].done():
                    yield await self._next_result(in_flight)
            while in_flight:
                yield await self._next_result(in_flight)
        except BadObject as error:
            raise ObjectFailed(f"ClientError: {self._uri}: {error}") from error
        finally:
            self._cancel(in_flight)

    async def _next_result(self, in_flight: "deque[asyncio.Task[bytes]]") -> bytes:
        """Wait for the result of the oldest request, and release its place for another request."""
        try:
            return await in_flight[0]
        finally:
            in_flight.popleft().cancel()
            self._room.release()

    def _cancel(self, in_flight: "deque[asyncio.Task[bytes]]") -> None:
        for task in in_flight:
            task.cancel()
            self._room.release()

    async def _transform(self, payload: Payload) -> bytes:
        try:
            return await self._result(payload)
        except RecordFailed as error:
            raise ObjectFailed(f"AlgorithmError: {self._uri}: {payload.place}: {error}") from error
        except ProcessingFault as error:
            raise ObjectFailed(f"ClientError: {self._uri}: {payload.place}: {error}") from error

    async def _result(self, payload: Payload) -> bytes:
        place = f"{self._uri}: {payload.place}"
        answer = await self._server.transform(payload.body, headers=self._assembly.headers, place=place)
        self.requests += 1
        self.content_type = self.content_type or answer.headers.get("content-type", "")
        if len(answer.body) > _IN_LOOP_BYTES:
            result = await asyncio.to_thread(self._kept, payload, answer)
        else:
            result = self._kept(payload, answer)
        return result + b"\n" if self._assembly.by_line and not result.endswith(b"\n") else result

    def _kept(self, payload: Payload, answer: Answer) -> bytes:
        content_type = answer.headers.get("content-type", "")
        return self._assembly.processing.output_of(payload.records, answer.body, content_type)

    async def _payloads(self) -> AsyncIterator[Payload]:
        """Yield the payloads of the object, read and filtered in a thread in small batches."""
        payloads = self._assembly.cutter.payloads(self._file)
        while some := await asyncio.to_thread(_first_payloads, payloads):
            for payload in some:
                yield payload


def _first_payloads(payloads: Iterator[Payload]) -> list[Payload]:
    some: list[Payload] = []
    size_bytes = 0
    for payload in payloads:
        some.append(payload)
        size_bytes += len(payload.body)
        if size_bytes >= _AHEAD_BYTES:
            break
    return some
