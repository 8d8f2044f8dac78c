"""Base class of the job drivers: one task per job, resumed at the service's start, woken by requests and instances."""

import asyncio
from abc import ABC, abstractmethod
from typing import Generic

from tidemill.control.jobs import J, Jobs
from tidemill.control.work_queue import WorkQueue
from tidemill.instance.spec import InstanceRef

__all__ = ["JobDriver"]


class JobDriver(ABC, Generic[J]):
    """Runs one task for each job that has not ended.

    Args:
        jobs: The stored jobs.
    """

    def __init__(self, jobs: Jobs[J]) -> None:
        self._jobs = jobs
        self._job = jobs.get
        self._update = jobs.update
        self._queue = WorkQueue(jobs.kind.title, self._drive)

    async def start(self) -> None:
        """Resume every job that has not ended: running jobs first, then the oldest."""
        jobs = [job async for job in self._jobs.unfinished()]
        for job in sorted(jobs, key=lambda job: (not self._runs(job), job.created_ms)):
            self.wake(job.name)
            await asyncio.sleep(0)  # lets the task take its place in the queue before the next one

    def wake(self, name: str) -> None:
        """Reconcile a job that was created or changed."""
        self._queue.wake(name)

    def changed(self, ref: InstanceRef) -> bool:
        """Reconcile the job of an instance whose state changed. Return whether the instance is one of these jobs'."""
        return self._queue.changed(ref)

    async def close(self) -> None:
        """Stop driving jobs. Their instances run on, and the next service continues to drive them."""
        await self._queue.close()

    @abstractmethod
    async def _drive(self, name: str) -> None:
        """Drive a job from its stored state to its end."""

    @abstractmethod
    def _runs(self, job: J) -> bool:
        """Return whether instances of the job were launched."""
