"""Slots for training instances of the executor, first come, first served."""

import asyncio
from collections import deque
from collections.abc import Callable

__all__ = ["Slots"]


class Slots:
    """Counts running instances.

    A job that needs more instances than there are slots starts when nothing else runs, so that it runs slowly instead
    of waiting forever.

    Args:
        capacity: Returns the maximum number of concurrent instances, which may change.
    """

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        return max(0, self._capacity() - self._taken)

    def try_take(self, count: int) -> bool:
        """Reserve slots if enough are free and no job waits; return whether they were reserved."""
        if self._waiting or not self._fits(count):
            return False
        self._taken += count
        return True

    def force(self, count: int) -> None:
        """Reserve slots for instances that are already running, after a restart of the service."""
        self._taken += count

    async def take(self, count: int) -> None:
        """Wait for slots and take them. Cancellation leaves the queue."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (count, granted)
        self._waiting.append(place)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(count)
            else:
                self._waiting.remove(place)
                self._grant()
            raise

    def release(self, count: int) -> None:
        """Return slots."""
        self._taken -= count
        self._grant()

    def look(self) -> None:
        """Grant waiting requests after an increase of the capacity."""
        self._grant()

    def _fits(self, count: int) -> bool:
        return self._taken + count <= self._capacity() or self._taken == 0

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            count, granted = self._waiting.popleft()
            self._taken += count
            granted.set_result(None)
