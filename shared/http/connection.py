"""One HTTP/1.1 connection, on httptools' parser.

Requests of a connection are answered in order, one at a time. Pipelined requests wait in a bounded queue; while it is
full, the connection is not read. The listener's `tick` checks time limits once a second, so requests need no timers.

Clients send the same head again and again. For applications that get complete requests, the parsed head is cached. A
request is not parsed if it arrives in one piece, its head is byte for byte a cached one, and the parser is between two
requests. The limits of a head are enforced while it is read, and ambiguous heads are refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, cast

import httptools

from .exchange import Application, Exchange
from .limits import KnownHead, Limits, Refusal, Traffic
from .room import Room

_RETRY = ((b"Retry-After", b"1"),)
_HEAD_END = b"\r\n\r\n"
_OFFER_HEADERS = (b"upgrade", b"connection")
_KNOWN_HEAD_BYTES = 2048  # longer heads are not cached


class _HeadReader:
    """Receives the parser's callbacks for the heads of one connection, one head at a time.

    Args:
        limits: See `Limits`.
        stop: Stops the parser and refuses the request.
    """

    def __init__(self, limits: Limits, stop: Callable[[Refusal], NoReturn]) -> None:
        self._limits = limits
        self._stop = stop
        self.begin()

    def begin(self) -> None:
        """Reset for a new head."""
        self.size_bytes = 0
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        """Append a part of the request target."""
        self.target += url
        if len(self.target) > self._limits.line_bytes:
            self._stop(Refusal(414, f"Request target too long: more than {self._limits.line_bytes} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header."""
        self.headers.append((name.lower(), value))
        self.size_bytes += len(name) + len(value)

    def stop_large(self) -> NoReturn:
        """Refuse the head because it is too large."""
        self._stop(_too_large(f"headers of more than {self._limits.head_bytes} bytes"))

    def fields(self, version: str) -> dict[bytes, bytes]:
        """Return the headers by name, with values of one name joined by commas; refuse ambiguous heads.

        A head is ambiguous if another HTTP parser might find another host or body length in it.
        """
        limits = self._limits
        if self.size_bytes > limits.line_bytes or len(self.headers) > limits.headers:  # skips most heads
            self._check_sizes()
        found = dict(self.headers)
        if len(found) < len(self.headers):
            found = {}
            for name, value in self.headers:
                found[name] = found[name] + b", " + value if name in found else value
        refusal = _ambiguity(found, version)
        if refusal is not None:
            self._stop(refusal)
        return found

    def without_offer(self, method: bytes, version: str, *, keep_alive: bool) -> bytes:
        """Return the head's bytes without its offer to upgrade the protocol."""
        lines = [b"%s %s HTTP/%s" % (method, self.target, version.encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in _OFFER_HEADERS]
        lines += [] if keep_alive else [b"connection: close"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _check_sizes(self) -> None:
        limits = self._limits
        if self.size_bytes > limits.head_bytes:
            self.stop_large()
        if len(self.headers) > limits.headers:
            self._stop(_too_large(f"more than {limits.headers} headers"))
        if max(len(name) + len(value) for name, value in self.headers) > limits.line_bytes:
            self._stop(_too_large(f"a header of more than {limits.line_bytes} bytes"))


class Connection(asyncio.Protocol):
    """Reads requests, passes them to the application, writes the answers.

    Args:
        traffic: Shared by all connections: limits, clock, counters.
        room: The open connections. This one enters when it is made, if it has not entered before its TLS handshake, and
            leaves at its end.
    """

    def __init__(self, application: Application, traffic: Traffic, room: Room) -> None:
        self._application = application
        self._traffic = traffic
        self._room = room
        self._head = _HeadReader(traffic.limits, self._stop)
        # Callbacks of the parser, besides the methods below.
        self.on_url = self._head.on_url
        self.on_header = self._head.on_header
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self.handshake: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        self._queue: deque[Exchange] = deque()
        self._receiving: Exchange | None = None  # whose body is being received: the last in the queue
        self._headed: Exchange | None = None  # whose head was parsed last
        self._refusal: Refusal | None = None
        self._unused = self._reading = self._writable = True
        self._in_head = self._skipped_body = self._excused = self._is_proven = False
        self._advancing = self._last = self._lingering = False
        self._since_s = traffic.now_s()
        self._head_bytes = self._window_bytes = self._lingered_bytes = 0

    @property
    def busy(self) -> bool:
        """Whether a request is being read or answered."""
        return bool(self._queue) or self._in_head or self._lingering

    @property
    def waits(self) -> bool:
        """Whether the next step is the client's: no complete request is being answered."""
        return self._lingering or not (self._queue and self._queue[0].started and self._queue[0].complete)

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self in self._room:
            return
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if not self._room.enter(self, peer=peer, own=own):
            self._refuse(Refusal(503, "The server has no room for more connections at the moment: try again", _RETRY))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._in_head = self._lingering = False
        self._drop_queue()
        self._room.leave(self)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        if not self._traffic.streams and self._writable and not (self._queue or self._in_head or self._last):
            end = data.find(_HEAD_END) + len(_HEAD_END)
            known = self._traffic.known_heads.get(data[:end])
            if known is None:
                data = self._learn(data, end)
            elif len(data) - end == known.body_bytes and self._has_room(known.body_bytes):
                self._take(known, data[end:])
                return
        if self._in_head:
            self._head_bytes += len(data)
        while data and not self._last:
            data = self._parse(data)
        if self._lingering:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > self._traffic.limits.linger_bytes:
                self.close()

    def eof_received(self) -> bool:
        """Keep the connection open for pending answers, unless the application watches for the client to leave."""
        self._last = True
        if self._queue:
            self._queue[-1].keep_alive = False
        return not self._traffic.streams and bool(self._queue) and self._queue[0].complete

    def pause_writing(self) -> None:
        self._set_writable(False)

    def resume_writing(self) -> None:
        self._set_writable(True)
        self._advance()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._head.begin()
        self._in_head = True
        self._head_bytes = self._window_bytes = 0
        self._since_s = self._traffic.now_s()

    def on_headers_complete(self) -> None:
        self._in_head = False
        version: str = self._parser.get_http_version()
        fields = self._head.fields(version)
        length = int(fields.get(b"content-length", b"0"))
        if not self._traffic.streams:
            self._check_size(length)
        if self._parser.should_upgrade() and (length or b"transfer-encoding" in fields):
            self._skipped_body = True  # the parser stops at an upgrade: parse the following bytes again
            return
        exchange = self._receiving = self._headed = self._new_exchange()
        exchange.method = self._parser.get_method()
        exchange.target = self._head.target
        exchange.headers = self._head.headers
        exchange.fields = fields
        exchange.version = version
        exchange.keep_alive = version != "1.0" and self._parser.should_keep_alive()
        exchange.expects_continue = b"expect" in fields
        self._regulate()
        if self._traffic.streams or exchange.expects_continue:
            self._advance()

    def on_body(self, body: bytes) -> None:
        exchange = self._receiving
        if exchange is None:
            return  # the request is answered already
        exchange.feed(body)
        self._window_bytes += len(body)
        if self._traffic.streams:
            exchange.notify()
            self._regulate()
            return
        exchange.hold(len(body))
        self._check_size(exchange.body_bytes)
        if self._traffic.buffered_bytes > self._traffic.limits.buffered_bytes:
            self._stop(Refusal(503, "The server holds too many request bodies at the moment: try again", _RETRY))

    def on_message_complete(self) -> None:
        exchange, self._receiving = self._receiving, None
        if exchange is not None:
            exchange.complete = True
            if exchange.started:
                exchange.notify()
            else:
                self._advance()

    # Methods that the listener calls

    def tick(self, now_s: float) -> None:
        """Enforce the time limits."""
        limits = self._traffic.limits
        waited_s = now_s - self._since_s
        exchange = self._queue[0] if self._queue else None
        if self._lingering:
            if waited_s > limits.linger_s:
                self.close()
        elif exchange is not None and exchange.started and exchange.complete:
            if waited_s > limits.answer_timeout_s:
                exchange.refuse(Refusal(504, f"Timed out: no answer within {limits.answer_timeout_s:g} s"))
        elif self._receiving is not None:
            if waited_s > limits.slow_window_s:
                self._check_pace(now_s)
        elif self._in_head:
            if waited_s > limits.head_timeout_s:
                self._refuse(_too_slow(f"the headers did not come within {limits.head_timeout_s:g} s"))
        elif waited_s > (min(limits.keep_alive_s, limits.head_timeout_s) if self._unused else limits.keep_alive_s):
            self.close()

    def close(self) -> None:
        """Close after all written bytes are sent; a second call closes at once."""
        transport = self._transport
        if transport is not None:
            if transport.is_closing() or not self._writable:
                transport.abort()
            transport.close()
            self._lingering = False
            self._since_s = self._traffic.now_s()
        elif self.handshake is not None:
            self.handshake.cancel()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        elif self.handshake is not None:
            self.handshake.cancel()

    def ending(self) -> asyncio.Future[None]:
        """Return a future that is done when the connection has ended."""
        self._ended = self._ended or asyncio.get_running_loop().create_future()
        return self._ended

    # Private

    def _take(self, head: KnownHead, body: bytes) -> None:
        """Pass a complete request to the application."""
        exchange = self._new_exchange()
        exchange.method = head.method
        exchange.target = head.target
        exchange.headers = head.headers
        exchange.fields = head.fields
        exchange.keep_alive = exchange.started = True
        exchange.fill(body)
        self._since_s = self._traffic.now_s()
        self._application(exchange)

    def _has_room(self, size_bytes: int) -> bool:
        return self._traffic.buffered_bytes + size_bytes <= self._traffic.limits.buffered_bytes

    def _learn(self, data: bytes, end: int) -> bytes:
        """Parse the head at the start of these bytes and cache it; return the bytes left to parse.

        Between two requests the result of parsing depends on the bytes alone. So the head can be cached if these bytes
        produced exactly one request and no part of its body.
        """
        if not len(_HEAD_END) < end <= _KNOWN_HEAD_BYTES:
            return data
        self._headed = None
        rest = self._parse(data[:end])
        exchange = self._headed
        if rest or exchange is None or self._last or self._in_head or not exchange.keep_alive or exchange.body_bytes:
            return rest + data[end:]
        length = exchange.fields.get(b"content-length", b"0")
        is_plain = b"expect" not in exchange.fields and b"transfer-encoding" not in exchange.fields
        if is_plain and exchange.version == "1.1" and exchange.complete == (not int(length)):
            head = KnownHead(exchange.method, exchange.target, exchange.headers, exchange.fields, int(length))
            self._traffic.remember_head(data[:end], head)
        return data[end:]

    def _parse(self, data: bytes) -> bytes:
        """Feed the parser; return the bytes to parse again because they follow an offer to upgrade the protocol."""
        parser = self._parser
        try:
            parser.feed_data(data)
            if self._in_head and self._head_bytes > self._traffic.limits.head_bytes:
                self._head.stop_large()
        except httptools.HttpParserUpgrade as upgrade:
            self._parser = httptools.HttpRequestParser(self)
            rest = data[upgrade.args[0] :]
            if not self._skipped_body:
                return rest
            self._skipped_body = False
            version: str = parser.get_http_version()
            return self._head.without_offer(parser.get_method(), version, keep_alive=parser.should_keep_alive()) + rest
        except (httptools.HttpParserError, _Stopped) as error:
            self._refuse(self._refusal or Refusal(400, f"Malformed HTTP request: {error}"))
        return b""

    def _stop(self, refusal: Refusal) -> NoReturn:
        """Stop the parser; `_parse` refuses the request."""
        self._refusal = refusal
        raise _Stopped

    def _check_size(self, size_bytes: int) -> None:
        limit = self._traffic.limits.body_bytes
        if size_bytes > limit:
            self._stop(Refusal(413, f"The request body is larger than the {limit} bytes allowed"))

    def _new_exchange(self) -> Exchange:
        transport = self._transport
        assert transport is not None
        prove = None if self._is_proven else self._prove
        exchange = Exchange(self._traffic, transport, self._finished, self._regulate, prove)
        self._queue.append(exchange)
        return exchange

    def _prove(self) -> None:
        if not self._is_proven:
            self._is_proven = True
            self._room.prove(self)

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse the request being read, after answering those before it, and close the connection."""
        exchange = self._receiving or self._new_exchange()
        exchange.hold(-exchange.held_bytes)
        exchange.refusal = self._refusal = refusal
        self._receiving = None
        self._in_head = False
        self._last = True
        if exchange.started:
            exchange.refuse(refusal)
        else:
            self._advance()

    def _advance(self) -> None:
        """Pass the next exchange to the application, if the one before it is answered."""
        if self._advancing:  # the application answered at once, inside the loop below, which continues anyway
            return
        self._advancing = True
        try:
            while self._queue and self._writable and not self._queue[0].started:
                exchange = self._queue[0]
                if exchange.refusal is None and not exchange.complete and not self._traffic.streams:
                    exchange.ask_for_body()
                    return
                exchange.started = True
                self._since_s = self._traffic.now_s()
                if exchange.refusal is None:
                    self._application(exchange)
                else:
                    exchange.refuse(exchange.refusal)
        finally:
            self._advancing = False

    def _finished(self, exchange: Exchange) -> None:
        """Continue with the next exchange after an answered one."""
        self._queue.popleft()
        self._unused = False
        self._since_s = self._traffic.now_s()
        if self._traffic.streams:
            exchange.notify()
        if exchange.closes or not exchange.complete:
            self._end()
            return
        if not self._reading:
            self._regulate()
        self._advance()

    def _end(self) -> None:
        """Close after the answer just written."""
        unread = self._refusal is not None or self._in_head or self._receiving is not None
        self._last = True
        self._in_head = False
        self._drop_queue()
        transport = self._transport
        if transport is None:
            return
        if not unread or not transport.can_write_eof():
            transport.close()
            return
        # Closing with unread bytes would reset the connection, and the sender might never see the answer.
        self._lingering = True
        self._regulate()
        transport.write_eof()

    def _drop_queue(self) -> None:
        self._receiving = None
        while self._queue:
            self._queue.popleft().lose()

    def _set_writable(self, writable: bool) -> None:
        self._writable = writable
        if self._queue:
            self._queue[0].writable = writable
            self._queue[0].notify()

    def _regulate(self) -> None:
        """Resume or pause reading, depending on the room left in the queue and the buffers."""
        limits, receiving = self._traffic.limits, self._receiving
        full = len(self._queue) >= limits.pipelined or (
            self._traffic.streams and receiving is not None and receiving.unread_bytes > limits.unread_bytes
        )
        if full is not self._reading:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._reading = not full
        if full:
            self._excused = True
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _check_pace(self, now_s: float) -> None:
        limits, exchange = self._traffic.limits, self._receiving
        excused = self._excused or (exchange is not None and exchange.expects_continue)
        if not excused and self._window_bytes < limits.slow_bytes_per_s * limits.slow_window_s:
            brought = f"the body brought {self._window_bytes} bytes in {limits.slow_window_s:g} s"
            self._refuse(_too_slow(f"{brought}; at least {limits.slow_bytes_per_s} bytes a second are needed"))
        self._since_s = now_s
        self._window_bytes = 0
        self._excused = not self._reading


class _Stopped(Exception):
    """Stops the parser."""


def _too_slow(what: str) -> Refusal:
    return Refusal(408, f"Request timed out: {what}")


def _ambiguity(fields: dict[bytes, bytes], version: str) -> Refusal | None:
    host, coding, expect = fields.get(b"host"), fields.get(b"transfer-encoding"), fields.get(b"expect")
    if host is None and version != "1.0":
        return Refusal(400, "No Host header")
    if host is not None and b"," in host:
        return Refusal(400, "Two Host headers: send one")
    if coding is not None and b"content-length" in fields:
        return Refusal(400, "Content-Length and Transfer-Encoding together: send one of them")
    if coding is not None and coding.lower() != b"chunked":
        return Refusal(400, f"Unsupported Transfer-Encoding: {coding.decode('latin-1')}; send chunked")
    if expect is not None and expect.lower() != b"100-continue":
        return Refusal(417, f"Unsupported Expect: {expect.decode('latin-1')}")
    return None


def _too_large(what: str) -> Refusal:
    return Refusal(431, f"Request header fields too large: {what}")
