"""The listening socket, and how many connections it may have.

The socket is bound before anything else starts, so that a port in use is reported immediately. Each connection takes a
file descriptor, and each instance of a cluster keeps a connection.
"""

import contextlib
import errno
import resource
import socket
from collections.abc import Generator
from urllib.parse import urlsplit

from tidemill.errors import ConfigurationError

AGENTS_MAX = 100_000
"""Connections for which a service with a cluster makes room, if the system allows that many descriptors."""

_OTHER_DESCRIPTORS = 1024
"""Files, pipes and the database, besides connections."""
_CONNECTIONS_MIN = 256

_BACKLOG = 2048
_PORTS_TRIED = 100


@contextlib.contextmanager
def listening(*, host: str, port: int, or_next: bool = False) -> Generator[socket.socket]:
    """Yield a socket that listens on ``host``:``port``; port 0 selects any free port.

    Args:
        host: A loopback address.
        or_next: Whether to take the next free port, of up to 99, if ``port`` is in use.

    Raises:
        ConfigurationError: The port is in use; the message names the process if possible.
    """
    address = "127.0.0.1" if host == "localhost" else host.strip("[]")
    last = min(port + _PORTS_TRIED - 1, 65535) if or_next and port else port
    for candidate in range(port, last + 1):
        try:
            sock = _listen(address, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or candidate == last:
                raise ConfigurationError(_refusal(error, address=address, port=port, last=last)) from error
        else:
            with sock:
                yield sock
            return


def listener_url(sock: socket.socket) -> str:
    """Return the URL for clients, e.g. ``http://127.0.0.1:8780``.

    Args:
        sock: A bound TCP socket.
    """
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def moved_port(url: str, *, wanted: int) -> str | None:
    """Return the notice of a service that does not listen on the wanted port, or None.

    Args:
        url: Address of the service.
        wanted: Port that was configured; 0 for any.
    """
    port = urlsplit(url).port
    if wanted in (0, port):
        return None
    return (
        f"port {wanted} is in use by {_owner(wanted)}, so the service took {port}: clients find it by the state"
        " directory; --port N or TIDEMILL_PORT chooses a port"
    )


def make_room(connections: int) -> None:
    """Raise the limit of this process's descriptors, for as many connections as the system allows.

    Processes that it starts from now on inherit the limit.

    Args:
        connections: Most connections at the same time.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_DESCRIPTORS
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_allowed(most: int) -> int:
    """Return how many connections, at most ``most``, the limit of descriptors leaves room for; 256 at least.

    Args:
        most: The number that was configured.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = most if soft == resource.RLIM_INFINITY else soft - _OTHER_DESCRIPTORS
    return max(_CONNECTIONS_MIN, min(most, free))


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        # Two bound sockets may share a port until one listens, so listen now, not when the application is ready.
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def _refusal(error: OSError, *, address: str, port: int, last: int) -> str:
    if error.errno == errno.EADDRINUSE:
        taken = (
            f"port {port} on {address} is in use by {_owner(port)}; end that"
            if last == port
            else f"the ports {port} to {last} on {address} are all in use"
        )
        return f"{taken}, or take another with --port N or TIDEMILL_PORT (0 finds a free one)"
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
