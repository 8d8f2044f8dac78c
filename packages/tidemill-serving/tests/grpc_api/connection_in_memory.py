"""A connection without a socket, on a clock of the test."""

from collections.abc import Callable, Mapping
from typing import Any

from frames_of_clients import GOAWAY, PREFACE, SETTINGS, Frame, frame, split

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving.channel_arguments import read_channel_arguments
from tidemill_serving.grpc_api.call import Call, StreamedMethod
from tidemill_serving.grpc_api.connection import GrpcConnection
from tidemill_serving.grpc_api.traffic import GrpcTraffic

GREETING = PREFACE + frame(SETTINGS, 0, 0)


class Timer:
    """A call in the future."""

    def __init__(self, due_s: float, call: Callable[[], None]) -> None:
        self.due_s, self.call = due_s, call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The part of an event loop that connections use."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.ready: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        self.ready.append((callback, arguments))

    def call_later(self, delay_s: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, lambda: callback(*arguments)))
        return self.timers[-1]

    def turn(self) -> None:
        due = [each for each in self.timers if each.due_s <= self.now_s and not each.is_cancelled]
        self.timers = [each for each in self.timers if each.due_s > self.now_s and not each.is_cancelled]
        for each in due:
            each.call()
        ready, self.ready = self.ready, []
        for callback, arguments in ready:
            callback(*arguments)


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_open = True
        self.reads = True

    def is_closing(self) -> bool:
        return not self.is_open

    def write(self, data: bytes) -> None:
        assert self.is_open
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.is_open = False

    abort = close

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Peer:
    """A connection that answers each call with the call's own message, or waits if the test requests it."""

    def __init__(
        self,
        *,
        waits: bool = False,
        clock: Clock | None = None,
        streamed: Mapping[bytes, StreamedMethod] | None = None,
        arguments: str = "",
        **limits: Any,
    ) -> None:
        self.clock = clock or Clock()
        self.calls: list[Call] = []
        self.waits = waits
        loop: Any = self.clock
        self.traffic = GrpcTraffic(
            loop, Limits(**limits), self.on_call, streamed or {}, read_channel_arguments(arguments)
        )
        self.transport = Transport()
        self.connection = GrpcConnection(self.traffic)
        transport: Any = self.transport
        self.connection.connection_made(transport)

    def on_call(self, call: Call) -> None:
        self.calls.append(call)
        if not self.waits:
            call.answer(b"".join(call.parts))

    def send(self, data: bytes) -> None:
        self.connection.data_received(data)
        self.clock.turn()

    def wait(self, seconds: float) -> None:
        """Let time pass, second by second as the listener does."""
        for _ in range(round(seconds)):
            self.clock.now_s += 1
            self.connection.tick(self.clock.now_s)
            self.clock.turn()

    @property
    def frames(self) -> list[Frame]:
        return list(split(self.transport.written))

    @property
    def codes(self) -> list[int]:
        """The error codes of all GOAWAY frames."""
        return [int.from_bytes(each.payload[4:8], "big") for each in self.frames if each.kind == GOAWAY]

    def lose(self) -> None:
        """End the connection; nothing of it may be left."""
        self.connection.connection_lost(None)
        assert not self.traffic.buffered_bytes
        assert not self.traffic.connections


class Echo:
    """Answers each message of a stream with itself."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def ended(self) -> bool:
        return self._call.is_complete

    def next(self) -> bytes | None:
        return self._call.next_message(limit_bytes=65_536)
