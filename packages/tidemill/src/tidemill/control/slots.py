"""Slots for training instances of the executor, and their GPUs, first come, first served."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """A job that has slots, or waits for them.

    Attributes:
        kind: Kind of the job's record, e.g. ``training-job``.
    """

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Share:
    """The slots that a job has or waits for.

    Attributes:
        holder: The job.
        count: Number of its instances.
        gpus: GPUs of all its instances together.
    """

    holder: SlotHolder
    count: int
    gpus: int


@dataclass(frozen=True, slots=True)
class _QueuePlace:
    share: Share
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
        self._shares: dict[SlotHolder, Share] = {}
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

    @property
    def shares(self) -> tuple[Share, ...]:
        """The slots of all jobs that have some, in the order in which they got them."""
        return tuple(self._shares.values())

    @property
    def queue(self) -> tuple[Share, ...]:
        """The slots for which jobs wait, in the order in which they get them."""
        return tuple(place.share for place in self._waiting)

    def try_take(self, holder: SlotHolder, count: int, *, gpus: int = 0) -> bool:
        """Reserve slots if enough are free and no job waits; return whether they were reserved.

        Args:
            holder: The job.
            gpus: GPUs of all instances together.
        """
        if self._waiting or not self._fits(count, gpus):
            return False
        self.force(holder, count, gpus=gpus)
        return True

    def force(self, holder: SlotHolder, count: int, *, gpus: int = 0) -> None:
        """Reserve slots for instances that are already running, after a restart of the service.

        Args:
            holder: The job, which has no slots yet.
            gpus: GPUs of all instances together.
        """
        self._add(Share(holder, count, gpus))

    async def take(self, holder: SlotHolder, count: int, *, gpus: int = 0) -> None:
        """Wait for slots and take them. A cancelled call leaves the queue and holds no slots.

        Args:
            holder: The job.
            gpus: GPUs of all instances together.
        """
        place = _QueuePlace(Share(holder, count, gpus), asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        self._grant()
        try:
            await place.granted
        except asyncio.CancelledError:
            if place.granted.done() and not place.granted.cancelled():
                self.release(holder)
            else:
                self._waiting.remove(place)
                self._grant()
            raise

    def release(self, holder: SlotHolder) -> None:
        """Give the slots of a job back, and grant them to waiting jobs.

        Args:
            holder: The job; one without slots is no error.
        """
        share = self._shares.pop(holder, None)
        if share is not None:
            self._taken -= share.count
            self._gpus_taken -= share.gpus
        self._grant()

    def grant_waiting(self) -> None:
        """Grant waiting requests after an increase of the capacity."""
        self._grant()

    def _fits(self, count: int, gpus: int) -> bool:
        if self._taken == 0:
            return True
        return self._taken + count <= self._capacity() and (not gpus or self._gpus_taken + gpus <= self._gpus())

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0].share.count, self._waiting[0].share.gpus):
            place = self._waiting.popleft()
            self._add(place.share)
            place.granted.set_result(None)

    def _add(self, share: Share) -> None:
        self._shares[share.holder] = share
        self._taken += share.count
        self._gpus_taken += share.gpus
