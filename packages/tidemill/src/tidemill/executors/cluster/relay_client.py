"""The service's end of a relay (`tidemill.node.relay`), by which it reaches the model server of another machine.

A connection is TLS 1.3. The relay proves who it is by the certificate that its agent has reported, the service by the
secret of the instance, which is in the first line:

    serve SECRET            what follows goes to the model server, and what that answers comes back
    bring SECRET {...}      copies an archive to the instance; answered by a line: why it cannot, or nothing

The relay says farewell (TLS's close_notify) only if the model server has closed its connection. Another end says that
the machine is lost, or that the server has read nothing: the request may be sent to another instance.
"""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Generator
from dataclasses import asdict

from tidemill.core.instances import ObjectReference
from tidemill.core.sockets import family_of, shake_hands
from tidemill.errors import LaunchError
from tidemill.executors.base import RelayedServer

_CONNECT_TIMEOUT_S = 5.0
_BRING_TIMEOUT_S = 600.0
_VANISHED_S = 10
_ANSWER_MAX_BYTES = 4096


async def connect(server: RelayedServer) -> ssl.SSLSocket:
    """Return a connection to a model server, which does not block.

    Args:
        server: The model server behind the relay.

    Raises:
        OSError: The relay cannot be reached within five seconds, or is not the one that was reported.
    """
    loop, sock = asyncio.get_running_loop(), _socket(server)
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await loop.sock_connect(sock, (server.host, server.port))
            sock = tls = _tls(server).wrap_socket(sock, do_handshake_on_connect=False, suppress_ragged_eofs=False)
            await shake_hands(tls)
        tls.send(_opening_line(server, "serve"))
    except (OSError, asyncio.CancelledError):
        sock.close()
        raise
    return tls


def bring(server: RelayedServer, archive: ObjectReference, *, name: str) -> None:
    """Let an agent copy the archive of a model to its instance.

    Args:
        server: The model server of the instance.
        name: Name of the file in the instance.

    Raises:
        LaunchError: The agent cannot be reached, or cannot copy the archive.
    """
    try:
        with _connected(server) as connection:
            connection.sendall(_opening_line(server, "bring", json.dumps({"name": name, "archive": asdict(archive)})))
            connection.settimeout(_BRING_TIMEOUT_S)
            with connection.makefile("rb") as answers:
                answer = answers.readline(_ANSWER_MAX_BYTES)
    except OSError as error:
        raise LaunchError(f"the archive {archive.uri} cannot be copied to {server.host}: {error}") from error
    if not answer.endswith(b"\n"):
        raise LaunchError(f"the archive {archive.uri} cannot be copied to {server.host}: the agent has ended")
    if failure := answer.decode("utf-8", "replace").strip():
        raise LaunchError(f"the archive {archive.uri} cannot be copied to {server.host}: {failure}")


@contextlib.contextmanager
def _connected(server: RelayedServer) -> Generator[ssl.SSLSocket]:
    with _socket(server) as sock:
        sock.settimeout(_CONNECT_TIMEOUT_S)
        sock.connect((server.host, server.port))
        with _tls(server).wrap_socket(sock, suppress_ragged_eofs=False) as connection:
            yield connection


def _socket(server: RelayedServer) -> socket.socket:
    """Return a socket whose connection will fail soon after the other machine has vanished."""
    sock = socket.socket(family_of(server.host))
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _VANISHED_S // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _VANISHED_S * 1000)
    return sock


def _opening_line(server: RelayedServer, request: str, text: str = "") -> bytes:
    return " ".join(filter(None, (request, server.secret, text))).encode() + b"\n"


def _tls(server: RelayedServer) -> ssl.SSLContext:
    """Return the TLS options of connections to a relay: only the certificate that was reported is accepted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # no authority has signed the certificate: it is compared as a whole
    context.load_verify_locations(cadata=server.certificate)
    return context
