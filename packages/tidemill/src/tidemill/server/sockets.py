"""The listening sockets of the service: on loopback, for other machines, and in the place of an earlier leader."""

import contextlib
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidemill.server.listener import listener_url, listening
from tidemill.server.public_address import PublicAddress
from tidemill.settings import Settings


@dataclass(frozen=True, slots=True)
class Sockets:
    """The listening sockets: one on loopback, and optionally one on an address for other machines.

    Attributes:
        local: On loopback.
        public: On the address for other machines; None without one.
        tls: For ``public``; None for plain HTTP.
        public_url: URL of ``public``; empty without one.
        inherited: Sockets on the addresses of the previous leader, with or without TLS.
    """

    local: socket.socket
    public: socket.socket | None = None
    tls: ssl.SSLContext | None = None
    public_url: str = ""
    inherited: tuple[tuple[socket.socket, bool], ...] = ()

    @property
    def main(self) -> socket.socket:
        """The socket that most clients use."""
        return self.public or self.local

    @property
    def relay(self) -> tuple[str, int]:
        """The address at which a standby service reaches this one."""
        host, port = self.main.getsockname()[:2]
        return (socket.gethostname() if host in ("0.0.0.0", "::") else host), port  # noqa: S104 - compared, not bound


@contextlib.contextmanager
def open_sockets(settings: Settings, public: PublicAddress | None) -> Generator[Sockets]:
    """Listen until the block ends.

    Args:
        settings: Host and port.
        public: The address for other machines, if there is one.

    Raises:
        ConfigurationError: An address cannot be used.
    """
    if public is None:
        # If the user did not choose the port, take the next free one: a first try must not fail because it is in use.
        with listening(host=settings.host, port=settings.port, or_next=not settings.port_is_chosen) as sock:
            yield Sockets(sock)
        return
    with public.listen() as outside, listening(host="127.0.0.1", port=0) as sock:
        yield Sockets(sock, outside, public.tls, public.url(outside))


def client_url(settings: Settings, sockets: Sockets | None) -> str:
    """Return the URL for clients, even if the leader listens there instead of this service.

    Args:
        settings: Host and port.
        sockets: Those of this service; None if it does not listen.
    """
    if sockets is None:
        return f"{'https' if settings.tls_certificate else 'http'}://{settings.host}:{settings.port}"
    return sockets.public_url or listener_url(sockets.local)


def inherited_sockets(
    stack: contextlib.ExitStack, sockets: Sockets, *, local_url: str, relay: tuple[str, int] | None
) -> Generator[tuple[socket.socket, bool]]:
    """Also listen on the previous leader's addresses, if it ran on this machine: its jobs know no others.

    Args:
        stack: Closes the sockets.
        sockets: Those of this service.
        local_url: URL of the leader on its own machine.
        relay: Address at which standby services reached it.

    Yields:
        Each socket, and whether its clients use TLS.
    """
    own = {sock.getsockname()[:2] for sock in (sockets.local, sockets.main)}
    url = urlsplit(local_url)
    local = (url.hostname, url.port) if url.hostname and url.port else None
    for address in [each for each in {local, relay} - own if each is not None]:
        with contextlib.suppress(OSError):
            sock = stack.enter_context(socket.create_server(address, backlog=2048))
            yield sock, address != local and sockets.tls is not None
