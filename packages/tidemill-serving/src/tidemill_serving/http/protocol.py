"""One HTTP/1.1 connection, on httptools' parser.

Requests of a connection are answered in the order in which they came, one at a time. Those read ahead wait in a queue
of bounded length, behind which the connection is not read. Times are watched by the listener's `tick`, once a second,
so that no request needs a timer of its own.
"""

import asyncio
from collections import deque
from typing import Any, cast

import httptools

from tidemill_serving.errors import Code, RequestError
from tidemill_serving.http.body import decode_body, too_large
from tidemill_serving.http.message import Reply, Request, Response, error_response
from tidemill_serving.http.traffic import Traffic

__all__ = ["HttpProtocol"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_OFFER_HEADERS = (b"upgrade", b"connection")
_LINGER_S = 2.0  # how long the rest of a refused request is read and dropped, so that its sender reads the refusal


class HttpProtocol(asyncio.Protocol):
    """Reads requests, passes them to the application, writes the answers.

    Args:
        traffic: Shared by all connections: application, limits, clock, counters.
    """

    __slots__ = (
        "_answering",
        "_body",
        "_body_bytes",
        "_close_after",
        "_head_bytes",
        "_header_bytes",
        "_headers",
        "_in_body",
        "_in_head",
        "_keep_alive",
        "_lingering",
        "_parser",
        "_pumping",
        "_queue",
        "_reading",
        "_refusal",
        "_since_s",
        "_skipped_body",
        "_target",
        "_ticket",
        "_traffic",
        "_transport",
        "_window_bytes",
        "_writable",
    )

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._queue: deque[tuple[Request | RequestError, bool]] = deque()
        self._answering = False
        self._pumping = False
        self._lingering = False
        self._ticket = 0  # tells the answer that is waited for from one that comes after its time-out
        self._keep_alive = True
        self._close_after = False
        self._reading = True
        self._writable = True
        self._refusal: RequestError | None = None
        self._skipped_body = False
        self._since_s = traffic.now_s()
        self._in_head = self._in_body = False
        self._head_bytes = self._header_bytes = self._body_bytes = self._window_bytes = 0
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    @property
    def busy(self) -> bool:
        """Whether a request is being read or answered."""
        return self._answering or bool(self._queue) or self._in_head or self._in_body or self._lingering

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        refusal = self._traffic.admit(self)
        if refusal is not None:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._ticket += 1
        self._traffic.release_bytes(self._body_bytes if self._in_body else 0)
        self._drop_queue()
        self._in_head = self._in_body = False
        self._answering = False
        self._traffic.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None or self._close_after:
            return  # what follows a refused or last request is not read
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._refusal is None:
                self._decline_offer(data[upgrade.args[0] :])
                return
        except httptools.HttpParserError as error:
            if self._refusal is None:
                self._refusal = RequestError(Code.INVALID_ARGUMENT, f"Malformed HTTP request: {error}")
        if self._in_head and self._head_bytes > self._traffic.limits.head_bytes:
            self._refusal = _head_too_large(f"headers of more than {self._traffic.limits.head_bytes} bytes")
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif len(self._queue) >= self._traffic.limits.pipelined:
            self._pause_reading()

    def eof_received(self) -> bool:
        """Keep the connection open for the answers that are under way."""
        self._close_after = True
        return self._answering or bool(self._queue)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._answer_next()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = self._header_bytes = 0
        self._target = b""
        self._headers = {}
        self._body = []
        self._body_bytes = self._window_bytes = 0
        self._since_s = self._traffic.now_s()

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > self._traffic.limits.line_bytes:
            self._give_up(_head_too_large(f"a request target of more than {self._traffic.limits.line_bytes} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        limits = self._traffic.limits
        headers = self._headers
        key = name.lower()
        size_bytes = len(name) + len(value)
        self._header_bytes += size_bytes
        if self._header_bytes > limits.head_bytes:
            self._give_up(_head_too_large(f"headers of more than {limits.head_bytes} bytes"))
        elif size_bytes > limits.line_bytes:
            self._give_up(_head_too_large(f"a header of more than {limits.line_bytes} bytes"))
        elif key not in headers:
            headers[key] = value
            if len(headers) > limits.headers:
                self._give_up(_head_too_large(f"more than {limits.headers} headers"))
        elif key == b"host":
            self._give_up(RequestError(Code.INVALID_ARGUMENT, "Two Host headers: send one"))
        else:
            headers[key] += b", " + value
            if len(headers[key]) > limits.line_bytes:
                self._give_up(_head_too_large(f"a header of more than {limits.line_bytes} bytes"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._refusal is not None:
            return
        refusal = self._head_refusal()
        if refusal is not None:
            self._give_up(refusal)
            return
        if self._parser.should_upgrade() and _announces_body(self._headers):
            self._skipped_body = True  # the parser takes what follows for another protocol: it is parsed once more
            return
        self._in_body = True
        expect = self._headers.get(b"expect")
        if expect is not None and self._transport is not None and not self._answering and not self._queue:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._refusal is not None:
            return
        self._body.append(body)
        self._body_bytes += len(body)
        self._window_bytes += len(body)
        self._traffic.take_bytes(len(body))
        if self._body_bytes > self._traffic.limits.body_bytes:
            self._give_up(too_large(self._traffic.limits.body_bytes))
        elif self._traffic.buffered_bytes > self._traffic.limits.buffered_bytes:
            self._give_up(_overloaded("The server holds too many request bodies at the moment"))

    def on_message_complete(self) -> None:
        if self._refusal is not None or self._skipped_body:
            return
        self._in_body = False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        request: Request | RequestError
        try:
            plain = decode_body(
                body, self._headers.get(b"content-encoding", b""), limit_bytes=self._traffic.limits.body_bytes
            )
            request = Request(self._parser.get_method(), self._target, self._headers, plain)
        except RequestError as error:
            plain = b""
            request = error
        self._traffic.take_bytes(len(plain) - len(body))
        self._queue.append((request, self._parser.should_keep_alive()))
        self._answer_next()

    # What the listener calls

    def tick(self, now_s: float) -> None:
        """Enforce the time limits."""
        limits = self._traffic.limits
        waited_s = now_s - self._since_s
        if self._lingering:
            if waited_s > _LINGER_S:
                self.close()
        elif self._answering:
            if waited_s > limits.answer_timeout_s:
                self._send(error_response(_timed_out(limits.answer_timeout_s), close=True))
        elif self._in_head:
            if waited_s > limits.head_timeout_s:
                self._refuse(_too_slow(f"The headers did not come within {limits.head_timeout_s:g} s"))
        elif self._in_body:
            if waited_s > limits.slow_window_s:
                self._check_pace(now_s)
        elif waited_s > limits.keep_alive_s:
            self.close()

    def close(self) -> None:
        """Close when everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Answer what has come, then close."""
        self._close_after = True
        if not self.busy:
            self.close()
        else:
            self._close_after = self._answering or bool(self._queue)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # Answers

    def _answer_next(self) -> None:
        if self._pumping:  # called by an answer that was given at once: the loop below goes on by itself
            return
        self._pumping = True
        try:
            while self._queue and not self._answering and self._writable and self._transport is not None:
                request, self._keep_alive = self._queue.popleft()
                self._answering = True
                self._since_s = self._traffic.now_s()
                self._ticket += 1
                if isinstance(request, Request):
                    self._traffic.application(request, self._reply_to(request, self._ticket))
                else:
                    self._send(error_response(request))
        finally:
            self._pumping = False

    def _reply_to(self, request: Request, ticket: int) -> Reply:
        size_bytes = len(request.body)
        head_only = request.method == b"HEAD"

        def reply(response: Response) -> None:
            self._traffic.release_bytes(size_bytes)
            if ticket == self._ticket:
                self._send(response, head_only=head_only)

        return reply

    def _send(self, response: Response, *, head_only: bool = False) -> None:
        transport = self._transport
        if transport is None:
            return
        last = self._close_after and not self._queue
        close = response.close or not self._keep_alive or self._traffic.draining or last
        transport.write(response.encode(keep_alive=not close, date=self._traffic.date, head_only=head_only))
        self._answering = False
        self._ticket += 1
        self._since_s = self._traffic.now_s()
        if close:
            self._end(transport)
            return
        if not self._reading and len(self._queue) < self._traffic.limits.pipelined:
            self._reading = True
            transport.resume_reading()
        self._answer_next()

    def _end(self, transport: asyncio.Transport) -> None:
        """Close behind the answer just written."""
        self._close_after = True
        self._drop_queue()
        if self._refusal is None or not transport.can_write_eof():
            transport.close()
            return
        # Closing with unread bytes would reset the connection, and the sender might never see the answer.
        self._lingering = True
        transport.write_eof()

    def _drop_queue(self) -> None:
        for request, _ in self._queue:
            self._traffic.release_bytes(len(request.body) if isinstance(request, Request) else 0)
        self._queue.clear()

    def _pause_reading(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def _decline_offer(self, rest: bytes) -> None:
        """Go on in HTTP/1.1 behind a request that offered another protocol."""
        head = self._head_without_offer() if self._skipped_body else b""
        self._skipped_body = False
        self._parser = httptools.HttpRequestParser(self)
        if head or rest:
            self.data_received(head + rest)

    def _head_without_offer(self) -> bytes:
        """The head just parsed, as it would have been without an offer to upgrade."""
        version: str = self._parser.get_http_version()
        lines = [b"%s %s HTTP/%s" % (self._parser.get_method(), self._target, version.encode())]
        lines += [b"%s: %s" % header for header in self._headers.items() if header[0] not in _OFFER_HEADERS]
        if not self._parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _head_refusal(self) -> RequestError | None:
        headers = self._headers
        limits = self._traffic.limits
        version = self._parser.get_http_version()
        if version == "1.1" and b"host" not in headers:
            return RequestError(Code.INVALID_ARGUMENT, "No Host header")
        if b"content-length" in headers and b"transfer-encoding" in headers:
            return RequestError(
                Code.INVALID_ARGUMENT, "Content-Length and Transfer-Encoding together: send one of them"
            )
        coding = headers.get(b"transfer-encoding", b"chunked")
        if coding.lower() != b"chunked":
            return RequestError(
                Code.INVALID_ARGUMENT, f"Unsupported Transfer-Encoding: {coding.decode('latin-1')}; send chunked"
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limits.body_bytes:
            return too_large(limits.body_bytes) if length.isdigit() else _bad_length(length)
        expect = headers.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            return RequestError(
                Code.INVALID_ARGUMENT, f"Unsupported Expect: {expect.decode('latin-1')}", http_status=417
            )
        return None

    def _check_pace(self, now_s: float) -> None:
        if self._window_bytes < self._traffic.limits.slow_bytes:
            window_s = self._traffic.limits.slow_window_s
            self._refuse(_too_slow(f"The body brought {self._window_bytes} bytes in {window_s:g} s"))
            return
        self._since_s = now_s
        self._window_bytes = 0

    def _give_up(self, refusal: RequestError) -> None:
        """Refuse the request that is being parsed; `data_received` answers when the parser returns."""
        if self._refusal is None:
            self._refusal = refusal

    def _refuse(self, refusal: RequestError) -> None:
        """Answer the request that is being read, behind those before it, and close the connection."""
        self._refusal = refusal
        if self._in_body:
            self._traffic.release_bytes(self._body_bytes)
        self._in_head = self._in_body = False
        self._body = []
        self._queue.append((refusal, False))
        self._answer_next()


def _announces_body(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


def _head_too_large(what: str) -> RequestError:
    return RequestError(Code.INVALID_ARGUMENT, f"Request header fields too large: {what}", http_status=431)


def _bad_length(value: bytes) -> RequestError:
    return RequestError(Code.INVALID_ARGUMENT, f"Content-Length: {value.decode('latin-1')} is not one number")


def _too_slow(what: str) -> RequestError:
    return RequestError(Code.DEADLINE_EXCEEDED, f"Request timed out: {what}", http_status=408)


def _timed_out(limit_s: float) -> RequestError:
    return RequestError(Code.DEADLINE_EXCEEDED, f"Timed out: no answer within {limit_s:g} s")


def _overloaded(what: str) -> RequestError:
    return RequestError(Code.UNAVAILABLE, f"{what}: try again", headers=(("Retry-After", "1"),))
