"""Finds the instances whose lease has ended, without looking at those that hold one.

Renewing a lease makes it end later. So the watch keeps for each instance the end that it last saw, and looks at the
instance again only when that time has come: with 10,000 instances and leases of a minute, at 200 of them a second,
however often it is asked. A lease that is ended early is not noticed before: who ends it has to tell of it.
"""

import heapq
import threading
import time
from collections.abc import Callable

from tidemill.instance.spec import InstanceRef

__all__ = ["LeaseWatch"]


class LeaseWatch:
    """Watches the leases of instances. May be used from several threads.

    Args:
        end_s: Returns when the lease of an instance ends, by the monotonic clock; a time that has passed if it has
            none.
        now_s: The monotonic clock.
    """

    def __init__(self, end_s: Callable[[InstanceRef], float], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._end_s = end_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._watched: set[InstanceRef] = set()
        self._looks: list[tuple[float, InstanceRef]] = []  # a heap

    def add(self, ref: InstanceRef) -> None:
        """Watch the lease of an instance until it has ended."""
        with self._lock:
            if ref not in self._watched:
                self._watched.add(ref)
                heapq.heappush(self._looks, (0.0, ref))

    def discard(self, ref: InstanceRef) -> None:
        """Watch it no longer."""
        with self._lock:
            self._watched.discard(ref)

    def ended(self) -> set[InstanceRef]:
        """Return the watched instances whose lease has ended since the last call."""
        now_s, over = self._now_s(), set()
        with self._lock:
            while self._looks and self._looks[0][0] <= now_s:
                ref = heapq.heappop(self._looks)[1]
                if ref not in self._watched:
                    continue
                end_s = self._end_s(ref)
                if end_s > now_s:
                    heapq.heappush(self._looks, (end_s, ref))
                else:
                    self._watched.discard(ref)
                    over.add(ref)
        return over
