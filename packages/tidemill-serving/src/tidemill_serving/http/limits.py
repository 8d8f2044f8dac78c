"""What a client may send, how long it may take, and how many may come."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the HTTP server; what goes beyond is answered with the status in brackets.

    Attributes:
        head_bytes: Request line and headers together [431].
        line_bytes: One header, name and value, or the request target [431].
        headers: Number of headers [431].
        body_bytes: A body, also after decompression [413].
        buffered_bytes: Bodies of all connections together [503].
        head_timeout_s: From the first byte of a request to the end of its headers [408].
        slow_window_s: A body must bring ``slow_bytes`` in each window of that length [408].
        slow_bytes: See above: 1 KiB/s.
        keep_alive_s: A connection without a request is closed after that time.
        answer_timeout_s: From the end of a request to its answer [504].
        connections: Connections of one listener; more are answered [503].
        pipelined: Requests of one connection that are read ahead of the one being answered.
    """

    head_bytes: int = 64 * 1024
    line_bytes: int = 16 * 1024
    headers: int = 128
    body_bytes: int = 100 * 1000 * 1000
    buffered_bytes: int = 2 * 1024**3
    head_timeout_s: float = 10.0
    slow_window_s: float = 30.0
    slow_bytes: int = 30 * 1024
    keep_alive_s: float = 75.0
    answer_timeout_s: float = 60.0
    connections: int = 4096
    pipelined: int = 16
