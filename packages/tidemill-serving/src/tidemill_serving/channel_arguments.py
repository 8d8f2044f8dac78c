"""The arguments of ``--grpc_channel_arguments``, by gRPC's names: what each of them changes here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill_serving.errors import StartFailed

_UNLIMITED = 2**31 - 1
_ALGORITHMS = (b"", b"deflate", b"gzip")
_LEVELS = (b"", b"gzip", b"deflate", b"deflate")
_FIXED_WINDOWS = "windows of flow control and sizes of frames are fixed"
_OWN_PING_LIMIT = "frames that advance no call are limited by the second"
WITHOUT_EFFECT: Mapping[str, str] = {
    "grpc.so_reuseport": "one process listens on the port",
    "grpc.http2.max_frame_size": _FIXED_WINDOWS,
    "grpc.http2.lookahead_bytes": _FIXED_WINDOWS,
    "grpc.http2.bdp_probe": _FIXED_WINDOWS,
    "grpc.http2.write_buffer_size": _FIXED_WINDOWS,
    "grpc.http2.hpack_table_size.decoder": "the table of headers has the size of the protocol's default",
    "grpc.http2.hpack_table_size.encoder": "answers use no table of headers",
    "grpc.http2.max_pings_without_data": "the server sends a ping only when a client is silent",
    "grpc.http2.max_ping_strikes": _OWN_PING_LIMIT,
    "grpc.http2.min_recv_ping_interval_without_data_ms": _OWN_PING_LIMIT,
    "grpc.http2.min_ping_interval_without_data_ms": _OWN_PING_LIMIT,
    "grpc.optimization_target": "small calls run on the event loop, others on threads",
    "grpc.resource_quota": "--grpc_max_threads and --max_body_bytes limit threads and memory",
}
"""Known arguments that change nothing, with the reasons."""
UNKNOWN = "the server has no such setting"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelArguments:
    """Settings of gRPC's connections.

    Attributes:
        receive_bytes: Maximum bytes of a request, also after decompression; None: the limit of REST.
        send_bytes: Maximum bytes of an answer before its compression.
        head_bytes: Maximum bytes of a call's headers; None: the limit of REST.
        streams: Maximum number of concurrent calls of a connection. Further calls are refused, and clients repeat them.
        idle_s: Seconds after which a connection without a call is closed. Clients reconnect for their next call.
        age_s: Seconds after which a connection is closed when its calls have ended.
        age_grace_s: Seconds after that until it is closed even so.
        keepalive_s: Seconds of silence after which a client has to answer a ping.
        keepalive_timeout_s: Seconds that it has for the answer.
        keepalive_without_calls: Whether clients without calls are pinged, too.
        compression: Compression of answers, if the client accepts it; empty: as the client compressed its request.
        without_effect: Given arguments that change nothing, with the reasons.
    """

    receive_bytes: int | None = None
    send_bytes: int = _UNLIMITED
    head_bytes: int | None = None
    streams: int = 1000
    idle_s: float = 1800.0
    age_s: float = math.inf
    age_grace_s: float = math.inf
    keepalive_s: float = 7200.0
    keepalive_timeout_s: float = 20.0
    keepalive_without_calls: bool = False
    compression: bytes = b""
    without_effect: tuple[tuple[str, str], ...] = ()


def read_channel_arguments(text: str) -> ChannelArguments:
    """Read ``name=value,name=value``.

    Args:
        text: Arguments of gRPC's C++ server, e.g. ``grpc.max_connection_age_ms=60000``.

    Raises:
        StartFailed: There is no ``=``, or the value of an honored argument is out of range.
    """
    made = ChannelArguments()
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, separator, value = part.partition("=")
        if not separator:
            raise StartFailed(f"--grpc-channel-arguments: {part!r} is no argument; expected name=value,name=value")
        if name not in _HONORED:
            reason = WITHOUT_EFFECT.get(name, UNKNOWN)
            made = replace(made, without_effect=(*made.without_effect, (name, reason)))
            continue
        field, read, least = _HONORED[name]
        number = int(value) if value.removeprefix("-").isdecimal() and value.isascii() else least - 1
        try:
            if number < least or number > _UNLIMITED:
                raise ValueError
            made = replace(made, **{field: read(number)})
        except (ValueError, IndexError) as error:
            raise StartFailed(f"--grpc-channel-arguments: {part!r}: expected an integer in {name}'s range") from error
    return made


def _size(number: int) -> int:
    return _UNLIMITED if number == -1 else number


def _seconds(number: int) -> float:
    return math.inf if number == _UNLIMITED else number / 1000


_HONORED: dict[str, tuple[str, Callable[[int], Any], int]] = {
    "grpc.max_receive_message_length": ("receive_bytes", _size, -1),
    "grpc.max_send_message_length": ("send_bytes", _size, -1),
    "grpc.max_metadata_size": ("head_bytes", int, 1),
    "grpc.max_concurrent_streams": ("streams", int, 1),
    "grpc.max_connection_idle_ms": ("idle_s", _seconds, 1),
    "grpc.max_connection_age_ms": ("age_s", _seconds, 1),
    "grpc.max_connection_age_grace_ms": ("age_grace_s", _seconds, 0),
    "grpc.keepalive_time_ms": ("keepalive_s", _seconds, 1),
    "grpc.keepalive_timeout_ms": ("keepalive_timeout_s", _seconds, 0),
    "grpc.keepalive_permit_without_calls": ("keepalive_without_calls", bool, 0),
    "grpc.default_compression_algorithm": ("compression", _ALGORITHMS.__getitem__, 0),
    "grpc.default_compression_level": ("compression", _LEVELS.__getitem__, 0),
}
"""Field, conversion and least value of each honored argument."""
