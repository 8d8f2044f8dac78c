"""One connection of HTTP/2 with prior knowledge, as gRPC uses it: read frames, and collect whole calls.

The frames are parsed here because parsing small calls is the hot path, and a general HTTP/2 library would take most of
a call's time. The library hpack decodes header blocks, except blocks in which every byte refers to a known header:
clients repeat such blocks, and a block has the same meaning until the table changes.

The client is not trusted. There are limits for headers, messages, calls, frames that do not advance a call
(`_SPARE_FRAMES`), and the time until the client must continue.
"""

import asyncio
import sys
import traceback
from ipaddress import ip_address
from typing import Any, cast

from hpack import Decoder

from tidemill_serving.errors import Code
from tidemill_serving.grpc_api import frames
from tidemill_serving.grpc_api.call import PREFIX_BYTES, Call, Head, head_of, too_large
from tidemill_serving.grpc_api.frames import Http2Error
from tidemill_serving.grpc_api.sending import Sender
from tidemill_serving.grpc_api.traffic import GrpcTraffic

_CALL_WINDOW = 2**20
_WINDOW = 2**24
_SPARE_FRAMES = 4096  # frames that a client may send without advancing a call
_SPARE_PER_CALL, _SPARE_PER_DATA, _SPARE_PER_S = 8, 2, 1000
_RESET_COST = 10  # more than a call earns, so that calls reset at once are not free
_KNOWN_HEADS = 64
_LAST_CALLS = b"lastcall"  # a PING whose answer shows that the client has read the GOAWAY before it
_KEEPALIVE = b"keepaliv"
_ANNOUNCED_S = 1.0  # time that a client has to acknowledge that its connection ends


class GrpcConnection(asyncio.Protocol):
    """HTTP/2 connection of a gRPC client.

    Args:
        traffic: State that all connections share.
    """

    def __init__(self, traffic: GrpcTraffic) -> None:
        self._traffic = traffic
        self._loop = traffic.loop
        self._decoder = Decoder(max_header_list_size=traffic.limits.head_bytes)
        self._heads: dict[bytes, Head] = {}
        self._calls: dict[int, Call] = {}
        self._buffer = b""
        self._greeted = self._configured = self._closing = False
        self._no_new_calls = self._leaving = False
        self._last_stream = self._dropped_bytes = 0
        self._opened: tuple[int, int] | None = None  # stream and flags of headers that CONTINUATION frames continue
        self._block = b""
        self._window = _WINDOW
        self._spare = _SPARE_FRAMES
        self._handlers = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.PRIORITY: self._on_priority,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push_promise,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window_update,
            frames.CONTINUATION: self._on_continuation,
        }

    # --- asyncio ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection, or abort it if there are too many.

        Args:
            transport: The socket's transport.
        """
        self._transport = cast("asyncio.Transport", transport)
        self._sender = Sender(self._transport, loop=self._loop, answered=self._answered, sent=self._sent)
        self._used_s = self._advanced_s = self._began_s = self._loop.time()
        self._announced_s: float | None = None
        self._pinged, self._pinged_s = False, 0.0
        if len(self._traffic.connections) >= self._traffic.limits.connections:
            self._transport.abort()
            return
        self._traffic.connections.add(self)
        self._traffic.ended.clear()
        offered = {
            frames.MAX_CONCURRENT_STREAMS: self._traffic.arguments.streams,
            frames.INITIAL_WINDOW_SIZE: _CALL_WINDOW,
            frames.MAX_HEADER_LIST_SIZE: self._traffic.limits.head_bytes,
        }
        update = frames.number_frame(frames.WINDOW_UPDATE, 0, _WINDOW - frames.DEFAULT_WINDOW)
        self._transport.write(frames.settings(offered) + update)

    @property
    def is_local(self) -> bool:
        """Whether the client connects by the loopback interface or a unix socket."""
        peer = self._transport.get_extra_info("peername")
        return not isinstance(peer, tuple) or ip_address(peer[0]).is_loopback

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the calls of the connection.

        Args:
            exc: Unused; why asyncio closed it.
        """
        self._closing = True
        self._cancel_all()
        self._traffic.connections.discard(self)
        if not self._traffic.connections:
            self._traffic.ended.set()

    def pause_writing(self) -> None:
        self._sender.pause()
        self._transport.pause_reading()  # the client does not read, and more requests would need more answers

    def resume_writing(self) -> None:
        self._transport.resume_reading()
        self._sender.resume()

    def data_received(self, data: bytes) -> None:
        """Feed bytes to the parser, or count them if the connection is closing.

        Args:
            data: One read of the socket; frames may be split between reads.
        """
        if self._closing:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > self._traffic.limits.linger_bytes:
                self.abort()
            return
        try:
            self._read(self._buffer + data if self._buffer else data)
        except Http2Error as error:
            self._end(error.code)
        except Exception:  # noqa: BLE001  # a defect here must not leave clients waiting
            traceback.print_exc(file=sys.stderr)
            self._end(frames.INTERNAL_ERROR)

    # --- the server's side -------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a call is not yet answered completely."""
        return bool(self._calls)

    def send_answer(self, call: Call, message: bytes) -> None:
        """Answer a call with a message. No effect if the call is over.

        Args:
            message: The serialized message; it counts as held until sent.
        """
        if not call.is_over:
            call.is_over = True
            call.parts = []
            self._traffic.release(call)
            self._traffic.hold(call, len(message))
            self._sender.answer(call, message)

    def send_failure(self, call: Call, status: int, message: bytes) -> None:
        """Answer a call with an error status. No effect if the call is over.

        Args:
            status: gRPC's number of the error.
            message: UTF-8 text.
        """
        block = frames.failure_trailers if call.has_begun else frames.failure_block
        self._refuse(call, block(status, message))

    def send_part(self, call: Call, message: bytes) -> None:
        """Send one message of a streamed answer. No effect if the call is over.

        Args:
            message: The serialized message; it counts as held until sent.
        """
        if not call.is_over:
            self._sender.answer(call, message)
            if len(call.pending):
                self._traffic.hold(call, len(message))

    def end_answer(self, call: Call) -> None:
        """End a streamed answer with the status OK. No effect if the call is over."""
        if not call.is_over:
            call.is_over = True
            self._sender.end(call)

    def consumed(self, call: Call, size_bytes: int) -> None:
        """Let the client send more, because a message of its stream was read.

        Args:
            size_bytes: Bytes of the message and its prefix.
        """
        call.size_bytes -= size_bytes
        self._traffic.hold(call, -size_bytes)
        self._spare = min(_SPARE_FRAMES, self._spare + _SPARE_PER_CALL)
        if call.receive_window < _CALL_WINDOW // 2 and not call.is_complete:
            self._open_window(call)

    def announce_end(self) -> None:
        """Announce to the client that the server will stop. Calls already sent are still answered."""
        if not self._closing:
            ping = frames.frame(frames.PING, 0, 0, _LAST_CALLS)
            self._sender.put(frames.goaway(frames.MAX_STREAM, frames.NO_ERROR) + ping)

    def stop(self) -> None:
        """Accept no more calls, and close the connection after the last answer."""
        if not self._closing and not self._no_new_calls:
            self._no_new_calls = self._leaving = True
            self._sender.put(frames.goaway(self._last_stream, frames.NO_ERROR))
            self._close_if_done()

    def abort(self) -> None:
        """Close the connection immediately."""
        self._closing = True
        self._transport.abort()

    def tick(self, now_s: float) -> None:
        """Enforce the time limits; called about once a second.

        Args:
            now_s: Time of the event loop, in seconds.
        """
        limits = self._traffic.limits
        self._spare = min(_SPARE_FRAMES, self._spare + _SPARE_PER_S)
        if self._closing:
            if now_s - self._used_s > limits.linger_s:
                self.abort()
        elif not self._configured:
            if now_s - self._used_s > limits.head_timeout_s:
                self.abort()
        elif self._sender.is_stalled:
            if now_s - self._sender.progress_s > limits.slow_window_s:
                self.abort()
        elif (self._buffer or self._opened) and now_s - self._advanced_s > limits.slow_window_s:
            self._end(frames.ENHANCE_YOUR_CALM)
        elif not self._calls and now_s - self._used_s > self._traffic.arguments.idle_s:
            self.stop()
        else:
            self._refuse_slow(now_s)
            self._end_old(now_s)
            self._keep_alive(now_s)

    def _end_old(self, now_s: float) -> None:
        arguments = self._traffic.arguments
        if now_s - self._began_s < arguments.age_s:
            return
        if self._announced_s is None:
            self._announced_s = now_s
            self.announce_end()
        elif now_s - self._announced_s > arguments.age_grace_s:
            self.abort()
        elif now_s - self._announced_s > _ANNOUNCED_S:
            self.stop()

    def _keep_alive(self, now_s: float) -> None:
        """Ping a silent client; close its connection if it does not answer."""
        arguments = self._traffic.arguments
        silent_s = now_s - self._advanced_s
        if silent_s < arguments.keepalive_s or not (self._calls or arguments.keepalive_without_calls):
            self._pinged = False
        elif not self._pinged:
            self._pinged = True
            self._pinged_s = now_s
            self._sender.put(frames.frame(frames.PING, 0, 0, _KEEPALIVE))
        elif now_s - self._pinged_s > arguments.keepalive_timeout_s:
            self.abort()

    # --- frames ---------------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        position = self._greet(data)
        size = len(data)
        while self._greeted and size - position >= frames.HEAD_BYTES and not self._closing:
            length, kind, flags, stream = frames.read_head(data, position)
            if length > frames.FRAME_BYTES:
                raise Http2Error(frames.FRAME_SIZE_ERROR)
            end = position + frames.HEAD_BYTES + length
            if end > size:
                break
            self._frame(kind, flags, stream, data[position + frames.HEAD_BYTES : end])
            position = end
        if position:
            self._advanced_s = self._loop.time()
        self._buffer = data[position:]

    def _greet(self, data: bytes) -> int:
        if self._greeted:
            return 0
        if not frames.PREFACE.startswith(data[: len(frames.PREFACE)]):
            raise Http2Error(frames.PROTOCOL_ERROR)
        self._greeted = len(data) >= len(frames.PREFACE)
        return len(frames.PREFACE) if self._greeted else 0

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if not self._configured and (kind != frames.SETTINGS or flags & frames.ACK):
            raise Http2Error(frames.PROTOCOL_ERROR)
        if self._opened is not None and (kind != frames.CONTINUATION or stream != self._opened[0]):
            raise Http2Error(frames.PROTOCOL_ERROR)
        handler = self._handlers.get(kind)
        if handler is None:
            self._spend(1)  # frames of extensions are ignored
        else:
            handler(flags, stream, payload)

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        length = len(payload)
        self._grant(length)
        call = self._calls.get(stream)
        if call is None or call.is_complete:
            self._check_known(stream)
            self._spend(1)
            return
        if flags & frames.PADDED:
            payload = frames.unpadded(payload)
        call.receive_window -= length
        if not call.is_over:
            self._keep(call, payload)
        if flags & frames.END_STREAM:
            self._complete(call)
        elif not payload:
            self._spend(1)
        elif call.streamed is not None:
            call.streamed.advance(call)
        elif call.receive_window < _CALL_WINDOW // 2 and not call.is_over:
            self._open_window(call)

    def _open_window(self, call: Call) -> None:
        update = frames.number_frame(frames.WINDOW_UPDATE, call.stream, _CALL_WINDOW - call.receive_window)
        call.receive_window = _CALL_WINDOW
        self._sender.put(update)

    def _grant(self, length: int) -> None:
        """Enlarge the connection's window before it is used up. Message sizes, not this window, limit a client."""
        self._window -= length
        if self._window < _WINDOW // 2:
            self._sender.put(frames.number_frame(frames.WINDOW_UPDATE, 0, _WINDOW - self._window))
            self._window = _WINDOW

    def _keep(self, call: Call, payload: bytes) -> None:
        limits = self._traffic.limits
        if payload:
            call.parts.append(payload)
            call.size_bytes += len(payload)
            self._traffic.hold(call, len(payload))
        if call.size_bytes > limits.body_bytes + PREFIX_BYTES:
            size = int.from_bytes(b"".join(call.parts[:PREFIX_BYTES])[1:PREFIX_BYTES], "big")
            call.fail(Code.RESOURCE_EXHAUSTED, too_large(size, limit_bytes=limits.body_bytes).message)
        elif self._traffic.buffered_bytes > limits.buffered_bytes:
            call.fail(Code.RESOURCE_EXHAUSTED, "The server holds too many messages at the moment; try again later")

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream & 1:
            raise Http2Error(frames.PROTOCOL_ERROR)
        if flags & frames.PADDED:
            payload = frames.unpadded(payload)
        if flags & frames.PRIORITY_FLAG:
            if len(payload) < 5:
                raise Http2Error(frames.FRAME_SIZE_ERROR)
            payload = payload[5:]
        if flags & frames.END_HEADERS:
            self._begin(stream, flags, payload)
        else:
            self._opened, self._block = (stream, flags), payload

    def _on_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._opened is None:
            raise Http2Error(frames.PROTOCOL_ERROR)
        self._spend(1)
        self._block += payload
        if len(self._block) > self._traffic.limits.head_bytes:
            raise Http2Error(frames.ENHANCE_YOUR_CALM)
        if flags & frames.END_HEADERS:
            (_, flags), self._opened = self._opened, None
            self._begin(stream, flags, self._block)
            self._block = b""

    def _begin(self, stream: int, flags: int, block: bytes) -> None:
        head = self._head(block)  # always decoded, because it may change the table for later blocks
        call = self._calls.get(stream)
        if call is not None:  # trailers
            if call.is_complete or not flags & frames.END_STREAM:
                raise Http2Error(frames.PROTOCOL_ERROR)
            self._complete(call)
            return
        if stream <= self._last_stream or self._no_new_calls:
            self._spend(1)
            return
        self._last_stream = stream
        if len(self._calls) >= self._traffic.arguments.streams:
            self._spend(_RESET_COST)
            self._sender.put(frames.number_frame(frames.RST_STREAM, stream, frames.REFUSED_STREAM))
            return
        self._used_s = now_s = self._loop.time()
        window = self._sender.stream_window
        call = Call(self, stream, head, begin_s=now_s, send_window=window, receive_window=_CALL_WINDOW)
        self._calls[stream] = call
        if head.is_grpc:
            call.streamed = self._traffic.streamed.get(head.path)
        if flags & frames.END_STREAM:
            self._complete(call)

    def _head(self, block: bytes) -> Head:
        head = self._heads.get(block)
        if head is not None:
            return head
        try:
            head = head_of(dict(cast("Any", self._decoder.decode(block, raw=True))))
        except Exception as error:  # hpack's own errors, and other errors that it lets through
            raise Http2Error(frames.COMPRESSION_ERROR) from error
        # Every byte of such a block is the index of a known header, so the block does not change the table.
        if not block or min(block) < 0x80 or max(block) == 0xFF or len(self._heads) >= _KNOWN_HEADS:
            self._heads.clear()
        else:
            self._heads[block] = head
        return head

    def _complete(self, call: Call) -> None:
        call.is_complete = True
        self._spare = min(_SPARE_FRAMES, self._spare + _SPARE_PER_CALL)
        if call.is_over:
            return
        if not call.head.is_grpc:
            self._refuse(call, frames.UNSUPPORTED_BLOCK)
        elif call.streamed is not None:
            call.streamed.advance(call)
        else:
            self._traffic.on_call(call)

    def _on_priority(self, _: int, stream: int, payload: bytes) -> None:
        if not stream:
            raise Http2Error(frames.PROTOCOL_ERROR)
        if len(payload) != 5:
            raise Http2Error(frames.FRAME_SIZE_ERROR)
        self._spend(1)

    def _on_reset(self, _: int, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(frames.FRAME_SIZE_ERROR)
        self._check_known(stream)
        self._spend(_RESET_COST)
        call = self._calls.get(stream)
        if call is not None:
            call.is_complete = True
            self._drop(call)
            self._close_if_done()

    def _on_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise Http2Error(frames.PROTOCOL_ERROR)
        if flags & frames.ACK:
            if payload:
                raise Http2Error(frames.FRAME_SIZE_ERROR)
            return
        self._configured = True
        values = frames.read_settings(payload)
        self._spend(1 + (1 + len(self._calls) // 8) * len(values))
        for key, value in values:
            self._sender.apply(key, value, self._calls)
        self._sender.put(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))

    def _on_push_promise(self, _flags: int, _stream: int, _payload: bytes) -> None:
        raise Http2Error(frames.PROTOCOL_ERROR)  # only servers may send PUSH_PROMISE

    def _on_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream:
            raise Http2Error(frames.PROTOCOL_ERROR)
        if len(payload) != 8:
            raise Http2Error(frames.FRAME_SIZE_ERROR)
        self._spend(1)
        if not flags & frames.ACK:
            self._sender.put(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == _LAST_CALLS:
            self.stop()

    def _on_goaway(self, _: int, stream: int, payload: bytes) -> None:
        if stream or len(payload) < 8:
            raise Http2Error(frames.PROTOCOL_ERROR)
        self._spend(1)
        self._leaving = True
        self._close_if_done()

    def _on_window_update(self, _: int, stream: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise Http2Error(frames.FRAME_SIZE_ERROR)
        increment = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        if not increment:
            raise Http2Error(frames.PROTOCOL_ERROR)
        self._spare += _SPARE_PER_DATA * self._sender.take_data_frames()
        self._spend(1)
        if not stream:
            self._sender.enlarge(None, increment)
            return
        self._check_known(stream)
        call = self._calls.get(stream)
        if call is not None:
            self._sender.enlarge(call, increment)

    # --- calls and limits -----------------------------------------------------------------------------------------

    def _check_known(self, stream: int) -> None:
        """Refuse frames of streams that were never opened. Frames of closed streams may still arrive."""
        if not stream & 1 or (stream > self._last_stream and not self._no_new_calls):
            raise Http2Error(frames.PROTOCOL_ERROR)

    def _spend(self, count: int) -> None:
        """Count frames that do not advance a call; end the connection above the limit."""
        self._spare -= count
        if self._spare < 0:
            raise Http2Error(frames.ENHANCE_YOUR_CALM)

    def _refuse(self, call: Call, block: bytes) -> None:
        if not call.is_over:
            call.is_over = True
            call.parts = []
            self._sender.fail(call, block)

    def _refuse_slow(self, now_s: float) -> None:
        """Refuse calls whose messages arrive too slowly."""
        limits = self._traffic.limits
        for call in list(self._calls.values()):
            if call.streamed is not None and not call.size_bytes:
                call.measured_s, call.measured_bytes = now_s, 0  # the time between messages does not count
            elapsed_s = now_s - call.measured_s
            if call.is_complete or elapsed_s < limits.slow_window_s:
                continue
            came = call.size_bytes - call.measured_bytes
            if came < elapsed_s * limits.slow_bytes_per_s:
                call.fail(Code.DEADLINE_EXCEEDED, f"The message came too slowly: {came} bytes in {elapsed_s:.0f} s")
            call.measured_s, call.measured_bytes = now_s, call.size_bytes

    def _sent(self, call: Call) -> None:
        """Continue a stream after a message that had to wait; not at once, because its method may be sending it."""
        self._traffic.hold(call, call.size_bytes - call.held_bytes)
        if call.streamed is not None:
            self._loop.call_soon(call.streamed.advance, call)

    def _answered(self, call: Call) -> None:
        """Clean up after the whole answer of a call was written."""
        if not call.is_complete:
            # The client need not send the rest of its message. If it does, the rest is ignored.
            self._sender.put(frames.number_frame(frames.RST_STREAM, call.stream, frames.NO_ERROR))
        self._drop(call)
        self._used_s = self._loop.time()
        self._close_if_done()

    def _drop(self, call: Call) -> None:
        call.is_over = True
        call.parts = []
        self._calls.pop(call.stream, None)
        self._sender.forget(call)
        self._traffic.release(call)
        if call.streamed is not None:
            call.streamed.dropped(call)

    def _cancel_all(self) -> None:
        for call in list(self._calls.values()):
            self._drop(call)

    def _close_if_done(self) -> None:
        if self._leaving and not self._calls and not self._closing:
            self._close()

    def _end(self, code: int) -> None:
        """Close the connection because of an error. Drop incoming bytes so that the client reads the error."""
        self._sender.put(frames.goaway(self._last_stream, code))
        self._cancel_all()
        self._closing = True
        self._used_s = self._loop.time()
        self._buffer = self._block = b""
        self._sender.flush()
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:  # TLS, whose end is a message of its own
            self._transport.close()

    def _close(self) -> None:
        self._closing = True
        self._used_s = self._loop.time()
        self._sender.flush()
        self._transport.close()
