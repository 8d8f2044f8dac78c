"""Find the instances whose lease has ended, without checking all instances each time.

A renewal only ever makes a lease end later. So the watch stores the end of each lease as last read, and reads it again
only when that time has come. With 10,000 instances and leases of one minute, that is about 200 reads per second,
however often the watch is asked. The watch does not notice a lease that is ended early: the code that ends the lease
must report it.
"""

import heapq
import threading
import time
from collections.abc import Callable

from tidemill.core.instances import InstanceRef


class LeaseWatch:
    """Watches the leases of instances. May be used from several threads.

    Args:
        end_s: Returns the end of an instance's lease by the monotonic clock, in seconds; a time in the past if the
            instance has no lease.
        now_s: Returns the monotonic time in seconds.
    """

    def __init__(self, end_s: Callable[[InstanceRef], float], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._end_s = end_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._watched: set[InstanceRef] = set()
        self._looks: list[tuple[float, InstanceRef]] = []  # a heap

    def add(self, ref: InstanceRef) -> None:
        """Watch the lease of an instance until it has ended.

        Args:
            ref: The attempt.
        """
        with self._lock:
            if ref not in self._watched:
                self._watched.add(ref)
                heapq.heappush(self._looks, (0.0, ref))

    def discard(self, ref: InstanceRef) -> None:
        """Stop watching an instance.

        Args:
            ref: The attempt; an unknown one is no error.
        """
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
