"""Workers for an archive's user code, and the loopback port of TF Serving's REST API that handlers call."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill_serving._shared.http.listener import Listener
from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.code import UserCode, locate_code, with_packages
from tidemill_serving.handlers.pool import HandlerPool
from tidemill_serving.handlers.wire import WorkerSetup
from tidemill_serving.http.listener import bind_tcp, new_listener
from tidemill_serving.http.message import Application
from tidemill_serving.metrics import Metrics
from tidemill_serving.options import ServerOptions
from tidemill_serving.registry import Registry

if TYPE_CHECKING:
    from tidemill_serving.grpc_api.methods import Reload
    from tidemill_serving.grpc_api.server import GrpcServer

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports on which handlers reach the models."""

    rest: int
    grpc: int


class ModelPort:
    """TF Serving's REST API on a loopback port, which any process of this machine can reach.

    Args:
        application: Application that answers requests.
        options: Limits and allowed ports.
        loop: The running event loop.
    """

    def __init__(self, application: Application, *, options: ServerOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._listener: Listener = new_listener(application, limits=options.limits, loop=loop)
        self._sock = _bind(options.safe_ports)

    @property
    def number(self) -> int:
        """The port."""
        return int(self._sock.getsockname()[1])

    async def open(self) -> None:
        """Listen."""
        await self._listener.open(self._sock)

    async def close(self) -> None:
        """Stop listening; called after the last handler has ended."""
        await self._listener.drain(grace_s=0, timeout_s=0)


def find_code(
    options: ServerOptions, environment: Mapping[str, str], *, event: Callable[..., None], warn: Callable[[str], None]
) -> UserCode | None:
    """Find the archive's code and check that its packages are installed; return None if there is no code.

    Raises:
        StartFailed: The packages cannot be installed.
    """
    code = locate_code(options.kind, options.model_dir, options.code_dir, environment, note=warn)
    if code is None:
        return None
    if code.requirements is not None:
        event("handler.requirements", file=code.requirements)
    return with_packages(code, environment)


async def open_grpc(
    registry: Registry,
    metrics: Metrics,
    *,
    options: ServerOptions,
    loop: asyncio.AbstractEventLoop,
    reload: "Reload | None",
    for_code: bool,
) -> "GrpcServer":
    """Serve the models by gRPC on the configured port and socket and, if wanted, on a loopback port for handlers.

    Raises:
        StartFailed: No port is free, or the certificate cannot be used.
    """
    # Imported here: unused by endpoints that have neither code nor gRPC clients.
    from tidemill_serving.grpc_api.server import GrpcServer
    from tidemill_serving.grpc_api.settings import GrpcSettings
    from tidemill_serving.tls import read_tls

    channel, limits = options.grpc_channel, options.limits
    limits = replace(
        limits,
        body_bytes=limits.body_bytes if channel.receive_bytes is None else channel.receive_bytes,
        head_bytes=channel.head_bytes or limits.head_bytes,
    )
    settings = GrpcSettings(
        host=options.host if options.grpc_port is not None else _LOOPBACK,
        ports=_grpc_ports(options, for_code=for_code),
        threads=options.grpc_threads,
        limits=limits,
        socket_path=options.grpc_socket,
        tls=None if options.grpc_tls is None else read_tls(options.grpc_tls),
        channel=channel,
        as_content=options.tensor_content,
        profiler=options.profiler,
    )
    server = GrpcServer(registry, metrics, loop=loop, settings=settings, reload=reload)
    await server.start()
    return server


def _grpc_ports(options: ServerOptions, *, for_code: bool) -> range | tuple[int, ...]:
    if options.grpc_port is not None:
        return (options.grpc_port,)
    if not for_code:
        return ()
    return (0,) if options.safe_ports is None else range(options.safe_ports[0], options.safe_ports[1] + 1)


async def start_handlers(
    code: UserCode, *, options: ServerOptions, ports: Ports, default_model: str, event: Callable[..., None]
) -> HandlerPool:
    """Start the workers of an archive's code.

    Raises:
        StartFailed: The code cannot be loaded.
    """
    setup = WorkerSetup(
        kind=code.kind,
        script=str(code.script or ""),
        paths=tuple(map(str, code.paths)),
        control_fd=-1,
        lane_fds=(),
        rest_port=ports.rest,
        grpc_port=ports.grpc,
        default_model=default_model,
        model_dir=str(options.model_dir),
        model_timeout_s=options.model_timeout_s,
    )
    pool = HandlerPool(code, setup, size=options.handlers, event=event)
    await pool.start()
    return pool


def _bind(ports: tuple[int, int] | None) -> socket.socket:
    if ports is None:
        return bind_tcp(_LOOPBACK, 0)
    for number in range(ports[0], ports[1] + 1):
        with contextlib.suppress(StartFailed):
            return bind_tcp(_LOOPBACK, number)
    raise StartFailed(f"no port of {ports[0]} to {ports[1]} (SAGEMAKER_SAFE_PORT_RANGE) is free: give a wider range")
