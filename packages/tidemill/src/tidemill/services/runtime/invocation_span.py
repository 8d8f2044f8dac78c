"""The span of a request to a model: its server gets it as the parent of its own spans."""

import time
from collections.abc import Mapping

from tidemill.core.spans import CURRENT, HEADER, Span, Spans


class InvocationSpan:
    """A request to a model that is being answered; nothing if it is not traced.

    Args:
        spans: Gets the span; None if nothing is traced.
        endpoint: Name of the endpoint.
    """

    def __init__(self, spans: Spans | None, endpoint: str) -> None:
        self._parent = CURRENT.get() if spans is not None else None
        self._context = self._parent.child() if self._parent is not None else None
        self._spans = spans
        self._endpoint = endpoint
        self._begin_ns = time.time_ns()

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that lead the model's server to the span."""
        return {HEADER: self._context.traceparent} if self._context is not None else {}

    def end(self, *, variant: str = "", status: int = 0, failure: str = "") -> None:
        """Note the answer, or why there is none.

        Args:
            variant: The variant that answered.
            status: HTTP status of the model's server.
            failure: Why there is no answer.
        """
        if self._spans is None or self._context is None:
            return
        answered = {"tidemill.variant": variant, "http.response.status_code": status} if status else {}
        self._spans.note(
            Span(
                name="invoke model",
                context=self._context,
                parent=self._parent,
                begin_ns=self._begin_ns,
                end_ns=time.time_ns(),
                kind="client",
                attributes={"tidemill.endpoint": self._endpoint, **answered},
                failure=failure or (f"HTTP status {status}" if status >= 400 else ""),
            )
        )
