"""The listening socket: bound before anything else starts, so that a taken port is known at once and named well."""

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Generator

from tidemill.errors import ConfigurationError

__all__ = ["listener_url", "listening", "require_loopback"]

_BACKLOG = 2048


def require_loopback(host: str) -> str:
    """The loopback address that ``host`` means.

    Raises:
        ConfigurationError: It is not a loopback address. Requests are signed, yet not encrypted.
    """
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(address).is_loopback:
            return address
    raise ConfigurationError(
        f"host {host!r} is not a loopback address: the service speaks plain HTTP, so others on the network could read"
        " and run what you send. Use 127.0.0.1, ::1 or localhost, and reach it from another machine through a"
        " tunnel, e.g. `ssh -L 8780:127.0.0.1:8780 THIS_MACHINE`"
    )


@contextlib.contextmanager
def listening(*, host: str, port: int) -> Generator[socket.socket]:
    """A socket that listens on ``host``:``port``; port 0 takes a free one.

    Raises:
        ConfigurationError: The host is not loopback, or the port is taken; the text names the owner if it can.
    """
    address = require_loopback(host)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
            # Two bound sockets may share a port until one listens: listen now, not when the app is ready.
            sock.listen(_BACKLOG)
        except OSError as error:
            raise ConfigurationError(_refusal(error, address=address, port=port)) from error
        yield sock


def listener_url(sock: socket.socket) -> str:
    """The address to give to clients, e.g. ``http://127.0.0.1:8780``."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refusal(error: OSError, *, address: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {address} is in use by {_owner(port)}; end that, or take another with --port N"
            " (--port 0 finds a free one)"
        )
    return f"cannot listen on {address} port {port}: {error.strerror}; choose another with --host and --port"


def _owner(port: int) -> str:
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            taken = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if taken and connection.pid:
                return f"pid {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        return "a process that cannot be looked at"
    return "a process of another user"
