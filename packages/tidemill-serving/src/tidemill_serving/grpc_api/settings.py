"""Settings of the gRPC server."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving.channel_arguments import ChannelArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """Settings of the gRPC server.

    Attributes:
        host: Address to listen on.
        ports: Ports to try, in order; 0 means any free port; none for no port.
        socket_path: Unix socket to listen on; None for none.
        tls: Certificate and key; None for connections without TLS.
        channel: Limits of connections that only gRPC has.
        threads: Number of threads for calls that are not small predict calls.
        waiting: Maximum number of further calls in progress. Calls beyond it are answered UNAVAILABLE.
        limits: Limits of connections, headers and messages.
        timeout_s: Maximum duration of a call in seconds, even if the call's own deadline is later.
        as_content: Answer Predict with ``tensor_content`` instead of typed values.
        profiler: Whether clients of this machine may record profiles.
    """

    host: str = "127.0.0.1"
    ports: range | tuple[int, ...] = (0,)
    socket_path: Path | None = None
    tls: ssl.SSLContext | None = None
    channel: ChannelArguments = field(default_factory=ChannelArguments)
    threads: int = 8
    waiting: int = 1024
    limits: Limits = field(default_factory=Limits)
    timeout_s: float = 300.0
    as_content: bool = False
    profiler: bool = False
