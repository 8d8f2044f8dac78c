"""The life of the service process: claim the state directory, listen, serve until a signal, leave in order.

What serves is made by `tidemill.server.app.create_app`; this module does not know what it does. Jobs are not
children of this process in any way that matters: it may die at any line here and they run on.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, Protocol

import structlog
import uvicorn

from tidemill.core.clock import Clock, SystemClock
from tidemill.errors import ConfigurationError, TidemillError
from tidemill.server import events
from tidemill.server.discovery import ServiceRecord
from tidemill.server.exports import write_client_files
from tidemill.server.keys import Keys
from tidemill.server.listener import listener_url, listening, require_loopback
from tidemill.server.state import StateDirectory
from tidemill.settings import Settings

__all__ = ["AppFactory", "AsgiApp", "serve"]

DRAIN_S = 5
KEEP_ALIVE_S = 75

_Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]

_log = structlog.get_logger()


class AppFactory(Protocol):
    """Makes the ASGI application; its lifespan starts and ends everything behind it."""

    def __call__(self, settings: Settings, *, state: StateDirectory, keys: Keys, url: Callable[[], str]) -> AsgiApp: ...


def serve(settings: Settings, *, ready_fd: int | None = None, clock: Clock | None = None) -> None:
    """Run the service in this process until SIGTERM or SIGINT.

    Args:
        ready_fd: A file descriptor that receives the URL and is closed when the service answers; it is closed
            without one when the service cannot start.

    Raises:
        StateInUse: Another service holds the state directory.
        ConfigurationError: Host, port, state directory or keys cannot be used, or the application cannot start.
    """
    with _Ready(ready_fd) as ready:
        # Everything made from here on is for its owner alone.
        os.umask(0o077)
        require_loopback(settings.host)
        state = StateDirectory(settings.state_dir.absolute())
        state.create()
        with state.locked(), listening(host=settings.host, port=settings.port) as sock:
            _serve_locked(settings, state=state, sock=sock, ready=ready, clock=clock or SystemClock())


def _serve_locked(
    settings: Settings, *, state: StateDirectory, sock: socket.socket, ready: "_Ready", clock: Clock
) -> None:
    from tidemill.server.app import create_app

    keys = Keys.load_or_create(state.keys_file)
    events.configure(level=settings.log_level, secrets=[keys.secret_access_key])
    write_client_files(state, region=settings.region)
    url = listener_url(sock)
    factory: AppFactory = create_app
    app = _Watched(factory(settings, state=state, keys=keys, url=lambda: url))
    record = ServiceRecord.of_this_process(url=url, region=settings.region, clock=clock)

    def started() -> None:
        record.publish(state)
        _log.info("service.started", url=url, pid=record.pid, state_dir=str(state.root), region=settings.region)
        ready.say(url)

    def ending() -> None:
        # First of all, so that nobody is sent to a service that is on its way out.
        state.service_file.unlink(missing_ok=True)
        _log.info("service.ending", url=url)

    server = _Server(_config(app), started=started, ending=ending)
    try:
        with _signals_end_quietly():
            server.run(sockets=[sock])
    except SystemExit:
        # uvicorn's way to say that the application's start failed; its status would collide with ours.
        raise _start_failure(app.failure) from app.failure
    _log.info("service.ended", url=url)


def _config(app: AsgiApp) -> uvicorn.Config:
    from tidemill.server.http import limited_protocol

    return uvicorn.Config(
        app,
        loop="uvloop",
        http=limited_protocol(),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when its socket is served and when it is about to close."""

    def __init__(self, config: uvicorn.Config, *, started: Callable[[], None], ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell_started = started
        self._tell_ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started and not self.should_exit:
            self._tell_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._tell_ending()
        await super().shutdown(sockets=sockets)


class _Watched:
    """Passes everything to the application, and remembers what its lifespan died of: uvicorn only logs that."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        except Exception as error:
            self.failure = error
            raise


class _Ready:
    """The pipe on which a parent waits: the URL once, or end of file."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def __enter__(self) -> "_Ready":
        if self._fd is not None:
            # Whoever this process starts must not keep the parent waiting.
            os.set_inheritable(self._fd, False)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._close()

    def say(self, url: str) -> None:
        if self._fd is not None:
            # A parent that has gone away is no reason not to serve.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._fd, f"{url}\n".encode())
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@contextlib.contextmanager
def _signals_end_quietly() -> Generator[None]:
    """uvicorn raises the signal again after its orderly end; here that must end nothing: the end is in order."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_failure(failure: Exception | None) -> TidemillError:
    if isinstance(failure, TidemillError):
        return failure
    what = f"{type(failure).__name__}: {failure}" if failure is not None else "no reason was given"
    return ConfigurationError(f"the service could not start ({what}); its log has the details")
