"""Slots for training instances of the executor, and their GPUs, first come, first served."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _QueuePlace:
    """A job in the queue."""

    count: int
    gpus: int
    granted: asyncio.Future[None]


class Slots:
    """Counts running instances and their GPUs.

    A job that needs more slots than exist starts when no other job runs. It runs slowly instead of waiting forever.

    Args:
        capacity: Returns the maximum number of concurrent instances, which may change.
        gpus: Returns the number of GPUs. Default: none.
    """

    def __init__(self, capacity: Callable[[], int], *, gpus: Callable[[], int] = lambda: 0) -> None:
        self._capacity = capacity
        self._gpus = gpus
        self._taken = self._gpus_taken = 0
        self._waiting: deque[_QueuePlace] = deque()

    @property
    def taken(self) -> int:
        """Number of instances that run."""
        return self._taken

    @property
    def waiting(self) -> int:
        """Number of jobs that wait for slots."""
        return len(self._waiting)

    @property
    def free(self) -> int:
        """Number of free slots."""
        return max(0, self._capacity() - self._taken)

    def try_take(self, count: int, *, gpus: int = 0) -> bool:
        """Reserve slots if enough are free and no job waits; return whether they were reserved.

        Args:
            gpus: GPUs of all instances together.
        """
        if self._waiting or not self._fits(count, gpus):
            return False
        self.force(count, gpus=gpus)
        return True

    def force(self, count: int, *, gpus: int = 0) -> None:
        """Reserve slots for instances that are already running, after a restart of the service.

        Args:
            gpus: GPUs of all instances together.
        """
        self._taken += count
        self._gpus_taken += gpus

    async def take(self, count: int, *, gpus: int = 0) -> None:
        """Wait for slots and take them. A cancelled call leaves the queue and holds no slots.

        Args:
            gpus: GPUs of all instances together.
        """
        place = _QueuePlace(count, gpus, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._grant()
        try:
            await place.granted
        except asyncio.CancelledError:
            if place.granted.done() and not place.granted.cancelled():
                self.release(count, gpus=gpus)
            else:
                self._waiting.remove(place)
                self._grant()
            raise

    def release(self, count: int, *, gpus: int = 0) -> None:
        """Give slots back, and grant them to waiting jobs.

        Args:
            gpus: GPUs of all instances together.
        """
        self._taken -= count
        self._gpus_taken -= gpus
        self._grant()

    def grant_waiting(self) -> None:
        """Grant waiting requests after an increase of the capacity."""
        self._grant()

    def _fits(self, count: int, gpus: int) -> bool:
        if self._taken == 0:
            return True
        return self._taken + count <= self._capacity() and (not gpus or self._gpus_taken + gpus <= self._gpus())

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0].count, self._waiting[0].gpus):
            place = self._waiting.popleft()
            self.force(place.count, gpus=place.gpus)
            place.granted.set_result(None)
