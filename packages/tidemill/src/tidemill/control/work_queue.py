"""A work queue of reconcilers: one task per key (a job or an endpoint) that drives it to its end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from tidemill.errors import ServiceUnavailable
from tidemill.instance.spec import InstanceRef

__all__ = ["WorkQueue"]

_log = structlog.get_logger("tidemill.control")
_RETRY_S = 1.0


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
        """Make the task of ``key`` look again; start the task if it is not running."""
        if key in self._wakes:
            self._wakes[key].set()
            return
        self._wakes[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._run(key), name=f"{self._kind} {key}")

    def listen(self, job_id: str, key: str) -> None:
        """Wake ``key`` on each report of an instance of ``job_id``, until the task of ``key`` ends."""
        self._keys[job_id] = key
        self._jobs.setdefault(key, set()).add(job_id)

    def changed(self, ref: InstanceRef) -> bool:
        """Wake the key that listens to an instance. Return whether any key listens to it."""
        key = self._keys.get(ref.job_id)
        if key is not None:
            self.wake(key)
        return key is not None

    async def wait(self, key: str, *others: asyncio.Future[Any], timeout_s: float) -> None:
        """Wait until ``key`` is woken, one of ``others`` is done, or ``timeout_s`` has passed."""
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
            while not await self._reconciled(key):
                await asyncio.sleep(_RETRY_S)
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
