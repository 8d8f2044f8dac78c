"""A work queue of reconcilers: one task per key (a job or an endpoint) that drives it to its end.

`JobDriver` is the base class of the drivers of jobs, which resume their jobs at the start of the service.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic

import structlog

from tidemill.control.job_spans import job_spans, trace_of
from tidemill.control.jobs import J, Jobs
from tidemill.control.slots import SlotHolder, Slots
from tidemill.core.instances import InstanceRef
from tidemill.core.spans import VARIABLE, Spans
from tidemill.core.training import TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.errors import ServiceUnavailable

_log = structlog.get_logger("tidemill.control")
_RETRY_S = 1.0
_QUEUE_LOOK_S = 60.0  # a stop wakes a waiting job; polling finds a grown capacity


async def _nothing() -> None:
    pass


class WorkQueue:
    """Runs one reconcile task per key; `wake` makes it look again.

    Args:
        kind: Kind of the resources that the keys name, for logs, e.g. ``training job``.
        reconcile: Drives one key to its end. Called again after a second while the store refuses writes.
    """

    def __init__(self, kind: str, reconcile: Callable[[str], Awaitable[None]]) -> None:
        self._kind = kind
        self._reconcile = reconcile
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._keys: dict[str, str] = {}
        self._jobs: dict[str, set[str]] = {}

    def wake(self, key: str) -> None:
        """Make the task of ``key`` look again; start the task if it is not running.

        Args:
            key: Name of a job, or key of an endpoint.
        """
        if key in self._wakes:
            self._wakes[key].set()
            return
        self._wakes[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._run(key), name=f"{self._kind} {key}")

    def listen(self, job_id: str, key: str) -> None:
        """Wake ``key`` on each report of an instance of ``job_id``, until the task of ``key`` ends.

        Args:
            key: Name of a job, or key of an endpoint.
        """
        self._keys[job_id] = key
        self._jobs.setdefault(key, set()).add(job_id)

    def changed(self, ref: InstanceRef) -> bool:
        """Wake the key that listens to an instance. Return whether any key listens to it.

        Args:
            ref: The attempt.
        """
        key = self._keys.get(ref.job_id)
        if key is not None:
            self.wake(key)
        return key is not None

    async def wait(self, key: str, *others: asyncio.Future[Any], timeout_s: float) -> None:
        """Wait until ``key`` is woken, one of ``others`` is done, or ``timeout_s`` has passed.

        Args:
            key: Name of a job, or key of an endpoint.
            *others: Futures; they are not cancelled.
        """
        woken = asyncio.create_task(self._wakes[key].wait())
        try:
            await asyncio.wait({woken, *others}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._wakes[key].clear()

    async def close(self) -> None:
        """End all tasks. The instances of jobs and endpoints run on."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: str) -> None:
        try:
            while True:
                if not await self._reconciled(key):
                    await asyncio.sleep(_RETRY_S)
                elif self._wakes[key].is_set():  # e.g. for a new job with the name of the one that has ended
                    self._wakes[key].clear()
                else:
                    break
        finally:
            for job_id in self._jobs.pop(key, ()):
                if self._keys.get(job_id) == key:
                    del self._keys[job_id]
            del self._wakes[key], self._tasks[key]

    async def _reconciled(self, key: str) -> bool:
        try:
            await self._reconcile(key)
        except ServiceUnavailable as error:
            _log.warning("reconcile.delayed", kind=self._kind, name=key, reason=error.message)
            return False
        except Exception:  # noqa: BLE001 - no caller awaits this task: the log is the only place to show the failure
            _log.exception("reconcile.failed", kind=self._kind, name=key)
        return True


async def guarded(work: Awaitable[None], name: str, fail: Callable[[str], Awaitable[None]]) -> bool:
    """Drive a job or an endpoint; a defect of its driver is logged, and becomes its FailureReason.

    Args:
        work: Drives it. `ServiceUnavailable` is raised on, so that the queue tries again.
        name: Name of the job or endpoint, for the log.
        fail: Called with the FailureReason after any other error.

    Returns:
        Whether there was no such error.
    """
    try:
        await work
    except ServiceUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - a defect of the driver must appear in the FailureReason
        _log.exception("driver.failed", name=name)
        await fail(f"InternalServerError: {type(error).__name__}: {error}")
        return False
    return True


class JobDriver(ABC, Generic[J]):
    """Runs one task for each job that has not ended."""

    def __init__(self, jobs: Jobs[J]) -> None:
        self._jobs = jobs
        self._spans: Spans | None = None
        self._job = jobs.get
        self._update = jobs.update
        self._queue = WorkQueue(jobs.kind.title, self._drive)
        self._listeners: list[Callable[[J], None]] = []

    def when_ended(self, listener: Callable[[J], None]) -> None:
        """Call ``listener`` with each job whose end is committed from now on.

        Args:
            listener: Quick; does not wait.
        """
        self._listeners.append(listener)

    def trace(self, spans: Spans | None) -> None:
        """Note the spans of each job and its phases at its end; scripts get the span of their job as parent.

        Args:
            spans: Where they go; None makes none.
        """
        self._spans = spans

    def _trace_variables(self, job: TrainingJob) -> dict[str, str]:
        if self._spans is None or VARIABLE in job.request.get("Environment", {}):
            return {}
        return {VARIABLE: trace_of(job).traceparent}

    def _announce(self, job: J) -> None:
        """Call the listeners of `when_ended`, and note the spans of the job if it is traced."""
        if self._spans is not None and isinstance(job, TrainingJob | TransformJob):
            for span in job_spans(job, kind=self._jobs.kind.kind):
                self._spans.note(span)
        for listener in self._listeners:
            listener(job)

    async def start(self) -> None:
        """Resume every job that has not ended: running jobs first, then the oldest."""
        jobs = [job async for job in self._jobs.unfinished()]
        for job in sorted(jobs, key=lambda job: (not self._runs(job), job.created_ms)):
            self.wake(job.name)
            await asyncio.sleep(0)  # lets the task take its place in the queue before the next one

    def wake(self, name: str) -> None:
        """Reconcile a job that was created or changed.

        Args:
            name: Name of the job.
        """
        self._queue.wake(name)

    def changed(self, ref: InstanceRef) -> bool:
        """Reconcile the job of an instance whose state changed. Return whether the instance is one of these jobs'.

        Args:
            ref: The attempt.
        """
        return self._queue.changed(ref)

    async def close(self) -> None:
        """Stop driving jobs. Their instances run on, and the next service continues to drive them."""
        await self._queue.close()

    def _holder(self, name: str) -> SlotHolder:
        return SlotHolder(self._jobs.kind.kind, name)

    async def _take_slots(
        self,
        slots: Slots,
        name: str,
        count: int,
        *,
        gpus: int = 0,
        stopped: Callable[[], bool],
        when_queued: Callable[[], Awaitable[None]] = _nothing,
        when_granted: Callable[[], Awaitable[None]] = _nothing,
    ) -> bool:
        """Take slots for a job; wait until they are free.

        Args:
            gpus: GPUs of all instances together.
            stopped: Whether the job was asked to stop.
            when_queued: Called once if the job has to wait.
            when_granted: Called after the wait.

        Returns:
            False if the job was stopped meanwhile. It then has no slots.
        """
        if stopped():
            return False
        holder = self._holder(name)
        if slots.try_take(holder, count, gpus=gpus):
            return True
        # Join the queue before the first await, so that no younger job gets ahead.
        place = asyncio.create_task(slots.take(holder, count, gpus=gpus))
        admitted = False
        try:
            await when_queued()
            while not place.done() and not stopped():
                await self._queue.wait(name, place, timeout_s=_QUEUE_LOOK_S)
                slots.grant_waiting()
            if not stopped():
                await when_granted()
                admitted = True
        finally:
            if not admitted and place.done() and not place.cancelled():
                slots.release(holder)
            elif not admitted:
                place.cancel()
                await asyncio.wait({place})
        return admitted

    async def _drive(self, name: str) -> None:
        """Drive a job from its stored state to its end."""
        job = self._jobs.find(name)
        if job is None or job.status.terminal:  # deleted, or ended
            return
        await guarded(self._run(job), name, lambda reason: self._fail(job, reason))

    @abstractmethod
    async def _run(self, job: J) -> None:
        """Drive a job that has not ended to its end."""

    @abstractmethod
    async def _fail(self, job: J, reason: str) -> None:
        """End a job whose driver has a defect.

        Args:
            job: The job as it was when `_run` began.
            reason: FailureReason.
        """

    @abstractmethod
    def _runs(self, job: J) -> bool:
        """Return whether instances of the job were launched."""
