"""A second service on the same database: forwards connections to the leader, and takes over when it ends.

Connections are forwarded as bytes, so requests, signatures and TLS are between client and leader. While no service
leads, new connections wait: their clients see a pause. Clients that were connected to the leader see an interruption,
and retry.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Protocol

import structlog
import uvloop

from tidemill.core.process import ProcessId
from tidemill.errors import ConfigurationError
from tidemill.server.background import wait_for_end
from tidemill.server.public_address import PublicAddress
from tidemill.server.sockets import Sockets, client_url, inherited_sockets, open_sockets
from tidemill.server.state import StateDirectory, StateInUse
from tidemill.server.stop_signal import StopSignal
from tidemill.settings import Settings
from tidemill.store.database.postgresql.database import DatabaseInUse
from tidemill.store.database.postgresql.lead import Lead
from tidemill.store.database.postgresql.succession import Succession

LOOK_S = 0.5
BLOCK_BYTES = 256 * 1024
END_WAIT_S = 5.0
_LOCK_WAIT_S = 5.0

_log = structlog.get_logger("tidemill.server")


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The service that led before.

    Attributes:
        lead: Its row.
        process: Its process, on whatever machine; None if no service has led.
        is_over: Returns whether still no service leads.
    """

    lead: Lead
    process: ProcessId | None
    is_over: Callable[[], bool]


class LeadServer(Protocol):
    """Serves on some sockets until a signal; the state directory is locked."""

    def __call__(self, *, sockets: Sockets) -> None: ...


def serve_in_turn(
    settings: Settings,
    public: PublicAddress | None,
    *,
    state: StateDirectory,
    stop: StopSignal,
    ready: Callable[[str], None],
    serve: LeadServer,
) -> None:
    """Wait until no other service leads, then serve.

    Args:
        public: Its address for other machines, if it has one.
        state: The state directory that all services of the database use.
        stop: Ends this process.
        ready: Called with the URL for clients when their connections are forwarded.
        serve: Serves in the place of the leader.

    Raises:
        ConfigurationError: The settings name no database that services can share.
    """
    if settings.database_url is None:
        raise ConfigurationError(
            "a service can stand by only if it shares its records with the one that leads: set database_url, or start"
            " without --standby"
        )
    url = settings.database_url.get_secret_value()
    with contextlib.ExitStack() as stack:
        sockets: Sockets | None = None
        try:
            sockets = stack.enter_context(open_sockets(settings, public))
        except ConfigurationError as error:
            # The leader may be on this machine, and use this port because it took it over from its predecessor.
            _log.warning("standby.does_not_listen", reason=str(error))
        announce = partial(ready, client_url(settings, sockets))
        while True:
            main = sockets.main if sockets else None
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                predecessor = runner.run(stand_by(url, main, state=state, stop=stop, ready=announce))
            if predecessor is None:
                return
            end_predecessor(predecessor)
            sockets = sockets or stack.enter_context(open_sockets(settings, public))
            if _take_turn(predecessor.lead, sockets, state=state, serve=serve):
                return


def _take_turn(lead: Lead, sockets: Sockets, *, state: StateDirectory, serve: LeadServer) -> bool:
    """Serve in the place of a leader that has ended; return False if another service was faster."""
    try:
        # The kernel may need a moment to release the directory after a process has ended.
        with contextlib.ExitStack() as stack:
            stack.enter_context(state.locked(within_s=_LOCK_WAIT_S))
            inherited = tuple(inherited_sockets(stack, sockets, local_url=lead.local_url, relay=lead.relay))
            serve(sockets=replace(sockets, inherited=inherited))
    except (StateInUse, DatabaseInUse) as error:
        _log.warning("standby.another_leads", reason=str(error))
        return False
    return True


async def stand_by(
    database_url: str,
    sock: socket.socket | None,
    *,
    state: StateDirectory,
    stop: StopSignal,
    ready: Callable[[], None],
) -> Predecessor | None:
    """Forward the connections of a socket until the lead is free.

    Args:
        database_url: The database that both services use.
        sock: Listening socket, which stays open. None forwards nothing.
        state: The state directory that both services use.
        stop: Ends this process.
        ready: Called when connections are forwarded, or the lead is found to be free.

    Returns:
        The service whose lead is to be taken over; None if a signal ends this process first.
    """
    succession = Succession(database_url)
    relay = _Relay()
    accepting = asyncio.create_task(relay.run(sock)) if sock else None
    # A takeover must not wait for imports. They take a thread, so that connections are forwarded meanwhile.
    imports = asyncio.create_task(asyncio.to_thread(import_module, "tidemill.server.app"))
    try:
        while True:
            # The process is read first: a service that leads by now is not the one that has ended.
            process = state.holder()
            has_ended = process is not None and process.has_ended_here
            if await asyncio.to_thread(succession.is_vacant, leader_has_ended=has_ended):
                break
            relay.target = succession.lead.relay if succession.lead and not succession.lead.ended else None
            if relay.target:
                ready()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)
            if stop.is_set():
                return None
    finally:
        await relay.close(*([accepting] if accepting else []))
        await imports
    if stop.is_set():
        return None
    await asyncio.to_thread(succession.clear)
    lead = succession.lead or Lead(0, 0, ended=True)
    reason = "it has exited" if lead.ended else "its process has ended" if has_ended else "it is silent"
    _log.warning("standby.takes_over", term=lead.term, reason=reason)
    return Predecessor(lead, process if succession.lead else None, succession.is_vacant)


def end_predecessor(predecessor: Predecessor) -> None:
    """Kill the service that led, if it still runs on this machine but hangs.

    A service that gave the lead back ends by itself; on a busy machine, that takes it a moment. If another service
    leads by now, the process is that service's, and stays.

    It can no longer change the records, because its connection to the database is closed. Only its death protects the
    files.

    Args:
        predecessor: The service that led.
    """
    process = predecessor.process
    if process is None or not process.certainly_alive or process.pid == os.getpid():
        return
    if not wait_for_end(process, timeout_s=END_WAIT_S if predecessor.lead.ended else 0) and predecessor.is_over():
        _log.warning("standby.kills_predecessor", pid=process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        if not wait_for_end(process, timeout_s=END_WAIT_S):
            raise ConfigurationError(
                f"the service that led (pid {process.pid}) is silent and does not end on SIGKILL; see to its machine"
            )


class _Relay:
    """Forwards the connections of a listening socket to a target, which may change.

    Attributes:
        target: Host and port; None while there is none.
    """

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        while True:
            client, _ = await loop.sock_accept(sock)
            with contextlib.ExitStack() as stack:
                stack.enter_context(client)
                # Until the target answers, later clients wait in the socket's queue, for the next leader or for this
                # service.
                leader = stack.enter_context(await self._leader())
                task = asyncio.create_task(_pass_on(client, leader, stack.pop_all()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self, *accepting: "asyncio.Task[None]") -> None:
        """Stop accepting connections, and close the forwarded ones: their leader is gone."""
        tasks = [*accepting, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _leader(self) -> socket.socket:
        """Return a connection to the target, as soon as one can be made."""
        while True:
            host, port = self.target or ("", 0)
            sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            try:
                sock.setblocking(False)
                if port:
                    await asyncio.get_running_loop().sock_connect(sock, (host, port))
                    return sock
            except OSError as error:
                _log.debug("standby.leader_is_away", reason=str(error))
            except BaseException:
                sock.close()
                raise
            sock.close()
            await asyncio.sleep(LOOK_S / 5)


async def _pass_on(client: socket.socket, leader: socket.socket, sockets: contextlib.ExitStack) -> None:
    """Copy bytes in both directions until the leader's side ends."""
    with sockets:
        for sock in (client, leader):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        to_leader = asyncio.create_task(_copy(client, leader))
        try:
            await _copy(leader, client)
        finally:
            to_leader.cancel()
            await asyncio.gather(to_leader, return_exceptions=True)


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until the source ends, then end the sink."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):  # one of the two has disconnected, which ends the copy
        while block := await loop.sock_recv(source, BLOCK_BYTES):
            await loop.sock_sendall(sink, block)
        sink.shutdown(socket.SHUT_WR)
