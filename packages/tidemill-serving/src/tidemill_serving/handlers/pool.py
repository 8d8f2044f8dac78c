"""The worker processes that run one endpoint's user code, and the queue of requests that wait for a free worker.

A worker gets no more requests than it handles at a time, so a worker that dies loses only those. It is restarted
immediately, and with growing pauses if it keeps dying.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill_serving.errors import Code, RequestError, StartFailed
from tidemill_serving.handlers.code import UserCode
from tidemill_serving.handlers.lane import Frame, Lane
from tidemill_serving.handlers.process import WorkerProcess, described_end
from tidemill_serving.handlers.wire import WorkerSetup, frame
from tidemill_serving.http.message import HttpRequest, Reply, Response, error_response

_ATTRIBUTES_HEADER = b"x-amzn-sagemaker-custom-attributes"
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_LONG_RUN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Limits on concurrent requests and on the time of one request.

    Attributes:
        workers: Number of processes.
        threads: Number of requests that one process handles at a time.
        timeout_s: Maximum time in seconds that a request waits for a worker, and again that its handler takes.
        waiting: Maximum number of requests that wait for a worker; further requests are answered 503.
    """

    workers: int = 1
    threads: int = 1
    timeout_s: float = 60.0
    waiting: int = 1024


@dataclass(eq=False, slots=True)
class _PooledRequest:
    parts: tuple[bytes, bytes]
    reply: Reply
    timer: asyncio.TimerHandle | None = None
    worker: WorkerProcess | None = None


@dataclass(eq=False, slots=True)
class _Member:
    """A slot of the pool; its number stays the same when its worker is restarted."""

    number: int
    pauses_s: float = 0.0
    task: "asyncio.Task[None] | None" = field(default=None)


class HandlerPool:
    """Runs requests in worker processes.

    Args:
        setup: Setup that each worker gets.
        size: See `PoolSize`.
        event: Writes an event with its fields to the log.
    """

    def __init__(self, code: UserCode, setup: WorkerSetup, *, size: PoolSize, event: Callable[..., None]) -> None:
        self._code = code
        self._setup = setup
        self._size = size
        self._event = event
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_PooledRequest] = deque()
        self._free: deque[tuple[WorkerProcess, Lane]] = deque()
        self._running: dict[Lane, _PooledRequest] = {}
        self._workers: dict[int, WorkerProcess] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._idle: asyncio.Future[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether at least one worker is ready."""
        return bool(self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are ready."""
        return tuple(worker.pid for worker in self._workers.values())

    async def start(self) -> None:
        """Start all workers and wait until they have loaded the user's module.

        Raises:
            StartFailed: The module cannot be loaded.
        """
        members = [_Member(number) for number in range(self._size.workers)]
        first = self._new_worker()
        await self._started(members[0], first)  # first alone, so that the traceback of a broken module is logged once
        others = [self._new_worker() for _ in members[1:]]
        starts = [self._started(member, worker) for member, worker in zip(members[1:], others, strict=True)]
        failed = [each for each in await asyncio.gather(*starts, return_exceptions=True) if each is not None]
        for member, worker in zip(members, (first, *others), strict=True):
            if member.number in self._workers:
                self._tasks.append(self._loop.create_task(self._keep(member, worker)))
        if failed:
            await self.close()
            raise failed[0]

    def submit(self, request: HttpRequest, reply: Reply, **fields: str) -> None:
        """Queue a request for the next free worker.

        Args:
            reply: Called with the answer.
            fields: Additional members of the frame's header.
        """
        if len(self._waiting) >= self._size.waiting:
            message = f"{self._size.waiting} requests wait for the handlers already: try again"
            error = RequestError(Code.UNAVAILABLE, message, headers=(("Retry-After", "1"),))
            reply(error_response(error))
            return
        header = {
            "content_type": request.headers.get(b"content-type", b"").decode("latin-1"),
            "accept": request.headers.get(b"accept", b"").decode("latin-1"),
            **fields,
        }
        attributes = request.headers.get(_ATTRIBUTES_HEADER)
        if attributes is not None:
            header["attributes"] = attributes.decode("latin-1")
        job = _PooledRequest(frame(header, request.body), reply)
        job.timer = self._loop.call_later(self._size.timeout_s, self._waited_too_long, job)
        self._waiting.append(job)
        self._dispatch()

    async def drain(self) -> None:
        """Wait until all requests are answered, then end all workers. Call it only after the last `submit`."""
        while self._waiting or self._running:
            self._idle = self._loop.create_future()
            await self._idle
        await self.close()

    async def close(self) -> None:
        """End all workers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))
        self._workers.clear()
        self._free.clear()

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(
            self._code, self._setup, threads=self._size.threads, answered=self._answered, loop=self._loop
        )

    async def _started(self, member: _Member, worker: WorkerProcess) -> None:
        try:
            await worker.start()
        except BaseException:
            await worker.close()
            raise
        self._workers[member.number] = worker
        self._event(
            "handler.loaded",
            handlers=",".join(worker.handlers),
            file=self._code.script or "none",
            worker=member.number,
            pid=worker.pid,
        )
        self._free.extend((worker, lane) for lane in worker.lanes)
        self._dispatch()

    async def _keep(self, member: _Member, worker: WorkerProcess | None) -> None:
        """Replace a worker each time it ends, until the pool is closed."""
        while True:
            if worker is not None:
                since_s = self._loop.time()
                status = await worker.ended()
                self._lose(member, worker, status)
                await worker.close()
                ran_long = self._loop.time() - since_s > _LONG_RUN_S
                member.pauses_s = 0.0 if ran_long else min(max(_FIRST_PAUSE_S, 2 * member.pauses_s), _LONGEST_PAUSE_S)
            await asyncio.sleep(member.pauses_s)
            worker = self._new_worker()
            try:
                await self._started(member, worker)
            except StartFailed as error:
                self._event("handler.start_failed", worker=member.number, reason=str(error))
                member.pauses_s = min(max(_FIRST_PAUSE_S, 2 * member.pauses_s), _LONGEST_PAUSE_S)
                worker = None

    def _dispatch(self) -> None:
        while self._waiting and self._free:
            job = self._waiting.popleft()
            worker, lane = self._free.popleft()
            self._restart_timer(job, self._took_too_long)
            job.worker = worker
            self._running[lane] = job
            lane.send(job.parts)

    def _answered(self, lane: Lane, answer: Frame) -> None:
        job = self._running.pop(lane, None)
        if job is None or job.worker is None:
            return
        header, body = answer
        self._finish(job, Response(int(header["status"]), body, _header_value(header["content_type"])))
        self._free.append((job.worker, lane))
        self._dispatch()

    def _lose(self, member: _Member, worker: WorkerProcess, status: int) -> None:
        """Answer the requests that a worker had when it ended."""
        self._workers.pop(member.number, None)
        self._free = deque(each for each in self._free if each[0] is not worker)
        lost = [self._running.pop(lane) for lane in worker.lanes if lane in self._running]
        end = described_end(status)
        self._event("handler.worker_ended", worker=member.number, pid=worker.pid, end=end, requests_lost=len(lost))
        for job in lost:
            message = f"the process that ran the handler ended before it answered ({end}); see the endpoint's log"
            self._finish(job, error_response(RequestError(Code.UNAVAILABLE, message, http_status=502)))

    def _waited_too_long(self, job: _PooledRequest) -> None:
        with contextlib.suppress(ValueError):
            self._waiting.remove(job)
            self._finish(job, _timed_out(f"no handler was free within {self._size.timeout_s:g} s"))

    def _took_too_long(self, job: _PooledRequest) -> None:
        """Answer a request whose handler takes too long, and kill the worker, which is then restarted."""
        lane = next((lane for lane, each in self._running.items() if each is job), None)
        if lane is None or job.worker is None:
            return
        del self._running[lane]
        self._finish(job, _timed_out(f"the handler did not answer within {self._size.timeout_s:g} s"))
        job.worker.kill()

    def _restart_timer(self, job: _PooledRequest, late: Callable[[_PooledRequest], None]) -> None:
        if job.timer is not None:
            job.timer.cancel()
        job.timer = self._loop.call_later(self._size.timeout_s, late, job)

    def _finish(self, job: _PooledRequest, response: Response) -> None:
        if job.timer is not None:
            job.timer.cancel()
        job.reply(response)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)


def _timed_out(what: str) -> Response:
    return error_response(RequestError(Code.DEADLINE_EXCEEDED, f"Timed out: {what}"))


def _header_value(text: str) -> bytes:
    """Return a handler's content type as a header value, without line breaks, which would begin another header."""
    return text.replace("\r", " ").replace("\n", " ").encode("latin-1", "replace")
