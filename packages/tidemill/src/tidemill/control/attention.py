"""One task for each thing that wants attention (a job, an endpoint), found by its name or by news of its instances."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from tidemill.errors import ServiceUnavailable
from tidemill.executors.base import InstanceRef

__all__ = ["Attention"]

_log = structlog.get_logger("tidemill.control")
_RETRY_S = 1.0


class Attention:
    """Keeps a task for each name, and wakes it.

    Args:
        kind: What the names are names of, for logs.
        drive: Sees one of them through to its end. Called again, a moment later, while the store takes no writes.
    """

    def __init__(self, kind: str, drive: Callable[[str], Awaitable[None]]) -> None:
        self._kind = kind
        self._drive = drive
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakes: dict[str, asyncio.Event] = {}
        self._names: dict[str, str] = {}

    def wake(self, name: str) -> None:
        """Something about ``name`` changed, or it is new."""
        if name in self._wakes:
            self._wakes[name].set()
            return
        self._wakes[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._attend(name), name=f"{self._kind} {name}")

    def listen(self, job_id: str, name: str) -> None:
        """News of the instances of ``job_id`` are news of ``name``, until its task ends."""
        self._names[job_id] = name

    def changed(self, ref: InstanceRef) -> bool:
        """Pass news of an instance on. Returns whether somebody listens."""
        name = self._names.get(ref.job_id)
        if name is not None:
            self.wake(name)
        return name is not None

    async def wait(self, name: str, *others: asyncio.Future[Any], timeout_s: float) -> None:
        """Until ``name`` is woken, one of the others is done, or time is up."""
        woken = asyncio.create_task(self._wakes[name].wait())
        try:
            await asyncio.wait({woken, *others}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._wakes[name].clear()

    async def close(self) -> None:
        """End all tasks. What they attended to runs on."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, name: str) -> None:
        try:
            while not await self._driven(name):
                await asyncio.sleep(_RETRY_S)
        finally:
            self._names = {job_id: other for job_id, other in self._names.items() if other != name}
            del self._wakes[name], self._tasks[name]

    async def _driven(self, name: str) -> bool:
        try:
            await self._drive(name)
        except ServiceUnavailable as error:
            _log.warning("attention.delayed", kind=self._kind, name=name, reason=error.message)
            return False
        except Exception:  # noqa: BLE001 - nobody awaits this task: a fault of ours must at least be seen
            _log.exception("attention.failed", kind=self._kind, name=name)
        return True
