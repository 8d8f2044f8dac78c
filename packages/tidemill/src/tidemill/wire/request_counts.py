"""Count the requests of the gateway by service, operation and status, and how long their answers took.

Operations have a label only if they have a handler: no request can add labels.
"""

from collections.abc import Iterator

from tidemill.core.exposition import Family, Histogram

REFUSED = "none"
"""The operation of requests that were refused before their operation was known, or whose operation does not exist."""


class RequestCounts:
    """Counts requests since the start of the service."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, int], Histogram] = {}

    def note(self, service: str, operation: str, status: int, elapsed_s: float) -> None:
        """Count a request.

        Args:
            service: botocore's name of the service.
            operation: Name of an operation that has a handler, or `REFUSED`.
            status: HTTP status of the answer.
            elapsed_s: Seconds from its head to the end of its answer.
        """
        key = (service, operation, status)
        histogram = self._seen.get(key)
        if histogram is None:
            histogram = self._seen[key] = Histogram()
        histogram.observe(elapsed_s)

    def families(self) -> Iterator[Family]:
        """Yield the metrics of requests."""
        seen = sorted(self._seen.items())
        yield Family(
            "tidemill_requests_total",
            "counter",
            "Answered requests, by AWS service, operation and HTTP status.",
            [
                ({"service": service, "operation": operation, "status": str(status)}, histogram.count)
                for (service, operation, status), histogram in seen
            ],
        )
        durations: dict[tuple[str, str], Histogram] = {}
        for (service, operation, _), histogram in seen:
            durations.setdefault((service, operation), Histogram()).add(histogram)
        yield Family(
            "tidemill_request_duration_seconds",
            "histogram",
            "Seconds from the head of a request to the end of its answer.",
            [
                ({"service": service, "operation": operation}, histogram)
                for (service, operation), histogram in durations.items()
            ],
        )
