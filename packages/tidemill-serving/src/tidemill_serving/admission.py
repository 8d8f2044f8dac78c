"""Which requests may wait for a run, while more arrive than can be answered.

Clients that wait for an answer before they send the next request never have more requests than clients. Their requests
wait, however slow the model. If requests keep arriving faster than they are answered, every request would wait longer
than the one before, until clients give up on all of them. Then only those are accepted that can be answered within
twice the time of a request that comes alone, and the others are refused at once.
"""

import math
import time
from collections.abc import Callable

from tidemill_serving.errors import Code, RequestError

_WINDOW_S = 0.25
_PATIENCE_S = 0.5  # shorter queues are no overload, however fast they grow
_FAST, _ENOUGH = 2, 4  # a window in which twice as many arrive as are answered counts twice; so much is an overload
_RATIO = 2.0
_SLACK = 1.1


class Admission:
    """Recognizes an overload of a signature by the requests that arrive and that are answered in periods of 0.25 s.

    Args:
        changed: Called when an overload begins, with True and 0, and when it ends, with False and the number of
            refused requests.
        longest_wait_s: Time in seconds that requests may wait at most.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        changed: Callable[[bool, int], None],
        *,
        longest_wait_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._changed = changed
        self._longest_wait_s = longest_wait_s
        self._clock = clock
        self._end_s = 0.0
        self._arrived = self._answered = self._queued = 0
        self._growth = 0
        self._refused = 0
        self.is_overloaded = False
        self.refused = 0
        """Number of requests that were refused."""

    def admits(self, *, wait_s: float, run_s: float, alone_s: float, queued: int, is_read: bool = True) -> bool:
        """Count a request that arrives; return whether it may wait.

        Args:
            wait_s: Expected time in seconds until its run.
            run_s: Expected time of its run in seconds.
            alone_s: The same without other requests.
            queued: Number of waiting requests.
            is_read: False if the request is asked about again after it was read, unless it is refused. Default: True.
        """
        self._look(queued)
        self._arrived += is_read
        is_too_long = wait_s > self._longest_wait_s
        if not self.is_overloaded and (is_too_long or (self._growth >= _ENOUGH and wait_s > _PATIENCE_S)):
            self.is_overloaded = True
            self._refused = 0
            self._changed(True, 0)
        is_free = not (wait_s or queued)
        if not self.is_overloaded or is_free or (not is_too_long and self.in_time(wait_s + run_s, alone_s=alone_s)):
            return True
        self._arrived += not is_read
        self.note_refusal()
        return False

    def in_time(self, latency_s: float, *, alone_s: float) -> bool:
        """Return whether an answer after this time is soon enough during an overload.

        Args:
            latency_s: Expected time in seconds from the request to its answer.
            alone_s: The same without other requests.
        """
        return latency_s <= _RATIO * alone_s

    def note_refusal(self) -> None:
        """Count a request that is refused."""
        self._refused += 1
        self.refused += 1

    def answered(self, requests: int) -> None:
        """Count answered requests."""
        self._answered += requests

    def _look(self, queued: int) -> None:
        """At the end of a period, decide by the requests in it whether the queue grows."""
        now_s = self._clock()
        if now_s < self._end_s:
            return
        is_growing = self._arrived > _SLACK * self._answered + 1
        if now_s > self._end_s + _WINDOW_S or not is_growing:  # nothing arrived for a whole period
            self._growth = 0
            self._end()
        elif self.is_overloaded or queued > self._queued:
            self._growth += _FAST if self._arrived > _FAST * self._answered else 1
        self._end_s = now_s + _WINDOW_S
        self._arrived = self._answered = 0
        self._queued = queued

    def _end(self) -> None:
        if self.is_overloaded:
            self.is_overloaded = False
            self._changed(False, self._refused)


def refusal(wait_s: float) -> RequestError:
    """Return the error for a request that may not wait.

    Args:
        wait_s: Expected time in seconds until it could be run; rounded up in ``Retry-After``.
    """
    message = "more requests arrive than the model can answer; send fewer at a time, or try again later"
    return RequestError(Code.UNAVAILABLE, message, headers=(("Retry-After", str(max(1, math.ceil(wait_s)))),))
