"""The HTTP server of the service."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from tidemill._shared.http.exchange import ClientLeft, Exchange
from tidemill._shared.http.limits import Limits, Refusal, Traffic
from tidemill._shared.http.listener import Listener
from tidemill.wire.error_reply import refusal_form
from tidemill.wire.socket_owner import SocketOwners

__all__ = ["LIMITS", "Answer", "HttpServer"]

LIMITS = Limits(answer_timeout_s=float("inf"), unproven=64)
"""The service's limits: operations have their own limits on bodies and time."""

Answer = Callable[[Exchange], Awaitable[None]]
"""Answers one request. May raise `ClientLeft`."""

_log = structlog.get_logger("tidemill.wire")


class HttpServer:
    """Answers the requests of sockets.

    Args:
        answer: Called with each request, in a task of its own; a `Gateway`, in the service.
        limits: Limits on requests and their duration.
    """

    def __init__(self, answer: Answer, *, limits: Limits = LIMITS) -> None:
        self._application = answer
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._owners = SocketOwners()
        traffic = Traffic(limits, streams=True, refusal_form=refusal_form, now_s=self._loop.time)
        self.listener = Listener(self._begin, traffic, loop=self._loop, owner_of=self._owners)

    async def drain(self, *, timeout_s: float) -> None:
        """Close idle connections, wait for current requests, and abort those that are not answered in time."""
        deadline_s = self._loop.time() + timeout_s
        await self.listener.drain(grace_s=0, timeout_s=timeout_s)
        self._owners.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(0, deadline_s - self._loop.time()))
            if late:
                _log.warning("http.requests_cut", requests=len(late), timeout_s=timeout_s)
                for task in late:
                    task.cancel()
                await asyncio.wait(late)

    def _begin(self, exchange: Exchange) -> None:
        task = self._loop.create_task(self._answer(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._application(exchange)
        except ClientLeft:
            return
        except Exception:  # noqa: BLE001 - the application answers its own failures; this one is of the application
            _log.exception("http.application_failed", path=_path(exchange))
        if not exchange.answered and not exchange.gone:
            _log.error("http.not_answered", path=_path(exchange))
            exchange.refuse(Refusal(500, "An internal error occurred. Its details are in the service's log."))


def _path(exchange: Exchange) -> str:
    return exchange.target.partition(b"?")[0].decode("latin-1")
