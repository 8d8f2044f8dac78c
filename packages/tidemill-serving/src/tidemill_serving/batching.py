"""Runs of one model version: on the loop or on batch threads, rows of waiting requests together.

There is no timer. Requests that the event loop read in one turn, or that came while every slot was taken, share the
next run; a lone request is run at once. Only signatures whose first dimensions are all unknown are batched, and only
requests whose other dimensions and types agree. When a shared run fails, its requests are run one by one, so that
nobody is answered with somebody else's error.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tidemill_serving.engine import Array, LoadedModel, Signature
from tidemill_serving.engine.placement import Placement
from tidemill_serving.errors import Code, RequestError, invalid

__all__ = ["DEFAULT_MAX_ROWS", "BatchThreads", "Job", "Runner"]

DEFAULT_MAX_ROWS = 32
_LOOP_FEED_BYTES = 65_536  # what was measured with one row does not hold for a feed much larger than one
_SLOW_RUN_S = 0.01
_SLOW_RUNS = 2  # in a row: one may be the machine's doing
_Done = Callable[["list[Array] | RequestError"], None]


@dataclass(slots=True)
class Job:
    """One request's share of a run. ``done`` is called once, on the event loop."""

    feeds: list[Array]
    done: _Done
    rows: int = field(init=False)
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        first = self.feeds[0] if self.feeds else None
        self.rows = first.shape[0] if first is not None and first.ndim else 1
        self.size_bytes = sum(feed.nbytes for feed in self.feeds)


class BatchThreads:
    """The threads on which longer runs happen. Each is one slot; runs wait in their runner, not here.

    Args:
        slots: How many runs may be under way at the same time.
    """

    def __init__(self, *, slots: int) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._free = slots
        self._waiting: deque[Runner] = deque()
        self._threads = [
            threading.Thread(target=self._work, name=f"batch-{index}", daemon=True) for index in range(slots)
        ]
        for thread in self._threads:
            thread.start()

    def enlist(self, runner: "Runner") -> None:
        """Let a runner that has jobs take the next free slot; called on the loop."""
        self._waiting.append(runner)
        self.dispatch()

    def dispatch(self) -> None:
        """Fill free slots, one batch per waiting runner in turn; called on the loop."""
        while self._free and self._waiting:
            task = self._waiting.popleft().next_task()
            if task is not None:
                self._free -= 1
                self._tasks.put(task)

    def release(self) -> None:
        """Give a slot back; called on the loop."""
        self._free += 1
        self.dispatch()

    def close(self) -> None:
        """Let the threads end when they are idle."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class Runner:
    """Runs one signature of one loaded model.

    Args:
        model: The model.
        signature: The signature.
        placement: Where it runs.
        threads: Slots for runs that are not done on the loop.
        loop: The event loop on which `submit` and every ``done`` are called.
        max_rows: Most rows in a shared run; 1 switches batching off. A request with more rows is run by itself.
    """

    def __init__(
        self,
        model: LoadedModel,
        signature: Signature,
        *,
        placement: Placement,
        threads: BatchThreads,
        loop: asyncio.AbstractEventLoop,
        max_rows: int = DEFAULT_MAX_ROWS,
    ) -> None:
        self._model = model
        self._signature = signature
        self._placement = placement
        self._threads = threads
        self._loop = loop
        self._max_rows = max_rows if signature.batchable else 1
        self._max_loop_rows = max(self._max_rows, DEFAULT_MAX_ROWS)
        self._loop_jobs: deque[Job] = deque()
        self._thread_jobs: deque[Job] = deque()
        self._woken = False
        self._slow_runs = 0

    @property
    def placement(self) -> Placement:
        """Where the signature runs."""
        return self._placement

    def submit(self, job: Job) -> None:
        """Take a job; its ``done`` may be called before this returns."""
        if not self._placement.on_loop or job.size_bytes > _LOOP_FEED_BYTES or job.rows > self._max_loop_rows:
            self._thread_jobs.append(job)
            self._wake()
        elif self._max_rows == 1:
            self._finish([job], self._run_on_loop([job]))
        else:
            self._loop_jobs.append(job)
            self._wake()

    def next_task(self) -> Callable[[], None] | None:
        """The next shared run for a batch thread; asks for another slot when jobs are left."""
        jobs = self._take(self._thread_jobs)
        if not jobs:
            return None
        if self._thread_jobs:
            self._threads.enlist(self)
        return lambda: self._run_on_thread(jobs)

    def _wake(self) -> None:
        """Look at the queues when the loop has read everything that came in this turn."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._woken = False
        while self._loop_jobs:
            jobs = self._take(self._loop_jobs)
            self._finish(jobs, self._run_on_loop(jobs))
        if self._thread_jobs:
            self._threads.enlist(self)

    def _run_on_loop(self, jobs: list[Job]) -> "list[list[Array] | RequestError]":
        """Run here and now. A signature that turns out to be slow is moved to the threads for good."""
        begin = time.perf_counter()
        results = self._run(jobs)
        is_slow = time.perf_counter() - begin > _SLOW_RUN_S
        self._slow_runs = self._slow_runs + 1 if is_slow else 0
        if self._slow_runs >= _SLOW_RUNS:
            self._placement = replace(self._placement, on_loop=False)
        return results

    def _run_on_thread(self, jobs: list[Job]) -> None:
        results = self._run(jobs)
        self._loop.call_soon_threadsafe(self._finish_on_loop, jobs, results)

    def _finish_on_loop(self, jobs: list[Job], results: "list[list[Array] | RequestError]") -> None:
        self._threads.release()
        self._finish(jobs, results)

    def _finish(self, jobs: list[Job], results: "list[list[Array] | RequestError]") -> None:
        for job, result in zip(jobs, results, strict=True):
            job.done(result)

    def _take(self, jobs: deque[Job]) -> list[Job]:
        """Take the first job and those right behind it that fit into its run."""
        taken: list[Job] = []
        rows = 0
        while jobs and (not taken or (rows + jobs[0].rows <= self._max_rows and _alike(taken[0], jobs[0]))):
            job = jobs.popleft()
            taken.append(job)
            rows += job.rows
        return taken

    def _run(self, jobs: list[Job]) -> "list[list[Array] | RequestError]":
        if len(jobs) > 1:
            shared = self._run_together(jobs)
            if shared is not None:
                return shared
        return [self._run_one(job) for job in jobs]

    def _run_together(self, jobs: list[Job]) -> "list[list[Array] | RequestError] | None":
        columns = zip(*(job.feeds for job in jobs), strict=True)
        try:
            outputs = self._model.run(
                self._signature, [np.concatenate(column) for column in columns], pooled=self._placement.pooled
            )
        except Exception:  # noqa: BLE001  # whatever it is, each job by itself finds out whether it is the cause
            return None
        if any(not output.ndim or output.shape[0] != sum(job.rows for job in jobs) for output in outputs):
            return None  # the model does not answer row by row, whatever its signature says
        ends = np.cumsum([job.rows for job in jobs]).tolist()
        return [[output[end - job.rows : end] for output in outputs] for job, end in zip(jobs, ends, strict=True)]

    def _run_one(self, job: Job) -> "list[Array] | RequestError":
        try:
            return self._model.run(self._signature, job.feeds, pooled=self._placement.pooled)
        except RequestError as error:
            return self._explained(error, job.feeds)
        except Exception as error:  # noqa: BLE001  # one request's failure must not end the thread that serves all
            return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")

    def _explained(self, error: RequestError, feeds: Sequence[Array]) -> RequestError:
        """Name the input whose shape does not agree with the signature, which TensorFlow's text often does not.

        The request is at fault then, whatever status TensorFlow gives: for a rank that an operation does not know it is
        UNIMPLEMENTED.
        """
        for (name, spec), feed in zip(self._signature.inputs.items(), feeds, strict=True):
            if not spec.admits(feed.shape):
                expected, got = (",".join(map(str, shape)) for shape in (spec.shape or (), feed.shape))
                message = f"Expecting shape [{expected}] but got: [{got}] for input {name}. {error.message}"
                return invalid(message)
        return error


def _alike(first: Job, other: Job) -> bool:
    """Whether rows of both can stand in one array: scalars cannot, and all sizes but the first must agree."""
    return all(
        a.ndim and b.ndim and a.shape[1:] == b.shape[1:] and a.shape[0] == first.rows and b.shape[0] == other.rows
        for a, b in zip(first.feeds, other.feeds, strict=True)
    )
