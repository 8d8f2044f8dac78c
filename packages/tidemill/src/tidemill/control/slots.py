"""The machine's room for training instances, given out first come, first served."""

import asyncio
from collections import deque

__all__ = ["Slots"]


class Slots:
    """Counts instances that run.

    A job that wants more instances than there are gets all of them together once nothing else runs: a machine that
    is too small runs it slowly, and no job waits for ever.

    Args:
        capacity: Instances that may run at the same time.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def free(self) -> int:
        return max(0, self._capacity - self._taken)

    def try_take(self, count: int) -> bool:
        """Take slots now, unless others wait or there is no room."""
        if self._waiting or not self._fits(count):
            return False
        self._taken += count
        return True

    def force(self, count: int) -> None:
        """Take slots for instances that run already (after a restart)."""
        self._taken += count

    async def take(self, count: int) -> None:
        """Wait for slots. Cancelling gives up the place in the queue."""
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
        """Give slots back."""
        self._taken -= count
        self._grant()

    def _fits(self, count: int) -> bool:
        return self._taken + count <= self._capacity or self._taken == 0

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            count, granted = self._waiting.popleft()
            self._taken += count
            granted.set_result(None)
