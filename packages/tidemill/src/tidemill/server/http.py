"""HTTP as strangers may speak it: uvicorn's httptools protocol with limits on heads, on time and on ambiguity.

uvicorn itself bounds neither the size of a head nor the time it may take, and accepts requests that two readers
would read differently. What is refused here never reaches the application. A refusal closes the connection gently:
the reply is sent, the write side is shut, and what the client is still sending is thrown away for a moment, so that
the client sees the reply and not a reset.
"""

import asyncio
import json
from asyncio.events import TimerHandle
from dataclasses import dataclass
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["HttpLimits", "LimitedProtocol", "limited_protocol"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What a client may send and how long it may take."""

    line_bytes: int = 16 * 1024
    """Longest request line and header line."""
    head_bytes: int = 64 * 1024
    """Request line and headers together."""
    headers: int = 128
    """Number of headers."""
    head_timeout_s: float = 10.0
    """Time from the first byte, or from the connection, to the end of the head."""
    body_window_s: float = 30.0
    """Time over which the speed of a body is measured."""
    body_bytes_per_s: int = 1024
    """Least speed of a body."""
    linger_s: float = 2.0
    """How long a refused client may go on sending before the connection is cut."""
    linger_bytes: int = 16 * 1024 * 1024
    """How much of that is thrown away before the connection is cut."""


class _Refused(Exception):
    """Stops the parser; the refusal itself is kept by the protocol."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. Use ``limited_protocol`` for other limits than the default."""

    limits = HttpLimits()

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._refusal: tuple[int, str, str] | None = None
        self._timer: TimerHandle | None = None
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0
        self._unparsed_bytes = 0
        self._host_headers = 0
        self._length_headers = 0
        self._transfer_coded = False
        self._window_bytes = 0
        self._window_excused = False
        self._lingering = False
        self._lingered_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(_GentleTransport(transport, self))  # pyrefly: ignore[bad-argument-type] - what uvicorn uses of a transport
        self._timer = self.loop.call_later(self.limits.head_timeout_s, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._lingering:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > self.limits.linger_bytes:
                self._cut()
            return
        if self._refusal is not None:
            return
        super().data_received(data)
        if self._refusal is not None:  # it refused this data: there is nothing left to watch
            return
        if self._in_body:
            self._watch_body()
        elif self._in_head or self._is_idle:
            self._watch_head(len(data))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._unparsed_bytes = 0
        self._host_headers = self._length_headers = 0
        self._transfer_coded = False

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self.limits.line_bytes:
            self._stop(414, "RequestURITooLong", f"The request line is longer than {self.limits.line_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value) + 4
        self._head_bytes += size
        limits = self.limits
        if size > limits.line_bytes or self._head_bytes + len(self.url) > limits.head_bytes:
            self._stop_large_head()
        super().on_header(name, value)
        if len(self.headers) > limits.headers:
            self._stop_large_head()
        lowered = self.headers[-1][0]
        if lowered == b"host":
            self._host_headers += 1
        elif lowered == b"content-length":
            self._length_headers += 1
        elif lowered == b"transfer-encoding":
            self._transfer_coded = True

    def on_headers_complete(self) -> None:
        if self._host_headers != 1:
            self._stop(400, "InvalidRequest", f"A request needs exactly one Host header, not {self._host_headers}.")
        if self._length_headers > 1 or (self._length_headers and self._transfer_coded):
            self._stop(400, "InvalidRequest", "The size of the body is given in two ways.")
        self._in_head = False
        self._in_body = True
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._window_bytes += len(body)
        super().on_body(body)
        if self.flow.read_paused:
            self._window_excused = True  # it is this side that does not read

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser cannot read, or what was refused while it read."""
        self._refuse(*(self._refusal or (400, "InvalidRequest", msg)))

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_idle(self) -> bool:
        return not self._in_body and not self._is_answering and not self.transport.is_closing()

    def _stop(self, status: int, code: str, message: str) -> None:
        self._refusal = (status, code, message)
        raise _Refused(message)

    def _stop_large_head(self) -> None:
        limits = self.limits
        self._stop(
            431,
            "RequestHeaderSectionTooLarge",
            f"Request headers are too large: at most {limits.line_bytes} bytes a line, {limits.head_bytes} bytes and"
            f" {limits.headers} headers in all are read.",
        )

    def _watch_head(self, size_bytes: int) -> None:
        if self._is_idle and not self._in_head and self.timeout_keep_alive_task is not None:
            return  # everything sent was answered
        self._unparsed_bytes += size_bytes
        if self._unparsed_bytes > self.limits.head_bytes + self.limits.line_bytes:
            try:
                self._stop_large_head()
            except _Refused:
                self.send_400_response("")
        elif self._timer is None:
            self._timer = self.loop.call_later(self.limits.head_timeout_s, self._head_is_late)

    def _head_is_late(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self._is_answering:  # the next request may wait for the answer to this one
            self._timer = self.loop.call_later(self.limits.head_timeout_s, self._head_is_late)
        elif self._in_head:
            self._refuse(
                408, "RequestTimeout", f"The request's head was not complete after {self.limits.head_timeout_s:g} s."
            )
        else:
            self._cut()

    def _watch_body(self) -> None:
        if self._timer is None:
            self._window_bytes = 0
            self._window_excused = False
            self._timer = self.loop.call_later(self.limits.body_window_s, self._measure_body)

    def _measure_body(self) -> None:
        self._timer = None
        if not self._in_body or self.transport.is_closing():
            return
        excused = self._window_excused or self.flow.read_paused or self.cycle.waiting_for_100_continue
        if not excused and self._window_bytes < self.limits.body_bytes_per_s * self.limits.body_window_s:
            self._refuse(
                408,
                "RequestTimeout",
                f"The body came slower than {self.limits.body_bytes_per_s} bytes a second for"
                f" {self.limits.body_window_s:g} s.",
            )
        else:
            self._watch_body()

    def _refuse(self, status: int, code: str, message: str) -> None:
        if self.transport.is_closing():  # nothing can be written after the reply that closed it
            return
        self._refusal = (status, code, message)
        self._stop_timer()
        self._unset_keepalive_if_required()
        answering = self._is_answering
        if not answering or (self._in_body and not self.cycle.response_started and not self.pipeline):
            self.transport.write(_refusal_bytes(status, code, message))
        if answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_gently(self, transport: asyncio.Transport) -> None:
        unread = self._in_head or self._in_body or self._refusal is not None
        if not unread or self._lingering or transport.is_closing() or not transport.can_write_eof():
            transport.close()
            return
        self._lingering = True
        self._stop_timer()
        self.flow.resume_reading()
        transport.write_eof()
        self._timer = self.loop.call_later(self.limits.linger_s, self._cut)

    def _cut(self) -> None:
        self._stop_timer()
        self.transport.cut()  # pyrefly: ignore[missing-attribute] - it is the gentle transport


class _GentleTransport:
    """The transport as uvicorn uses it, but for ``close``, which lets the client read the reply first."""

    def __init__(self, transport: asyncio.Transport, protocol: LimitedProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._is_closing = False
        self.write = transport.write
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_extra_info = transport.get_extra_info

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._protocol._close_gently(self._transport)

    def cut(self) -> None:
        self._is_closing = True
        self._transport.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)


def limited_protocol(limits: HttpLimits | None = None) -> type[LimitedProtocol]:
    """A protocol class for uvicorn's ``http`` setting.

    Args:
        limits: Other limits than the default, e.g. short times in tests.
    """
    if limits is None:
        return LimitedProtocol
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


def _refusal_bytes(status: int, code: str, message: str) -> bytes:
    body = json.dumps({"__type": code, "message": message}).encode("ascii")
    head = (
        f"content-type: application/x-amz-json-1.1\r\nx-amzn-errortype: {code}\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return STATUS_LINE[status] + head.encode("ascii") + body
