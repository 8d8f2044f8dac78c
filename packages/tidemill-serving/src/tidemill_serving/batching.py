"""Run a model version on the event loop or on batch threads, and batch the rows of waiting requests.

There is no timer. Requests read in one turn of the event loop, or received while all processors are taken, share the
next run if the times of earlier runs show that this makes them cheaper (`schedule`). Otherwise each runs on a processor
of its own (`batch_threads`). A single request runs at once.

Only signatures whose first dimensions are all unknown are batched, and only requests whose other dimensions and types
agree. If a shared run fails, its requests run one by one, so that no request gets the error of another; if all of them
then succeed, the model itself cannot be batched, which is reported once. A signature whose runs have effects runs once
for each request, as in TF Serving.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from tidemill_serving.admission import refusal
from tidemill_serving.batch_threads import BatchThreads, ThreadRun
from tidemill_serving.engine import Array, LoadedModel, Signature
from tidemill_serving.engine.placement import Placement, PlacementTrial
from tidemill_serving.engine.twin import Twin
from tidemill_serving.errors import Code, RequestError, failed_precondition, invalid
from tidemill_serving.schedule import Report, RunSchedule, report_no_choice

DEFAULT_MAX_ROWS = 32
_LOOP_FEED_BYTES = 65_536  # a time measured with one row says nothing about much larger feeds
_SLOW_RUN_S = 0.01
_SLOW_RUNS, _SLOW_S = 2, 0.1  # consecutive runs, and their total time: less may be noise of the machine
_OVER = RequestError(Code.CANCELLED, "the client did not wait for the answer")
_Done = Callable[["list[Array] | RequestError"], None]
_Call = Callable[[Sequence[Array]], list[Array]]


def report_nothing(what: object) -> None:
    """Ignore why a run cannot be shared, or where a signature runs."""


def _never() -> bool:
    return False


@dataclass(slots=True, eq=False)
class Job:
    """One request's share of a run. ``done`` is called once, on the event loop.

    ``is_over`` returns whether nobody waits for the answer any more. Then the job does not run, if it still waits.
    """

    feeds: list[Array]
    done: _Done
    is_over: Callable[[], bool] = _never
    rows: int = field(init=False)
    size_bytes: int = field(init=False)
    is_alone: bool = field(init=False, default=False)
    since_s: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        first = self.feeds[0] if self.feeds else None
        self.rows = first.shape[0] if first is not None and first.ndim else 1
        self.size_bytes = first.nbytes if first is not None else 0
        for feed in self.feeds[1:]:
            self.size_bytes += feed.nbytes

    @property
    def kind(self) -> int:
        """Size of a row in bytes, as a power of two."""
        return (self.size_bytes // max(self.rows, 1)).bit_length()


class Runner:
    """Runs one signature of one loaded model.

    Args:
        placement: The thread that it runs on at first.
        trial: Times runs until it has decided the placement; None if the placement is decided.
        threads: Run what does not run on the loop.
        loop: The event loop on which `submit` and every ``done`` are called.
        max_rows: Maximum rows of a shared run; 1 disables batching, as do effects of a run. A request with more rows
            runs alone.
        unshared: Called once, on any thread, with the reason if a shared run fails whose requests all succeed alone.
        placed: Called with each new placement, on the loop, or on the thread that loads the model.
        twin: The second session of the model; None if there can be none.
        only_narrow: The model's only session runs operations on the calling thread.
        report: Called when the choices for runs on threads change; see `schedule`.
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
        twin: Twin | None = None,
        only_narrow: bool = False,
        report: Report = report_no_choice,
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
        self._queued_rows: Counter[int] = Counter()  # by kind
        self._runs = 0
        self._last = (0, 1)  # kind and rows
        self.used_s = 0.0
        effects = signature.traits.has_effects
        self._schedule = RunSchedule(
            threads,
            max_rows=self._max_rows,
            twin=None if effects else twin,
            only_narrow=only_narrow and not effects,
            report=report,
        )
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
        if not self.takes_here(job):
            self._enqueue(job)
            return
        self._unfinished += 1
        if self._max_rows == 1:
            self._finish([job], self._run_on_loop([job]))
        else:
            self._loop_jobs.append(job)
            self._wake()

    def refusal_unread(self) -> RequestError | None:
        """Return the error for a request that arrives during an overload, before it is read; None if it may wait.

        Reading a request takes time too, of which there is none to spare.
        """
        if not self._schedule.admission.is_overloaded or self._placement.on_loop:
            return None
        kind, rows = self._last
        queued = len(self._thread_jobs)
        return self._schedule.refusal(kind, rows, queued=queued, queued_rows=self._queued_rows, is_read=False)

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
        return self._run_one(job, self._call(pooled=self._placement.pooled))

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

    def next_run(self) -> ThreadRun | None:
        """Return the next run for a thread, or None if no job waits."""
        while self._thread_jobs:
            first = self._thread_jobs[0]
            rows = self._schedule.rows_for(first.kind, self._queued_rows[first.kind], narrow=self.next_is_narrow)
            jobs = self._wanted(self._take(self._thread_jobs, rows))
            if jobs:
                return self._thread_run(jobs)
        return None

    @property
    def has_thread_jobs(self) -> bool:
        """Whether jobs wait for a thread."""
        return bool(self._thread_jobs)

    @property
    def is_ready(self) -> bool:
        """Whether a run can start: rows that are cheaper together wait for those that run to end."""
        if not self._thread_jobs:
            return False
        if not self._runs or self._max_rows == 1:
            return True
        kind, narrow = self._thread_jobs[0].kind, self.next_is_narrow
        return not self._schedule.waits_for_more(kind, self._queued_rows[kind], narrow=narrow)

    @property
    def next_is_narrow(self) -> bool:
        """Whether the next run's operations run on the calling thread alone."""
        return bool(self._thread_jobs) and self._is_narrow(self._thread_jobs)

    @property
    def expected_s(self) -> float:
        """Expected duration of a run of the next job in seconds; 0 if it is not known."""
        if not self._thread_jobs:
            return 0.0
        first = self._thread_jobs[0]
        return self._schedule.expected_s(first.kind, first.rows, narrow=self.next_is_narrow)

    @property
    def schedule(self) -> RunSchedule:
        """What was learned and chosen for runs on threads."""
        return self._schedule

    def _is_narrow(self, jobs: Sequence[Job]) -> bool:
        alone = len(jobs) == 1 and jobs[0].is_alone
        return self._schedule.is_narrow(jobs[0].kind, jobs[0].rows, alone=alone)

    def _enqueue(self, job: Job) -> None:
        """Queue a job for the threads, or refuse it."""
        was_overloaded = self._schedule.admission.is_overloaded
        refused = self._schedule.refusal(
            job.kind, job.rows, queued=len(self._thread_jobs), queued_rows=self._queued_rows
        )
        if self._schedule.admission.is_overloaded and not was_overloaded:
            self._shed()
        if refused is not None:
            job.done(refused)
            return
        self._unfinished += 1
        job.is_alone = not self._threads.jobs
        job.since_s = time.perf_counter()
        self._threads.jobs += 1
        self._queued_rows[job.kind] += job.rows
        if self._schedule.admission.newest_first:
            self._thread_jobs.appendleft(job)
        else:
            self._thread_jobs.append(job)
        self._wake()

    def _shed(self) -> None:
        """Refuse the waiting jobs that would be answered too late, at the beginning of an overload."""
        waiting, now_s = list(self._thread_jobs), time.perf_counter()
        self._thread_jobs.clear()
        self._queued_rows.clear()
        for job in waiting:
            waited_s = now_s - job.since_s
            if self._schedule.is_late(job.kind, job.rows, waited_s=waited_s, queued_rows=self._queued_rows):
                self._schedule.admission.note_refusal()
                self._threads.jobs -= 1
                self._finish([job], [refusal(0.0)])
            else:
                self._thread_jobs.append(job)
                self._queued_rows[job.kind] += job.rows
        if not self._thread_jobs:
            self._threads.withdraw(self)

    def _wanted(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs whose clients still wait, and end the others, which no longer wait for a thread."""
        over = [job for job in jobs if job.is_over()]
        if not over:
            return jobs
        for job in over:
            self._queued_rows[job.kind] -= job.rows
        self._threads.jobs -= len(over)
        self._finish(over, [_OVER] * len(over))
        return [job for job in jobs if job not in over]

    def _thread_run(self, jobs: list[Job]) -> ThreadRun:
        """Return a run of jobs that no longer wait."""
        rows, kind = sum(job.rows for job in jobs), jobs[0].kind
        for job in jobs:
            self._queued_rows[job.kind] -= job.rows
        self._runs += 1
        self._last = kind, jobs[0].rows
        narrow = self._is_narrow(jobs)
        model = (narrow and self._schedule.narrow_model()) or self._model
        pooled = not narrow and self._way(jobs)
        call = self._call(model, pooled=pooled)
        expected_s = self._schedule.expected_s(kind, rows, narrow=narrow)
        run = ThreadRun(self, lambda: self._run_on_thread(run, jobs, call, pooled=pooled), narrow, expected_s)
        return run

    def _call(self, model: LoadedModel | None = None, *, pooled: bool) -> _Call:
        used = model or self._model
        return lambda feeds: used.run(self._signature, feeds, pooled=pooled)

    def _wake(self) -> None:
        """Schedule the queues after the loop has read everything that arrived in this turn."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._woken = False
        while self._loop_jobs:
            jobs = self._take(self._loop_jobs, self._max_rows)
            self._finish(jobs, self._run_on_loop(jobs))
        if self._thread_jobs:
            self._threads.enlist(self)

    def _run_on_loop(self, jobs: list[Job]) -> "list[list[Array] | RequestError]":
        """Run on the loop. A signature that proves slow moves to the threads permanently."""
        begin = time.perf_counter()
        results = self._run(jobs, self._call(pooled=self._placement.pooled))
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

    def _run_on_thread(self, run: ThreadRun, jobs: list[Job], call: _Call, *, pooled: bool) -> None:
        begin_s, begin_cost_s = time.perf_counter(), time.thread_time()
        results = self._run(jobs, call)
        elapsed_s = time.perf_counter() - begin_s
        # The processor time of a narrow run does not depend on what else the machine does.
        cost_s = time.thread_time() - begin_cost_s if run.narrow else elapsed_s
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._finish_on_loop, run, jobs, results, elapsed_s, cost_s, pooled)

    def _finish_on_loop(
        self,
        run: ThreadRun,
        jobs: list[Job],
        results: "list[list[Array] | RequestError]",
        elapsed_s: float,
        cost_s: float,
        pooled: bool,
    ) -> None:
        self._learn(jobs, results, elapsed_s=elapsed_s, pooled=pooled)
        if not any(isinstance(result, RequestError) for result in results):
            self._schedule.learn(
                jobs[0].kind,
                sum(job.rows for job in jobs),
                elapsed_s=elapsed_s,
                cost_s=cost_s,
                narrow=run.narrow,
                alone=len(jobs) == 1 and jobs[0].is_alone,
            )
        self._runs -= 1
        self._threads.jobs -= len(jobs)
        now_s = time.perf_counter()
        self._schedule.answered([now_s - job.since_s for job in jobs])
        self._threads.release(run)
        self._finish(jobs, results)

    def _finish(self, jobs: list[Job], results: "list[list[Array] | RequestError]") -> None:
        self._unfinished -= len(jobs)
        for job, result in zip(jobs, results, strict=True):
            job.done(result)
        if self._drained is not None and not self._unfinished and not self._drained.done():
            self._drained.set_result(None)

    def _take(self, jobs: deque[Job], max_rows: int) -> list[Job]:
        """Pop the first job and the following ones that fit into its run."""
        taken: list[Job] = []
        rows = 0
        while jobs and (not taken or (rows + jobs[0].rows <= max_rows and _alike(taken[0], jobs[0]))):
            job = jobs.popleft()
            taken.append(job)
            rows += job.rows
        return taken

    def _run(self, jobs: list[Job], call: _Call) -> "list[list[Array] | RequestError]":
        if len(jobs) == 1:
            return [self._run_one(jobs[0], call)]
        shared = self._run_together(jobs, call)
        if not isinstance(shared, RequestError):
            return shared
        if self._signature.traits.has_effects:  # batched by configuration: a second run could repeat the effects
            return [shared for _ in jobs]
        results = [self._run_one(job, call) for job in jobs]
        if not any(isinstance(result, RequestError) for result in results):
            report, self._unshared = self._unshared, None
            if report is not None:
                report(shared.message)
        return results

    def _run_together(self, jobs: list[Job], call: _Call) -> "list[list[Array] | RequestError] | RequestError":
        """Run jobs at once; return the error if each of them has to run alone, to get its own error or result."""
        columns = zip(*(job.feeds for job in jobs), strict=True)
        rows = sum(job.rows for job in jobs)
        try:
            outputs = call([np.concatenate(column) for column in columns])
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

    def _run_one(self, job: Job, call: _Call) -> "list[Array] | RequestError":
        try:
            return call(job.feeds)
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
