"""What the gateway keeps of the requests that it has answered: counts always, spans if they are traced."""

import time
from dataclasses import dataclass

from tidemill.core.spans import CURRENT, HEADER, Span, Spans, TraceContext
from tidemill.wire.request import Request
from tidemill.wire.request_counts import RequestCounts


@dataclass(slots=True)
class Observation:
    """A request that is being answered.

    Attributes:
        begun_s: Its begin, by the clock of durations.
        context: Its span; None if it is not traced.
        parent: The span of its sender.
    """

    begun_s: float
    context: TraceContext | None = None
    parent: TraceContext | None = None


class RequestObserver:
    """Observes requests.

    Args:
        counts: Counts them.
        spans: Gets their spans. Default: none are made.
    """

    def __init__(self, counts: RequestCounts, spans: Spans | None = None) -> None:
        self._counts = counts
        self._spans = spans

    def begin(self, request: Request) -> Observation:
        """Begin with a request, in the task that answers it.

        Args:
            request: Its head.
        """
        observation = Observation(time.perf_counter())
        if self._spans is not None:
            observation.parent = TraceContext.parse(request.headers.get(HEADER))
            observation.context = observation.parent.child() if observation.parent else TraceContext.new()
            CURRENT.set(observation.context)
        return observation

    def end(self, observation: Observation, service: str, operation: str, status: int, request_id: str) -> None:
        """Note the end of an answer.

        Args:
            observation: What `begin` returned.
            service: botocore's name of the service.
            operation: Name of the operation.
            status: HTTP status of the answer.
            request_id: Its id, as the client gets it.
        """
        elapsed_s = time.perf_counter() - observation.begun_s
        self._counts.note(service, operation, status, elapsed_s)
        if self._spans is None or observation.context is None:
            return
        end_ns = time.time_ns()
        self._spans.note(
            Span(
                name=f"{service}.{operation}",
                context=observation.context,
                parent=observation.parent,
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
