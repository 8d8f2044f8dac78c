"""Which requests may wait for a run, while more arrive than can be answered.

Clients that wait for an answer before they send the next request never have more requests than clients. Their requests
wait, however slow the model: up to 64 of them always, more if the queue does not keep growing. If requests keep
arriving faster than they are answered, every request would wait longer than the one before, until clients give up on
all of them. Then only those are accepted that can be answered within twice the time of a request that comes alone, and
the others are refused at once.

Nothing tells the first requests of an overload from those of many clients that start together. So an overload is
recognized by two periods, which are short: of four answers, but at least 0.05 s. Until then the newest requests run
first: if it is an overload, they are answered in time, and those that wait are late whatever runs. Clients that wait
for their answers all get them, whatever the order.
"""

import math
import time
from collections.abc import Callable

from tidemill_serving.errors import Code, RequestError

CLIENTS = 64
"""So many requests of a signature may wait without an overload: they can be clients that wait for their answers."""
_PERIOD_S, _PERIOD_ANSWERS, _LONGEST_PERIOD_S = 0.05, 4, 0.25
_PATIENCE_S = 0.5  # shorter queues are no overload, however fast they grow
_FAST, _ENOUGH = 2, 4  # a period in which twice as many arrive as are answered counts twice; so much is an overload
_BURST = 8  # requests that may arrive at once without a sign of an overload
_RATIO = 1.75  # of expected times, so that nearly all actual ones are within twice the time: runs vary
_SLACK = 1.1
# Refused clients that ask again at once look like an overload forever. So it is ended after this time, and then after
# twice as long each time, to see whether it begins again.
_FIRST_TRIAL_S, _LAST_TRIAL_S = 10.0, 160.0


class Admission:
    """Recognizes an overload of a signature by the requests that arrive and that are answered in short periods.

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
        self._begin_s = self._last_s = 0.0
        self._arrived = self._answered = self._queued = 0
        self._growth = 0
        self._refused = 0
        self._trial_s, self._trial_at_s = _FIRST_TRIAL_S, 0.0
        self.is_overloaded = False
        self.refused = 0
        """Number of requests that were refused."""

    def admits(self, *, wait_s: float, run_s: float, alone_s: float, queued: int, is_read: bool = True) -> bool:
        """Count a request that arrives; return whether it may wait.

        Args:
            wait_s: Expected time in seconds until its run; 0 if it is not known.
            run_s: Expected time of its run in seconds.
            alone_s: The same without other requests.
            queued: Number of waiting requests.
            is_read: False if the request is asked about again after it was read, unless it is refused. Default: True.
        """
        self._look(queued)
        self._arrived += is_read
        is_too_long = wait_s > self._longest_wait_s
        is_growing = self._growth >= _ENOUGH and wait_s > _PATIENCE_S
        if not self.is_overloaded and queued >= CLIENTS and (is_too_long or is_growing):
            self._begin()
        is_free = not (wait_s or queued)
        is_soon = not self.is_overloaded or self.in_time(wait_s + run_s, alone_s=alone_s)
        if is_free or (is_soon and not is_too_long):
            return True
        self._arrived += not is_read
        self.note_refusal()
        return False

    @property
    def newest_first(self) -> bool:
        """Whether an overload may have begun: more requests arrive than are answered, or did in the last periods."""
        is_rising = self._arrived > _FAST * self._answered + _BURST
        return not self.is_overloaded and (is_rising or self._growth > 0)

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
        passed_s, was_idle = now_s - self._begin_s, now_s - self._last_s > _LONGEST_PERIOD_S
        self._last_s = now_s
        least_s = _PERIOD_S if self._answered >= _PERIOD_ANSWERS else _LONGEST_PERIOD_S
        if not was_idle and (passed_s < least_s or (queued and not self._answered)):  # long runs have no answers yet
            return
        is_growing = self._arrived > _SLACK * self._answered + 1
        if was_idle or not is_growing:
            self._growth, self._trial_s = 0, _FIRST_TRIAL_S
            self._end()
        elif self.is_overloaded and now_s >= self._trial_at_s:
            self._growth, self._trial_s = 0, min(2 * self._trial_s, _LAST_TRIAL_S)
            self._end()
        elif self.is_overloaded or queued > self._queued:
            self._growth += _FAST if self._arrived > _FAST * self._answered else 1
        self._begin_s = now_s
        self._arrived = self._answered = 0
        self._queued = queued

    def _begin(self) -> None:
        self.is_overloaded = True
        self._refused = 0
        self._trial_at_s = self._clock() + self._trial_s
        self._changed(True, 0)

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
