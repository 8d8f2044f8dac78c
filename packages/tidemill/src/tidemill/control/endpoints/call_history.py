"""The requests to endpoints' variants over the last hours: their number, failures and latencies.

The history is in memory only and begins anew with each start of the service. Latencies are counted in classes, each 5 %
wider than the one before, so that their size does not depend on the number of requests.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill.core.clock import Clock

PERIOD_MS = 10_000
"""Length of a period, in milliseconds."""

_KEPT_MS = 6 * 3600 * 1000
_PERIODS_MAX = 20_000
_WIDTH = math.log(1.05)
_SHORTEST_S = 1e-6


@dataclass(slots=True, kw_only=True)
class CallPeriod:
    """The requests to a variant that ended in a period.

    Attributes:
        endpoint: Name of the endpoint.
        variant: Name of the variant.
        begin_ms: Begin of the period, in milliseconds since the epoch.
        calls: Number of requests.
        client_errors: Requests that the model answered with a status from 400 to 499.
        server_errors: Requests that the model answered with a status from 500 to 599.
        unanswered: Requests that no model server answered.
    """

    endpoint: str
    variant: str
    begin_ms: int
    calls: int = 0
    client_errors: int = 0
    server_errors: int = 0
    unanswered: int = 0
    _latencies: Counter[int] = field(default_factory=Counter)

    def note(self, *, status: int, duration_s: float) -> None:
        """Count a request.

        Args:
            status: HTTP status of the model's answer; 0 without an answer.
            duration_s: Seconds until the answer was complete.
        """
        self.calls += 1
        self.client_errors += 400 <= status < 500
        self.server_errors += status >= 500
        self.unanswered += status == 0
        if status:
            self._latencies[round(math.log(max(duration_s, _SHORTEST_S) / _SHORTEST_S) / _WIDTH)] += 1

    def latencies_s(self) -> Iterator[tuple[float, int]]:
        """Yield latencies of answered requests in seconds, at most 2.5 % wrong, and how often they occurred."""
        for number, count in list(self._latencies.items()):
            yield _SHORTEST_S * math.exp(number * _WIDTH), count


class CallHistory:
    """Keeps the periods of all variants, at most 20,000 in all and for six hours."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: deque[CallPeriod] = deque()
        self._current: dict[tuple[str, str], CallPeriod] = {}

    def note(self, endpoint: str, variant: str, *, status: int, duration_s: float) -> None:
        """Count a request that has ended.

        Args:
            endpoint: Name of the endpoint.
            variant: Name of the variant.
            status: HTTP status of the model's answer; 0 without an answer.
            duration_s: Seconds until the answer was complete.
        """
        now_ms = self._clock.now_ms()
        begin_ms = now_ms - now_ms % PERIOD_MS
        period = self._current.get((endpoint, variant))
        if period is None or period.begin_ms != begin_ms:
            period = CallPeriod(endpoint=endpoint, variant=variant, begin_ms=begin_ms)
            self._current[endpoint, variant] = period
            self._periods.append(period)
            self._drop_old(before_ms=now_ms - _KEPT_MS)
        period.note(status=status, duration_s=duration_s)

    def periods(self, endpoint: str, variant: str, *, start_ms: int, end_ms: int) -> list[CallPeriod]:
        """Return the periods of a variant with requests that begin within a time, in order.

        Args:
            endpoint: Name of the endpoint.
            variant: Name of the variant.
            start_ms: Begin of the time in milliseconds since the epoch.
            end_ms: End of the time, exclusive.
        """
        return [
            period
            for period in list(self._periods)
            if (period.endpoint, period.variant) == (endpoint, variant) and start_ms <= period.begin_ms < end_ms
        ]

    def variants(self) -> list[tuple[str, str]]:
        """Return the names of endpoint and variant of all that got requests lately, sorted."""
        return sorted({(period.endpoint, period.variant) for period in list(self._periods)})

    def forget(self, endpoint: str) -> None:
        """Drop the history of an endpoint that was deleted.

        Args:
            endpoint: Name of the endpoint.
        """
        self._periods = deque(period for period in self._periods if period.endpoint != endpoint)
        self._current = {key: period for key, period in self._current.items() if key[0] != endpoint}

    def _drop_old(self, *, before_ms: int) -> None:
        while self._periods and (len(self._periods) > _PERIODS_MAX or self._periods[0].begin_ms < before_ms):
            old = self._periods.popleft()
            if self._current.get((old.endpoint, old.variant)) is old:
                del self._current[old.endpoint, old.variant]
