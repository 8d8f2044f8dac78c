"""Batching by TF Serving's parameters: batches wait up to a timeout to be filled, in a bounded queue.

Without parameters requests share runs without waiting, as in `batching`. With parameters each signature has a queue of
batches. A batch closes when it is full or its timeout expires, and a batch thread runs it. Row counts that are not
allowed are padded with copies of the first row; the padding's outputs are dropped.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidemill_serving.batch_threads import BatchThreads, ThreadRun
from tidemill_serving.batching import Job, Runner, report_nothing
from tidemill_serving.engine import Array, LoadedModel, Signature
from tidemill_serving.engine.placement import Placement, PlacementTrial
from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.metrics import Metrics
from tidemill_serving.processors import num_processors
from tidemill_serving.schedule import Report, report_no_choice


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingParameters:
    """TF Serving's parameters of batching, with its defaults.

    Attributes:
        max_batch_size: Maximum rows of a batch, and of a request unless `split_large` is set.
        timeout_s: Maximum time in seconds that a batch waits to be filled.
        max_enqueued_batches: Maximum waiting batches; further requests are answered UNAVAILABLE.
        threads: Number of batches that run at the same time.
        allowed_sizes: Allowed row counts of a run, ascending; the last one is the maximum. Empty allows all.
        pad_variable_length: Pad inputs whose other dimensions differ to the largest in the batch.
        split_large: Split requests of more than ``max_batch_size`` rows.
        max_execution_size: Maximum rows of one run.
        thread_pool_name: Label of the metrics.
    """

    max_batch_size: int = 1000
    timeout_s: float = 0.0
    max_enqueued_batches: int = 10
    threads: int = field(default_factory=num_processors)
    allowed_sizes: tuple[int, ...] = ()
    pad_variable_length: bool = False
    split_large: bool = False
    max_execution_size: int = 0
    thread_pool_name: str = "batch_threads"

    @property
    def run_rows(self) -> int:
        """Maximum rows of one run."""
        return (self.split_large and self.max_execution_size) or self.max_batch_size


class BatchQueue(Runner):
    """Runs one signature of one loaded model with batching parameters.

    Args:
        signature: A signature whose first dimensions are all unknown.
        placement: As `Runner`'s; its ``on_loop`` is ignored, since batches always run on batch threads.
        trial: As `Runner`'s.
        loop: The event loop on which `submit` and every ``done`` are called.
        parameters: See `BatchingParameters`.
        metrics: Records how long requests wait for their batch, and the runs.
        unshared: As `Runner`'s.
        placed: As `Runner`'s.
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
        parameters: BatchingParameters,
        metrics: Metrics,
        unshared: Callable[[str], None] = report_nothing,
        placed: Callable[[Placement], None] = report_nothing,
        report: Report = report_no_choice,
    ) -> None:
        super().__init__(
            _SizedModel(model, parameters, metrics),
            signature,
            placement=replace(placement, on_loop=False),
            trial=trial,
            threads=threads,
            loop=loop,
            unshared=unshared,
            placed=placed,
            report=report,
        )
        self._parameters = parameters
        self._metrics = metrics
        self._open: _Batch | None = None
        self._closed: deque[_Batch] = deque()

    def submit(self, job: Job) -> None:
        """Put a job into the open batch, or refuse it. Called on the event loop.

        Args:
            job: Its ``done`` gets the answer or a RequestError, perhaps before this returns.
        """
        refusal = self._refusal(job)
        if refusal is not None:
            job.done(refusal)
            return
        self._unfinished += 1
        self._threads.jobs += 1
        job.since_s = time.perf_counter()
        self._queued_rows[job.kind] += job.rows
        if self._open is not None and not self._fits(self._open, job):
            self._close()
        if self._open is None:
            self._open = _Batch([], [], 0, self._loop.call_later(self._parameters.timeout_s, self._close))
        self._open.jobs.append(job)
        self._open.since_s.append(time.monotonic())
        self._open.rows += job.rows
        if self._open.rows >= self._parameters.max_batch_size:
            self._close()

    def next_run(self) -> ThreadRun | None:
        while self._closed:
            batch = self._closed.popleft()
            jobs = self._wanted(batch.jobs)
            if jobs:
                return self._batch_run(batch, jobs)
        return None

    def _batch_run(self, batch: "_Batch", jobs: list[Job]) -> ThreadRun:
        now_s = time.monotonic()
        self._metrics.batch(self._parameters.thread_pool_name, waits_s=[now_s - since_s for since_s in batch.since_s])
        if self._parameters.pad_variable_length:
            _pad(jobs)
        return self._thread_run(jobs)

    @property
    def has_thread_jobs(self) -> bool:
        return bool(self._closed)

    @property
    def is_ready(self) -> bool:
        return bool(self._closed)

    def _fits_loop(self, size_bytes: int, rows: int) -> bool:
        return False

    def _refusal(self, job: Job) -> RequestError | None:
        limits = self._parameters
        if job.rows > limits.max_batch_size and not limits.split_large:
            return invalid(
                f"Task size {job.rows} is larger than maximum input batch size {limits.max_batch_size}; send fewer rows"
            )
        waiting = len(self._closed) + (self._open is not None)
        joins = self._open is not None and self._fits(self._open, job)
        if waiting >= limits.max_enqueued_batches and not joins:
            message = (
                "The batch scheduling queue to which this task was submitted is full; currently"
                f" {waiting} batches enqueued and max_enqueued_batches is {limits.max_enqueued_batches}"
            )
            return RequestError(Code.UNAVAILABLE, message, headers=(("Retry-After", "1"),))
        return None

    def _fits(self, batch: "_Batch", job: Job) -> bool:
        if batch.rows + job.rows > self._parameters.max_batch_size:
            return False
        ranks_alone = self._parameters.pad_variable_length
        for mine, other in zip(batch.jobs[0].feeds, job.feeds, strict=True):
            if not mine.ndim or mine.ndim != other.ndim or other.shape[0] != job.rows:
                return False
            if not ranks_alone and mine.shape[1:] != other.shape[1:]:
                return False
        return True

    def _close(self) -> None:
        """Close the open batch; it runs as soon as a thread is free."""
        if self._open is not None:
            self._open.timer.cancel()
            self._closed.append(self._open)
            self._open = None
            self._threads.enlist(self)


@dataclass(slots=True)
class _Batch:
    jobs: list[Job]
    since_s: list[float]
    rows: int
    timer: asyncio.TimerHandle


class _SizedModel:
    """A model whose runs have an allowed number of rows: smaller runs are padded, larger ones are split."""

    def __init__(self, model: LoadedModel, parameters: BatchingParameters, metrics: Metrics) -> None:
        self._model = model
        self._parameters = parameters
        self._metrics = metrics
        self.signatures: Mapping[str, Signature] = model.signatures
        self.unusable: Mapping[str, str] = model.unusable
        self.signature_defs: Mapping[str, Any] = model.signature_defs

    def prepare(self, signature: Signature) -> None:
        self._model.prepare(signature)

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        rows = feeds[0].shape[0] if feeds[0].ndim else 1
        if any(not feed.ndim or feed.shape[0] != rows for feed in feeds):
            return self._run(signature, feeds, pooled=pooled)  # the model raises its own error
        most = self._parameters.run_rows
        parts = [
            self._run_part(signature, [feed[begin : begin + most] for feed in feeds], pooled=pooled)
            for begin in range(0, max(rows, 1), most)
        ]
        return parts[0] if len(parts) == 1 else [np.concatenate(column) for column in zip(*parts, strict=True)]

    def close(self) -> None:
        self._model.close()

    def _run_part(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        rows = feeds[0].shape[0]
        size = next((size for size in self._parameters.allowed_sizes if size >= rows), rows) if rows else 0
        if size == rows:
            return self._run(signature, feeds, pooled=pooled)
        filled = [np.concatenate([feed, np.repeat(feed[:1], size - rows, axis=0)]) for feed in feeds]
        outputs = self._run(signature, filled, pooled=pooled)
        return [output[:rows] if output.ndim and output.shape[0] == size else output for output in outputs]

    def _run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        self._metrics.batch_run()
        return self._model.run(signature, feeds, pooled=pooled)


def _pad(jobs: Sequence[Job]) -> None:
    """Pad all feeds of a batch to its largest sizes with the first value of each feed, as TF Serving does."""
    for column in range(len(jobs[0].feeds)):
        shapes = [job.feeds[column].shape[1:] for job in jobs]
        largest = tuple(map(max, itertools.zip_longest(*shapes, fillvalue=0))) if shapes[0] else ()
        for job in jobs:
            feed = job.feeds[column]
            if feed.shape[1:] != largest and feed.size:
                padded = np.full((feed.shape[0], *largest), feed.reshape(-1)[0], dtype=feed.dtype)
                padded[tuple(slice(size) for size in feed.shape)] = feed
                job.feeds[column] = padded
