"""Count the requests of endpoints' variants, their failures, and how long the models took."""

import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidemill.control.endpoints.call_history import CallHistory
from tidemill.core.clock import Clock
from tidemill.core.exposition import Family, Histogram

_VARIANTS_MAX = 1_000
"""Variants that are counted. Their names are users', so that their number needs a limit."""


@dataclass(slots=True)
class CallResult:
    """Where a call notes its result.

    Attributes:
        status: HTTP status of the model's answer; 0 without an answer.
    """

    status: int = 0


@dataclass(slots=True)
class VariantCalls:
    """The counts of a variant since the start of the service.

    Attributes:
        durations: Seconds until the model's answer was complete.
        errors: Requests without a good answer, by the HTTP status of the model's answer; 0 without an answer.
    """

    durations: Histogram = field(default_factory=Histogram)
    errors: Counter[int] = field(default_factory=Counter)


class CallCounts:
    """Counts requests, by the names of endpoint and variant.

    Attributes:
        history: The requests of the last hours.
    """

    def __init__(self, clock: Clock) -> None:
        self.history = CallHistory(clock)
        self._seen: dict[tuple[str, str], VariantCalls] = {}

    @contextmanager
    def counted(self, endpoint: str, variant: str) -> Generator[CallResult]:
        """Count the request that the block sends.

        Args:
            endpoint: Name of the endpoint.
            variant: Name of the variant.
        """
        result, begun_s = CallResult(), time.perf_counter()
        try:
            yield result
        finally:
            calls, duration_s = self._of(endpoint, variant), time.perf_counter() - begun_s
            calls.durations.observe(duration_s)
            self.history.note(endpoint, variant, status=result.status, duration_s=duration_s)
            if not 0 < result.status < 400:
                calls.errors[result.status] += 1

    def forget(self, endpoint: str) -> None:
        """Drop the counts of an endpoint that was deleted.

        Args:
            endpoint: Name of the endpoint.
        """
        self.history.forget(endpoint)
        for key in [each for each in self._seen if each[0] == endpoint]:
            del self._seen[key]

    def families(self) -> Iterator[Family]:
        """Yield the metrics of endpoints."""
        seen = [
            ({"endpoint": name, "variant": variant}, calls) for (name, variant), calls in sorted(self._seen.items())
        ]
        yield Family(
            "tidemill_endpoint_invocations_total",
            "counter",
            "Requests to a variant of an endpoint.",
            [(labels, calls.durations.count) for labels, calls in seen],
        )
        yield Family(
            "tidemill_endpoint_errors_total",
            "counter",
            "Requests to a variant without a good answer, by the HTTP status of its model server; 0 without an answer.",
            [
                ({**labels, "status": str(status)}, count)
                for labels, calls in seen
                for status, count in sorted(calls.errors.items())
            ],
        )
        yield Family(
            "tidemill_endpoint_latency_seconds",
            "histogram",
            "Seconds until the answer of a variant's model server was complete.",
            [(labels, calls.durations) for labels, calls in seen],
        )

    def _of(self, endpoint: str, variant: str) -> VariantCalls:
        calls = self._seen.get((endpoint, variant))
        if calls is None:
            if len(self._seen) >= _VARIANTS_MAX:
                del self._seen[next(iter(self._seen))]
            calls = self._seen[endpoint, variant] = VariantCalls()
        return calls
