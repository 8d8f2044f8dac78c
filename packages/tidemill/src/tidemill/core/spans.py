"""Spans of traces: what the service notes of its requests and jobs, and the W3C's header by which traces continue.

The form of ``traceparent`` is that of the recommendation *Trace Context* of the W3C.
"""

import re
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

HEADER = "traceparent"
VARIABLE = "TRACEPARENT"
"""Environment variable with the header's value, as OpenTelemetry specifies it for child processes."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span's place in a trace.

    Attributes:
        trace_id: 32 hexadecimal digits, not all zero.
        span_id: 16 hexadecimal digits, not all zero.
        sampled: Whether the trace is recorded.
    """

    trace_id: str
    span_id: str
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The header's value, by which others become children of the span."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def new(cls) -> "TraceContext":
        """Return the first span of a new trace."""
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    @classmethod
    def parse(cls, traceparent: str | None) -> "TraceContext | None":
        """Return what a header says, or None if it is malformed: then a trace begins anew, as the W3C asks for.

        Args:
            traceparent: The header's value; None without one.
        """
        found = _FORM.fullmatch((traceparent or "").strip())
        if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
            return None
        if not found[2].strip("0") or not found[3].strip("0"):
            return None
        return cls(found[2], found[3], bool(int(found[4], 16) & 1))

    def child(self) -> "TraceContext":
        """Return a new span of the same trace."""
        return replace(self, span_id=secrets.token_hex(8))


CURRENT: ContextVar[TraceContext | None] = ContextVar("tidemill_trace", default=None)
"""The span of the request that the running task answers; None if it answers none, or nothing is traced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span that has ended.

    Attributes:
        name: Of few different values, e.g. ``sagemaker.CreateTrainingJob``.
        context: Its place in the trace.
        parent: The span that it belongs to; None for the first one of a trace.
        kind: ``server`` for a request, ``client`` for a call of another process, else ``internal``.
        begin_ns: Nanoseconds since the epoch.
        end_ns: Nanoseconds since the epoch.
        attributes: What it is about.
        failure: Why it failed; empty if it did not.
    """

    name: str
    context: TraceContext
    parent: TraceContext | None
    begin_ns: int
    end_ns: int
    kind: Literal["server", "client", "internal"] = "internal"
    attributes: Mapping[str, str | int | bool] = field(default_factory=dict)
    failure: str = ""


class Spans(Protocol):
    """Where spans go."""

    def note(self, span: Span) -> None:
        """Take a span that has ended. Quick; does not wait.

        Args:
            span: The span.
        """
