"""The life cycle of the service process: lock the state directory, listen, serve until a signal, shut down.

It serves `tidemill.server.app.Application`. Jobs do not depend on this process: they keep running if it dies at any
point.
"""

import asyncio
import os
from dataclasses import replace
from functools import partial

import structlog
import uvloop

from tidemill.core.clock import Clock, SystemClock
from tidemill.core.shell_proxy import leave_shell_proxy
from tidemill.server.aws_proxy import ProxyTokens, offer_proxy
from tidemill.server.discovery import ServiceRecord
from tidemill.server.exports import write_client_files
from tidemill.server.keys import Keys
from tidemill.server.listener import AGENTS_MAX, connections_allowed, listener_url, make_room, moved_port
from tidemill.server.public_address import PublicAddress
from tidemill.server.readiness import Ready
from tidemill.server.service_log import configure_log
from tidemill.server.sockets import Sockets, open_sockets
from tidemill.server.state import StateDirectory
from tidemill.server.stop_signal import StopSignal
from tidemill.settings import Settings
from tidemill.shim.cgroup import delegate
from tidemill.wire.gateway import LIMITS

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
    with Ready(ready_fd) as ready, stop.handled():
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
            from tidemill.server.standby import serve_in_turn

            configure_log(settings, state.service_log, secrets=[])
            serve_one = partial(_serve_locked, settings, state=state, stop=stop, ready=ready, clock=clock)
            serve_in_turn(settings, public, state=state, stop=stop, ready=ready.announce, serve=serve_one)
            return
        with state.locked(), open_sockets(settings, public) as sockets:
            _serve_locked(settings, state=state, sockets=sockets, stop=stop, ready=ready, clock=clock)


def _serve_locked(
    settings: Settings,
    *,
    state: StateDirectory,
    sockets: Sockets,
    stop: StopSignal,
    ready: Ready,
    clock: Clock,
) -> None:
    from tidemill.server.app import Application
    from tidemill.server.serving import serve_until_signal

    keys = Keys.load_or_create(state.keys_file)
    configure_log(
        settings,
        state.service_log,
        secrets=[keys.secret_access_key, *(each.secret.get_secret_value() for each in settings.webhooks.values())],
    )
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
        _log_start(settings, record, sockets, state_dir=str(state.root))
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
            serve_until_signal(app, sockets, limits=limits, stop=stop, started=started, ending=ending, proxy=proxy)
        )
    _log.info("service.ended", url=url)


def _log_start(settings: Settings, record: ServiceRecord, sockets: Sockets, *, state_dir: str) -> None:
    moved = None if settings.port_is_chosen or sockets.public else moved_port(record.url, wanted=settings.port)
    if moved:
        _log.warning("service.port_taken", reason=moved)
    if sockets.public is not None:
        _log.info("service.public", url=sockets.public_url, tls=sockets.tls is not None)
    _log.info("service.started", url=record.url, pid=record.pid, state_dir=state_dir, region=settings.region)


def _connections_wanted(settings: Settings) -> int:
    return LIMITS.connections if settings.executor == "local" else AGENTS_MAX
