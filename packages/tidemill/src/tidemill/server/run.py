"""The life cycle of the service process: lock the state directory, listen, serve until a signal, shut down.

It serves `tidemill.server.app.Application`. Jobs do not depend on this process: they keep running if it dies at any
point.
"""

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import structlog
import uvloop

from tidemill._shared.http.limits import Limits
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.shell_proxy import leave_shell_proxy
from tidemill.errors import ConfigurationError, TidemillError
from tidemill.server import events
from tidemill.server.aws_proxy import ProxyTokens, offer_proxy
from tidemill.server.discovery import ServiceRecord
from tidemill.server.exports import write_client_files
from tidemill.server.garbage import short_collections
from tidemill.server.keys import Keys
from tidemill.server.listener import AGENTS_MAX, connections_allowed, listener_url, listening, make_room, moved_port
from tidemill.server.public_address import PublicAddress
from tidemill.server.state import StateDirectory, StateInUse
from tidemill.server.stop_signal import StopSignal
from tidemill.settings import Settings
from tidemill.shim.cgroup import delegate
from tidemill.wire.gateway import LIMITS, HttpServer

if TYPE_CHECKING:
    from tidemill.server.app import Application

__all__ = ["serve"]

DRAIN_S = 5
_LOCK_WAIT_S = 5.0
_LOCK_PAUSE_S = 0.05

_log = structlog.get_logger()


def serve(settings: Settings, *, ready_fd: int | None = None, clock: Clock | None = None) -> None:
    """Run the service in this process until SIGTERM or SIGINT.

    Args:
        ready_fd: File descriptor to which the URL is written when the service answers. It is closed then, or without a
            URL if the service cannot start.

    Raises:
        StateInUse: Another service holds the state directory.
        ConfigurationError: Host, port, state directory or keys cannot be used, or the application cannot start.
    """
    stop = StopSignal()
    with _Ready(ready_fd) as ready, stop.handled():
        # Only the owner may access files created from here on.
        os.umask(0o077)
        leave_shell_proxy()
        make_room(_connections_wanted(settings))
        delegate()
        public = PublicAddress.of(settings)
        state = StateDirectory(settings.state_dir.absolute())
        state.create()
        clock = clock or SystemClock()
        if settings.standby:
            _serve_in_turn(settings, public, state=state, stop=stop, ready=ready, clock=clock)
            return
        with state.locked(), _sockets(settings, public) as sockets:
            _serve_locked(settings, state=state, sockets=sockets, stop=stop, ready=ready, clock=clock)


@dataclass(frozen=True, slots=True)
class _Sockets:
    """The listening sockets: one on loopback, and optionally one on an address for other machines.

    Attributes:
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
def _sockets(settings: Settings, public: PublicAddress | None) -> Generator[_Sockets]:
    if public is None:
        # If the user did not choose the port, take the next free one: a first try must not fail because it is in use.
        with listening(host=settings.host, port=settings.port, or_next=not settings.port_is_chosen) as sock:
            yield _Sockets(sock)
        return
    with public.listen() as outside, listening(host="127.0.0.1", port=0) as sock:
        yield _Sockets(sock, outside, public.tls, public.url(outside))


def _serve_in_turn(
    settings: Settings,
    public: PublicAddress | None,
    *,
    state: StateDirectory,
    stop: StopSignal,
    ready: "_Ready",
    clock: Clock,
) -> None:
    """Wait until no other service leads, then serve."""
    if settings.database_url is None:
        raise ConfigurationError(
            "a service can stand by only if it shares its records with the one that leads: set database_url, or start"
            " without --standby"
        )
    from tidemill.server.database import DatabaseInUse
    from tidemill.server.standby import end_predecessor, stand_by

    events.configure(level=settings.log_level, secrets=[])
    url = settings.database_url.get_secret_value()
    with contextlib.ExitStack() as stack:
        sockets: _Sockets | None = None
        try:
            sockets = stack.enter_context(_sockets(settings, public))
        except ConfigurationError as error:
            # The leader may be on this machine, and use this port because it took it over from its predecessor.
            _log.warning("standby.does_not_listen", reason=str(error))
        address = _address(settings, sockets)
        while True:
            main = sockets.main if sockets else None
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                predecessor = runner.run(
                    stand_by(url, main, state=state, stop=stop, ready=partial(ready.announce, address))
                )
            if predecessor is None:
                return
            end_predecessor(predecessor)
            lead = predecessor.lead
            sockets = sockets or stack.enter_context(_sockets(settings, public))
            try:
                with contextlib.ExitStack() as turn:
                    turn.enter_context(_locked_soon(state))
                    inherited = tuple(_inherited(turn, sockets, local_url=lead.local_url, relay=lead.relay))
                    served = replace(sockets, inherited=inherited)
                    _serve_locked(settings, state=state, sockets=served, stop=stop, ready=ready, clock=clock)
            except (StateInUse, DatabaseInUse) as error:
                _log.warning("standby.another_leads", reason=str(error))
            else:
                return


@contextlib.contextmanager
def _locked_soon(state: StateDirectory) -> Generator[None]:
    """Hold the state directory; the kernel may need a moment to release it after a process has ended."""
    deadline_s = time.monotonic() + _LOCK_WAIT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(state.locked())
                break
            except StateInUse:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(_LOCK_PAUSE_S)
        yield


def _address(settings: Settings, sockets: _Sockets | None) -> str:
    """Return the URL for clients, even if the leader listens there instead of this service."""
    if sockets is None:
        return f"{'https' if settings.tls_certificate else 'http'}://{settings.host}:{settings.port}"
    return sockets.public_url or listener_url(sockets.local)


def _inherited(
    stack: contextlib.ExitStack, sockets: _Sockets, *, local_url: str, relay: tuple[str, int] | None
) -> Generator[tuple[socket.socket, bool]]:
    """Also listen on the previous leader's addresses, if it ran on this machine: its jobs know no others."""
    own = {sock.getsockname()[:2] for sock in (sockets.local, sockets.main)}
    url = urlsplit(local_url)
    local = (url.hostname, url.port) if url.hostname and url.port else None
    for address in [each for each in {local, relay} - own if each is not None]:
        with contextlib.suppress(OSError):
            sock = stack.enter_context(socket.create_server(address, backlog=2048))
            yield sock, address != local and sockets.tls is not None


def _serve_locked(
    settings: Settings,
    *,
    state: StateDirectory,
    sockets: _Sockets,
    stop: StopSignal,
    ready: "_Ready",
    clock: Clock,
) -> None:
    from tidemill.server.app import Application

    keys = Keys.load_or_create(state.keys_file)
    events.configure(level=settings.log_level, secrets=[keys.secret_access_key])
    write_client_files(state, region=settings.region)
    url = listener_url(sockets.local)
    app = Application(
        settings, state=state, keys=keys, url=lambda: url, public_url=sockets.public_url, relay=sockets.relay
    )
    is_started = False
    record = ServiceRecord.of_this_process(url=url, public_url=sockets.public_url, region=settings.region, clock=clock)

    def proxy_opened(port: int) -> None:
        nonlocal record
        record = replace(record, aws_proxy_port=port)
        if is_started:
            record.publish(state)

    def started() -> None:
        nonlocal is_started
        app.begin_leases()
        record.publish(state)
        is_started = True
        moved = None if settings.port_is_chosen or sockets.public else moved_port(url, wanted=settings.port)
        if moved:
            _log.warning("service.port_taken", reason=moved)
        if sockets.public is not None:
            _log.info("service.public", url=sockets.public_url, tls=sockets.tls is not None)
        _log.info("service.started", url=url, pid=record.pid, state_dir=str(state.root), region=settings.region)
        ready.announce(url)

    def ending() -> None:
        # Removed first, so that clients no longer find this service.
        state.service_file.unlink(missing_ok=True)
        _log.info("service.ending", url=url)
        app.end_waits()

    host, port = sockets.local.getsockname()[:2]
    proxy = offer_proxy(
        ProxyTokens(state.proxy_tokens),
        authority=state.authority,
        service=(host, port),
        opened=proxy_opened,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        limits = replace(LIMITS, connections=connections_allowed(_connections_wanted(settings)))
        runner.run(
            _serve_until_signal(app, sockets, limits=limits, stop=stop, started=started, ending=ending, proxy=proxy)
        )
    _log.info("service.ended", url=url)


def _connections_wanted(settings: Settings) -> int:
    return LIMITS.connections if settings.executor == "local" else AGENTS_MAX


async def _serve_until_signal(
    app: "Application",
    sockets: _Sockets,
    *,
    limits: Limits,
    stop: StopSignal,
    started: Callable[[], None],
    ending: Callable[[], None],
    proxy: contextlib.AbstractAsyncContextManager[None],
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        try:
            gateway = await stack.enter_async_context(app.opened())
        except TidemillError as error:
            _log.error("service.start_failed", reason=str(error))
            raise
        except Exception as error:
            _log.exception("service.start_failed")
            reason = f"{type(error).__name__}: {error}"
            raise ConfigurationError(f"the service could not start ({reason}); its log has the details") from error
        server = HttpServer(gateway, limits=limits)
        if not stop.is_set():
            await server.listener.open(sockets.local)
            if sockets.public is not None:
                await server.listener.open(sockets.public, tls=sockets.tls)
            for sock, uses_tls in sockets.inherited:
                await server.listener.open(sock, tls=sockets.tls if uses_tls else None)
            await stack.enter_async_context(short_collections())
            # Before the service can be found: the signal that asks for the proxy must not end it.
            async with proxy:
                started()
                await stop.wait()
        ending()
        await server.drain(timeout_s=DRAIN_S)


class _Ready:
    """The pipe on which a parent waits: it receives the URL once, or end of file."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def __enter__(self) -> "_Ready":
        if self._fd is not None:
            # Otherwise child processes would keep the pipe open, and the parent waiting.
            os.set_inheritable(self._fd, False)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._close()

    def announce(self, url: str) -> None:
        if self._fd is not None:
            # The service also runs if the parent has exited.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._fd, f"{url}\n".encode())
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
