"""The service's end of a relay (`tidemill.node.relay`), by which it reaches the model server of another machine.

A connection is TLS 1.3. The relay proves who it is by the certificate that its agent has reported, the service by the
secret of the instance, which is in the first line:

    serve SECRET            what follows goes to the model server, and what that answers comes back
    bring SECRET {...}      copies an archive to the instance; answered by a line: why it cannot, or nothing
"""

import json
import socket
import ssl
from dataclasses import asdict

from tidemill.core.instances import ObjectReference
from tidemill.errors import LaunchError
from tidemill.executors.base import RelayedServer

CONNECT_TIMEOUT_S = 5.0
_BRING_TIMEOUT_S = 600.0
_VANISHED_S = 10
_ANSWER_MAX_BYTES = 4096


def tls_to(server: RelayedServer) -> ssl.SSLContext:
    """Return the TLS options of connections to a relay: only the certificate that was reported is accepted.

    Args:
        server: The model server behind the relay.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # no authority has signed the certificate: it is compared as a whole
    context.load_verify_locations(cadata=server.certificate)
    return context


def opening_line(server: RelayedServer, request: str, text: str = "") -> bytes:
    """Return the first line of a connection.

    Args:
        server: The model server behind the relay.
        request: ``serve`` or ``bring``.
        text: The rest of the line.
    """
    return " ".join(filter(None, (request, server.secret, text))).encode() + b"\n"


def watch_peer(sock: socket.socket) -> None:
    """Let a connection fail soon after the other machine has vanished.

    Args:
        sock: A connected TCP socket.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _VANISHED_S // 2)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _VANISHED_S * 1000)


def bring(server: RelayedServer, archive: ObjectReference, *, name: str) -> None:
    """Let an agent copy the archive of a model to its instance.

    Args:
        server: The model server of the instance.
        name: Name of the file in the instance.

    Raises:
        LaunchError: The agent cannot be reached, or cannot copy the archive.
    """
    line = opening_line(server, "bring", json.dumps({"name": name, "archive": asdict(archive)}))
    try:
        with (
            socket.create_connection((server.host, server.port), timeout=CONNECT_TIMEOUT_S) as sock,
            tls_to(server).wrap_socket(sock) as connection,
        ):
            watch_peer(connection)
            connection.settimeout(_BRING_TIMEOUT_S)
            connection.sendall(line)
            with connection.makefile("rb") as answers:
                answer = answers.readline(_ANSWER_MAX_BYTES)
    except OSError as error:
        raise LaunchError(f"the archive {archive.uri} cannot be copied to {server.host}: {error}") from error
    if not answer.endswith(b"\n"):
        raise LaunchError(f"the archive {archive.uri} cannot be copied to {server.host}: the agent has ended")
    if failure := answer.decode("utf-8", "replace").strip():
        raise LaunchError(f"the archive {archive.uri} cannot be copied to {server.host}: {failure}")
