"""The capacity of a cluster as last known, for callers that must not wait for the cluster's answer."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tidemill.executors.base import Capacity

_FRESH_S = 2.0


class KnownCapacity:
    """Remembers a capacity. May be used from several threads.

    Args:
        ask: Returns the capacity; may take long or fail. Called at once, and then in a thread.
        now_s: Returns the monotonic time in seconds.
    """

    def __init__(self, ask: Callable[[], Capacity], *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._now_s = now_s
        self._lock = threading.Lock()
        self._closed = False
        self._known = ask()
        self._fresh_until_s = now_s() + _FRESH_S
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="capacity")

    def get(self) -> Capacity:
        """Return the last answer, and ask again if it is older than two seconds. Does not block."""
        with self._lock:
            if self._now_s() >= self._fresh_until_s and not self._closed:
                self._fresh_until_s = self._now_s() + _FRESH_S
                self._asking.submit(self._ask).add_done_callback(self._note)
            return self._known

    def close(self) -> None:
        """Ask no more, and do not wait for an answer."""
        with self._lock:
            self._closed = True
        self._asking.shutdown(wait=False, cancel_futures=True)

    def _note(self, answer: Future[Capacity]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._known = answer.result()
