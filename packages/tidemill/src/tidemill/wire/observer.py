"""What the gateway keeps of the requests that it has answered: counts always, spans if they are traced.

Requests are counted by service, operation and status, with the time that their answers took. Operations have a label
only if they have a handler: no request can add labels.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.core.exposition import Family, Histogram
from tidemill.core.spans import CURRENT, HEADER, Span, Spans, TraceContext
from tidemill.wire.request import Request

REFUSED = "none"
"""The operation of requests that were refused before their operation was known, or whose operation does not exist."""


@dataclass(frozen=True, slots=True)
class RequestSpan:
    """The span of a request that is being answered.

    Attributes:
        context: Its place in the trace.
        parent: The span of the request's sender.
    """

    context: TraceContext
    parent: TraceContext | None


class RequestObserver:
    """Observes requests since the start of the service.

    Args:
        spans: Gets their spans. Default: none are made.
    """

    def __init__(self, spans: Spans | None = None) -> None:
        self.traces = spans is not None
        """Whether each request needs a `RequestSpan`."""
        self._spans = spans
        self._seen: dict[tuple[str, str, int], Histogram] = {}

    def begin_span(self, request: Request) -> RequestSpan:
        """Begin the span of a request, in the task that answers it.

        Args:
            request: Its head.
        """
        parent = TraceContext.parse(request.headers.get(HEADER))
        span = RequestSpan(parent.child() if parent else TraceContext.new(), parent)
        CURRENT.set(span.context)
        return span

    def end(
        self, begun_s: float, service: str, operation: str, status: int, *, span: RequestSpan | None, request_id: str
    ) -> None:
        """Note the end of an answer.

        Args:
            begun_s: When the request began, by `time.perf_counter`.
            service: botocore's name of the service.
            operation: Name of an operation that has a handler, or `REFUSED`.
            status: HTTP status of the answer.
            span: What `begin_span` returned, if requests are traced.
            request_id: Its id, as the client gets it.
        """
        elapsed_s = time.perf_counter() - begun_s
        key = (service, operation, status)
        histogram = self._seen.get(key)
        if histogram is None:
            histogram = self._seen[key] = Histogram()
        histogram.observe(elapsed_s)
        if self._spans is None or span is None:
            return
        end_ns = time.time_ns()
        self._spans.note(
            Span(
                name=f"{service}.{operation}",
                context=span.context,
                parent=span.parent,
                begin_ns=end_ns - int(elapsed_s * 1e9),
                end_ns=end_ns,
                kind="server",
                attributes={
                    "rpc.system": "aws-api",
                    "rpc.service": service,
                    "rpc.method": operation,
                    "http.response.status_code": status,
                    "aws.request_id": request_id,
                },
                failure=f"HTTP status {status}" if status >= 500 else "",
            )
        )

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
