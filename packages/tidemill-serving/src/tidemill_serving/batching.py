"""Run a model version on the event loop or on batch threads, and batch the rows of waiting requests.

There is no timer. Requests read in one turn of the event loop, or received while every slot is taken, share the next
run; a single request runs at once. Only signatures whose first dimensions are all unknown are batched, and only
requests whose other dimensions and types agree. If a shared run fails, its requests run one by one, so that no request
gets the error of another; if all of them then succeed, the model itself cannot be batched, which is reported once.
A signature whose runs have effects runs once for each request, as in TF Serving.
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
from tidemill_serving.engine.placement import Placement, PlacementTrial
from tidemill_serving.errors import Code, RequestError, failed_precondition, invalid

DEFAULT_MAX_ROWS = 32
_LOOP_FEED_BYTES = 65_536  # a time measured with one row says nothing about much larger feeds
_SLOW_RUN_S = 0.01
_SLOW_RUNS, _SLOW_S = 2, 0.1  # consecutive runs, and their total time: less may be noise of the machine
_Done = Callable[["list[Array] | RequestError"], None]


def report_nothing(what: object) -> None:
    """Ignore why a run cannot be shared, or where a signature runs."""


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
        self.size_bytes = first.nbytes if first is not None else 0
        for feed in self.feeds[1:]:
            self.size_bytes += feed.nbytes


class BatchThreads:
    """Threads for longer runs. Each thread is one slot; runs wait in their runner, not here.

    Args:
        slots: Maximum number of concurrent runs.
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
        """Queue a runner that has jobs for the next free slot; called on the loop.

        Args:
            runner: A runner with at least one waiting job.
        """
        self._waiting.append(runner)
        self.dispatch()

    def dispatch(self) -> None:
        """Fill free slots, one batch per waiting runner in turn; called on the loop."""
        while self._free and self._waiting:
            runner = self._waiting.popleft()
            task = runner.next_task()
            if task is not None:
                self._free -= 1
                self._tasks.put(task)
            if runner.has_thread_jobs:
                self._waiting.append(runner)

    def release(self) -> None:
        """Return a slot; called on the loop."""
        self._free += 1
        self.dispatch()

    def close(self) -> None:
        """Make the threads exit when they are idle."""
        for _ in self._threads:
            self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


class Runner:
    """Runs one signature of one loaded model.

    Args:
        placement: The thread that it runs on at first.
        trial: Times runs until it has decided the placement; None if the placement is decided.
        threads: Slots for runs outside the loop.
        loop: The event loop on which `submit` and every ``done`` are called.
        max_rows: Maximum rows of a shared run; 1 disables batching, as do effects of a run. A request with more rows
            runs alone.
        unshared: Called once, on any thread, with the reason if a shared run fails whose requests all succeed alone.
        placed: Called with each new placement, on the loop, or on the thread that loads the model.
    """

    def __init__(
        self,
        model: LoadedModel,
        signature: Signature,
        *,
        placement: Placement,
        trial: PlacementTrial | None = None,
        threads: BatchThreads,
        loop: asyncio.AbstractEventLoop,
        max_rows: int = DEFAULT_MAX_ROWS,
        unshared: Callable[[str], None] = report_nothing,
        placed: Callable[[Placement], None] = report_nothing,
    ) -> None:
        self._model = model
        self._signature = signature
        self._placement = placement
        self._trial = trial
        self._placed = placed
        self._threads = threads
        self._loop = loop
        self._max_rows = max_rows if signature.batchable and not signature.traits.has_effects else 1
        self._max_loop_rows = max(self._max_rows, DEFAULT_MAX_ROWS)
        self._loop_jobs: deque[Job] = deque()
        self._thread_jobs: deque[Job] = deque()
        self._woken = False
        self._slow_runs: list[float] = []
        self._unshared: Callable[[str], None] | None = unshared
        self._unfinished = 0
        self._drained: asyncio.Future[None] | None = None

    @property
    def placement(self) -> Placement:
        """The thread that runs the signature: the loop's or a batch thread."""
        return self._placement

    async def drained(self) -> None:
        """Wait until every job is done; called after the last submit."""
        if self._unfinished:
            self._drained = self._loop.create_future()
            await self._drained

    def submit(self, job: Job) -> None:
        """Enqueue or run a job; its ``done`` may be called before this returns.

        Args:
            job: Its ``done`` gets the outputs or a RequestError.
        """
        self._unfinished += 1
        if not self.takes_here(job):
            self._thread_jobs.append(job)
            self._wake()
        elif self._max_rows == 1:
            self._finish([job], self._run_on_loop([job]))
        else:
            self._loop_jobs.append(job)
            self._wake()

    def takes_here(self, job: Job) -> bool:
        """Return whether a job is small enough for `run_here`.

        Args:
            job: The job; its bytes and rows are compared with the signature's limits.

        Returns:
            False if the run may block the event loop.
        """
        return self._placement.on_loop and self._fits_loop(job.size_bytes, job.rows)

    def run_here(self, job: Job) -> "list[Array] | RequestError":
        """Run one job on the calling thread, which must not be the loop's; ``done`` is not called.

        A thread that blocks on its answer saves the hand-over to the loop and back, which costs more than a small run.

        Args:
            job: Its feeds are complete; its rows are not joined with others.

        Returns:
            The outputs, or the error of the run.
        """
        return self._run_one(job, pooled=self._placement.pooled)

    def warm_up(self, feeds: list[Array]) -> list[Array]:
        """Run a recorded request on the calling thread, before any request is submitted.

        Raises:
            RequestError: The run failed.
        """
        job = Job(feeds, report_nothing)
        pooled = self._way([job])
        begin = time.perf_counter()
        outputs = self._model.run(self._signature, feeds, pooled=pooled)
        self._learn([job], [outputs], elapsed_s=time.perf_counter() - begin, pooled=pooled)
        return outputs

    @property
    def shared_rows(self) -> int:
        """Maximum rows for `run_shared`; 0 if requests do not share runs on the event loop."""
        return self._max_rows if self._placement.on_loop and self._max_rows > 1 else 0

    def run_shared(self, feeds: Sequence[Array]) -> list[Array] | None:
        """Run the rows of several requests at once, on the event loop.

        Returns:
            The outputs, or None if the run failed. The caller then submits each request. If their next shared run also
            fails, each of them runs alone and gets its own error; if all of them succeed, ``unshared`` is called.
        """
        begin = time.perf_counter()
        try:
            return self._model.run(self._signature, feeds, pooled=self._placement.pooled)
        except Exception:  # noqa: BLE001  # the caller submits the requests, and `_run` reports a repeated failure
            return None
        finally:
            self._watch(time.perf_counter() - begin)

    def next_task(self) -> Callable[[], None] | None:
        """Return the next shared run for a batch thread, or None if no job waits."""
        jobs = self._take(self._thread_jobs)
        return self._task(jobs) if jobs else None

    @property
    def has_thread_jobs(self) -> bool:
        """Whether jobs wait for another slot."""
        return bool(self._thread_jobs)

    def _task(self, jobs: list[Job]) -> Callable[[], None]:
        pooled = self._way(jobs)
        return lambda: self._run_on_thread(jobs, pooled=pooled)

    def _wake(self) -> None:
        """Schedule the queues after the loop has read everything that arrived in this turn."""
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
        """Run on the loop. A signature that proves slow moves to the threads permanently."""
        begin = time.perf_counter()
        results = self._run(jobs, pooled=self._placement.pooled)
        self._watch(time.perf_counter() - begin)
        return results

    def _watch(self, elapsed_s: float) -> None:
        self._slow_runs = [*self._slow_runs, elapsed_s] if elapsed_s > _SLOW_RUN_S else []
        if len(self._slow_runs) >= _SLOW_RUNS and sum(self._slow_runs) >= _SLOW_S:
            self._place(replace(self._placement, on_loop=False))

    def _place(self, placement: Placement) -> None:
        self._placement = placement
        self._placed(placement)

    def _fits_loop(self, size_bytes: int, rows: int) -> bool:
        return size_bytes <= _LOOP_FEED_BYTES and rows <= self._max_loop_rows

    def _way(self, jobs: Sequence[Job]) -> bool:
        """Return whether to distribute the operations of the next run over TensorFlow's threads."""
        if self._trial is None:
            return self._placement.pooled
        return self._trial.pooled(sum(job.size_bytes for job in jobs))

    def _learn(self, jobs: Sequence[Job], results: Sequence[object], *, elapsed_s: float, pooled: bool) -> None:
        """Let the trial decide the placement by a run, unless a request failed: its time tells nothing about others."""
        if self._trial is None or any(isinstance(result, RequestError) for result in results):
            return
        size_bytes, rows = sum(job.size_bytes for job in jobs), sum(job.rows for job in jobs)
        fits_loop = self._fits_loop(size_bytes, rows)
        decided = self._trial.add(elapsed_s, pooled=pooled, rows=rows, size_bytes=size_bytes, fits_loop=fits_loop)
        if decided is not None:
            self._trial = None
            self._place(decided)

    def _run_on_thread(self, jobs: list[Job], *, pooled: bool) -> None:
        begin = time.perf_counter()
        results = self._run(jobs, pooled=pooled)
        elapsed_s = time.perf_counter() - begin
        self._loop.call_soon_threadsafe(self._finish_on_loop, jobs, results, elapsed_s, pooled)

    def _finish_on_loop(
        self, jobs: list[Job], results: "list[list[Array] | RequestError]", elapsed_s: float, pooled: bool
    ) -> None:
        self._learn(jobs, results, elapsed_s=elapsed_s, pooled=pooled)
        self._threads.release()
        self._finish(jobs, results)

    def _finish(self, jobs: list[Job], results: "list[list[Array] | RequestError]") -> None:
        self._unfinished -= len(jobs)
        for job, result in zip(jobs, results, strict=True):
            job.done(result)
        if self._drained is not None and not self._unfinished and not self._drained.done():
            self._drained.set_result(None)

    def _take(self, jobs: deque[Job]) -> list[Job]:
        """Pop the first job and the following ones that fit into its run."""
        taken: list[Job] = []
        rows = 0
        while jobs and (not taken or (rows + jobs[0].rows <= self._max_rows and _alike(taken[0], jobs[0]))):
            job = jobs.popleft()
            taken.append(job)
            rows += job.rows
        return taken

    def _run(self, jobs: list[Job], *, pooled: bool) -> "list[list[Array] | RequestError]":
        if len(jobs) == 1:
            return [self._run_one(jobs[0], pooled=pooled)]
        shared = self._run_together(jobs, pooled=pooled)
        if not isinstance(shared, RequestError):
            return shared
        if self._signature.traits.has_effects:  # batched by configuration: a second run could repeat the effects
            return [shared for _ in jobs]
        results = [self._run_one(job, pooled=pooled) for job in jobs]
        if not any(isinstance(result, RequestError) for result in results):
            report, self._unshared = self._unshared, None
            if report is not None:
                report(shared.message)
        return results

    def _run_together(self, jobs: list[Job], *, pooled: bool) -> "list[list[Array] | RequestError] | RequestError":
        """Run jobs at once; return the error if each of them has to run alone, to get its own error or result."""
        columns = zip(*(job.feeds for job in jobs), strict=True)
        rows = sum(job.rows for job in jobs)
        try:
            outputs = self._model.run(self._signature, [np.concatenate(column) for column in columns], pooled=pooled)
        except RequestError as error:
            return error
        except Exception as error:  # noqa: BLE001  # the jobs decide what it means
            return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")
        for alias, output in zip(self._signature.outputs, outputs, strict=True):
            if not output.ndim or output.shape[0] != rows:
                return failed_precondition(
                    f"the output {alias} has the shape {list(output.shape)} for {rows} rows of input"
                )
        ends = np.cumsum([job.rows for job in jobs]).tolist()
        return [[output[end - job.rows : end] for output in outputs] for job, end in zip(jobs, ends, strict=True)]

    def _run_one(self, job: Job, *, pooled: bool) -> "list[Array] | RequestError":
        try:
            return self._model.run(self._signature, job.feeds, pooled=pooled)
        except RequestError as error:
            return self._explained(error, job.feeds)
        except Exception as error:  # noqa: BLE001  # one request's failure must not end the thread that serves all
            return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")

    def _explained(self, error: RequestError, feeds: Sequence[Array]) -> RequestError:
        """Return an error that names the input whose shape contradicts the signature; TensorFlow's often does not.

        The code is then INVALID_ARGUMENT, although TensorFlow's status differs: UNIMPLEMENTED for an unsupported rank.
        """
        for (name, spec), feed in zip(self._signature.inputs.items(), feeds, strict=True):
            if not spec.admits(feed.shape):
                expected, got = (",".join(map(str, shape)) for shape in (spec.shape or (), feed.shape))
                message = f"Expecting shape [{expected}] but got: [{got}] for input {name}. {error.message}"
                return invalid(message)
        return error


def _alike(first: Job, other: Job) -> bool:
    """Return whether both jobs' rows fit into one array: no scalars, and all dimensions but the first agree."""
    for a, b in zip(first.feeds, other.feeds):  # noqa: B905  # a check of the lengths costs as much as the rest
        if not (a.ndim and b.ndim) or a.shape[1:] != b.shape[1:]:
            return False
        if a.shape[0] != first.rows or b.shape[0] != other.rows:
            return False
    return True
