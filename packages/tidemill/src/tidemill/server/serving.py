"""Serve the application on the service's sockets until a signal, then shut down in order."""

import contextlib
from collections.abc import Callable

import structlog

from tidemill._shared.http.limits import Limits
from tidemill.errors import ConfigurationError, TidemillError
from tidemill.server.app import Application
from tidemill.server.garbage import short_collections
from tidemill.server.sockets import Sockets
from tidemill.server.stop_signal import StopSignal
from tidemill.wire.gateway import HttpServer

DRAIN_S = 5

_log = structlog.get_logger()


async def serve_until_signal(
    app: Application,
    sockets: Sockets,
    *,
    limits: Limits,
    stop: StopSignal,
    started: Callable[[], None],
    ending: Callable[[], None],
    proxy: contextlib.AbstractAsyncContextManager[None],
) -> None:
    """Open the application, answer requests until a signal, drain the connections, and close the application.

    Args:
        sockets: Where it is served.
        limits: Limits of the HTTP server.
        started: Called when requests are answered.
        ending: Called after the signal, before the connections are drained.
        proxy: Open while requests are answered.

    Raises:
        ConfigurationError: The application cannot start.
    """
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
