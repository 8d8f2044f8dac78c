"""Send answers, within the client's flow-control windows, and control frames."""

import asyncio
from collections.abc import Callable

from tidemill_serving.grpc_api import frames
from tidemill_serving.grpc_api.call import PREFIX_BYTES, Call
from tidemill_serving.grpc_api.frames import Http2Error

_FLUSH_BYTES = 256 * 1024


class Sender:
    """Sending side of one connection.

    Args:
        answered: Called with a call when its whole answer was written.
        sent: Called with a call when a message of its stream was written that had to wait.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        loop: asyncio.AbstractEventLoop,
        answered: Callable[[Call], None],
        sent: Callable[[Call], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._answered = answered
        self._sent = sent
        self._out: list[bytes] = []
        self._woken = False
        self._table = frames.NO_TABLE
        self._window = frames.DEFAULT_WINDOW
        self._frame_bytes = frames.FRAME_BYTES
        self._paused = False
        self._blocked: dict[int, Call] = {}
        self.stream_window = frames.DEFAULT_WINDOW
        self._num_data_frames = 0
        self.progress_s = 0.0

    @property
    def is_stalled(self) -> bool:
        """Whether bytes wait for the client to read, or to enlarge a window."""
        return self._paused or bool(self._blocked)

    def take_data_frames(self) -> int:
        """Return the number of DATA frames of large answers since the last call of this method."""
        count, self._num_data_frames = self._num_data_frames, 0
        return count

    def put(self, data: bytes) -> None:
        """Queue a frame. All frames queued in one turn of the event loop are written together.

        Args:
            data: A whole frame.
        """
        self._out.append(data)
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the queued frames."""
        self._woken = False
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            if not self._transport.is_closing():  # an answer may be queued in the turn that ends the connection
                self._transport.write(data)

    def answer(self, call: Call, message: bytes) -> None:
        """Send a message of a call's answer: the last one if the call is over.

        Args:
            call: The call, whose windows limit what is sent now.
            message: The serialized message; the rest waits for window updates.
        """
        size = PREFIX_BYTES + len(message)
        stream = call.stream
        if not call.has_begun:
            self._begin(call)
        data = (b"\1" if call.compression else b"\0") + len(message).to_bytes(4, "big") + message
        if size <= self._frame_bytes and size <= self._window and size <= call.send_window and not self.is_stalled:
            self._window -= size
            call.send_window -= size
            self.put(frames.frame(frames.DATA, 0, stream, data))
            if call.is_over:
                self._end(call)
            return
        call.pending = memoryview(data)
        self._blocked[stream] = call
        self.progress_s = self._loop.time()
        self._send_blocked()

    def end(self, call: Call) -> None:
        """End a streamed answer, after what is pending.

        Args:
            call: The call, which is over.
        """
        if not call.has_begun:
            self._begin(call)
        if not len(call.pending):
            self._end(call)

    def fail(self, call: Call, block: bytes) -> None:
        """Send a header block that ends the call.

        Args:
            block: The encoded trailers.
        """
        if len(call.pending):  # no trailers may follow half a message
            call.is_complete = True
            self.put(frames.number_frame(frames.RST_STREAM, call.stream, frames.CANCEL))
        else:
            self.put(self._headers(frames.END_HEADERS | frames.END_STREAM, call.stream, block))
        self._answered(call)

    def forget(self, call: Call) -> None:
        """Drop the unsent bytes of a call.

        Args:
            call: The call; what was queued for the socket is still sent.
        """
        self._blocked.pop(call.stream, None)

    def pause(self) -> None:
        """Stop sending until `resume`, because the client does not read fast enough."""
        self._paused = True
        self.progress_s = self._loop.time()

    def resume(self) -> None:
        """Continue sending."""
        self._paused = False
        self._send_blocked()

    def enlarge(self, call: Call | None, increment: int) -> None:
        """Enlarge the window of a call, or of the connection if `call` is None.

        Raises:
            Http2Error: The window exceeds the maximum of HTTP/2.
        """
        if call is None:
            self._window += increment
            if self._window > frames.MAX_WINDOW:
                raise Http2Error(frames.FLOW_CONTROL_ERROR)
            self._send_blocked()
            return
        call.send_window += increment
        if call.send_window > frames.MAX_WINDOW:
            raise Http2Error(frames.FLOW_CONTROL_ERROR)
        if call.stream in self._blocked and not self._paused:
            self._send(call)

    def apply(self, key: int, value: int, calls: "dict[int, Call]") -> None:
        """Apply a setting of the client.

        Raises:
            Http2Error: The value is not allowed.
        """
        if key == frames.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES <= value < 2**24:
                raise Http2Error(frames.PROTOCOL_ERROR)
            self._frame_bytes = value
        elif key == frames.INITIAL_WINDOW_SIZE:
            if value > frames.MAX_WINDOW:
                raise Http2Error(frames.FLOW_CONTROL_ERROR)
            difference, self.stream_window = value - self.stream_window, value
            for call in calls.values():
                call.send_window += difference
                if call.send_window > frames.MAX_WINDOW:
                    raise Http2Error(frames.FLOW_CONTROL_ERROR)
            self._send_blocked()

    def _headers(self, flags: int, stream: int, block: bytes) -> bytes:
        if self._table:
            block, self._table = self._table + block, b""
        return frames.frame(frames.HEADERS, flags, stream, block)

    def _begin(self, call: Call) -> None:
        call.has_begun = True
        block = frames.COMPRESSED_BLOCKS[call.compression] if call.compression else frames.ANSWER_BLOCK
        self.put(self._headers(frames.END_HEADERS, call.stream, block))

    def _end(self, call: Call) -> None:
        flags = frames.END_HEADERS | frames.END_STREAM
        self.put(frames.frame(frames.HEADERS, flags, call.stream, frames.OK_TRAILERS))
        self._answered(call)

    def _send_blocked(self) -> None:
        for call in list(self._blocked.values()):
            if self._paused or self._window <= 0:
                return
            self._send(call)

    def _send(self, call: Call) -> None:
        """Send as much of a call's message as the windows allow."""
        waiting = 0
        while len(call.pending) and not self._paused:
            room = min(self._window, call.send_window, self._frame_bytes, len(call.pending))
            if room <= 0:
                return
            self.put(frames.frame_head(room, frames.DATA, 0, call.stream))
            self._out.append(bytes(call.pending[:room]))
            call.pending = call.pending[room:]
            self._window -= room
            call.send_window -= room
            self._num_data_frames += 1
            self.progress_s = self._loop.time()
            waiting += room
            if waiting >= _FLUSH_BYTES:
                self.flush()  # the transport may call `pause` here
                waiting = 0
        if not len(call.pending):
            del self._blocked[call.stream]
            if call.is_over:
                self._end(call)
            else:
                self._sent(call)
