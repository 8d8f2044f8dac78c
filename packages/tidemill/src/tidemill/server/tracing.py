"""Send spans to an OpenTelemetry collector by OTLP over HTTP, if the settings name one.

The extra `tidemill[otel]` brings OpenTelemetry's SDK. Nothing of it is imported without the setting. Its batches are
sent by a thread of its own; a collector that does not answer costs spans, never a request or a job, nor the end of the
service, which waits for the last batch for a short time only.
"""

import asyncio
import threading
from typing import Any

import structlog

from tidemill import __version__
from tidemill.core.spans import Span, Spans, TraceContext
from tidemill.errors import ConfigurationError
from tidemill.server.startup import Startup

_PATH = "/v1/traces"
_LAST_BATCHES_S = 3.0

_log = structlog.get_logger("tidemill.server")


def open_tracing(start: Startup) -> Spans | None:
    """Return where spans go, until the service ends; None without the setting ``otlp_endpoint``.

    Raises:
        ConfigurationError: OpenTelemetry's SDK is not installed.
    """
    endpoint = start.settings.otlp_endpoint
    if endpoint is None:
        return None
    try:
        spans = OtlpSpans(endpoint.rstrip("/") + _PATH, region=start.settings.region)
    except ImportError as error:
        raise ConfigurationError(
            f"the setting otlp_endpoint needs OpenTelemetry's SDK ({error}): install it by `pip install"
            " 'tidemill[otel]'`, or leave the setting out"
        ) from error
    start.stack.push_async_callback(asyncio.to_thread, spans.close)
    _log.info("tracing", endpoint=endpoint)
    return spans


class OtlpSpans:
    """Converts spans to OpenTelemetry's, and exports them in batches.

    Args:
        url: Where batches are posted.
        region: Region of the service, an attribute of all spans.
    """

    def __init__(self, url: str, *, region: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self._trace: Any = trace
        self._made: Any = ReadableSpan
        self._scope = InstrumentationScope("tidemill", __version__)
        self._resource = Resource.create(
            {"service.name": "tidemill", "service.version": __version__, "cloud.region": region}
        )
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=url))

    def note(self, span: Span) -> None:
        """Queue a span for the next batch, as `Spans.note`; not if its trace is not sampled."""
        if not span.context.sampled:
            return
        try:
            self._queue(span)
        except Exception:  # noqa: BLE001 - neither a request nor a job may fail by what is noted of it
            _log.exception("tracing.failed", span=span.name)

    def close(self) -> None:
        """Export what is queued, for a few seconds at most: without a collector, the SDK tries for half a minute."""
        ending = threading.Thread(target=self._processor.shutdown, name="end of tracing", daemon=True)
        ending.start()
        ending.join(_LAST_BATCHES_S)

    def _queue(self, span: Span) -> None:
        trace = self._trace
        status = trace.Status(trace.StatusCode.ERROR, span.failure) if span.failure else trace.Status()
        self._processor.on_end(
            self._made(
                name=span.name,
                context=self._context(span.context, is_remote=False),
                parent=None if span.parent is None else self._context(span.parent, is_remote=True),
                resource=self._resource,
                attributes=dict(span.attributes),
                kind=getattr(trace.SpanKind, span.kind.upper()),
                instrumentation_scope=self._scope,
                status=status,
                start_time=span.begin_ns,
                end_time=span.end_ns,
            )
        )

    def _context(self, context: TraceContext, *, is_remote: bool) -> Any:
        return self._trace.SpanContext(
            int(context.trace_id, 16),
            int(context.span_id, 16),
            is_remote=is_remote,
            trace_flags=self._trace.TraceFlags(int(context.sampled)),
        )
