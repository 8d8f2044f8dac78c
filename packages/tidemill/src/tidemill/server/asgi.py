"""ASGI on the shared HTTP protocol: the requests of one application, and the server around it."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import unquote

import httptools
import structlog

from tidemill._shared.http.exchange import Exchange
from tidemill._shared.http.limits import Headers, Limits, Refusal, Traffic
from tidemill._shared.http.listener import Listener
from tidemill.server.socket_owner import SocketOwners

__all__ = ["LIMITS", "AsgiApp", "AsgiServer"]

_Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Awaitable[None]
]

LIMITS = Limits(answer_timeout_s=math.inf, unproven=64)
"""The service's limits: operations have their own limits on bodies and time."""

_CODES = {
    408: "RequestTimeout",
    414: "RequestURITooLong",
    431: "RequestHeaderSectionTooLarge",
    500: "InternalFailure",
    503: "ServiceUnavailable",
}
_log = structlog.get_logger()


class AsgiServer:
    """Answers the requests of a socket with an ASGI application.

    Args:
        app: The application. It gets requests only; ASGI's lifespan is not used.
        limits: Limits on requests and their duration.
    """

    def __init__(self, app: AsgiApp, *, limits: Limits = LIMITS) -> None:
        self._app = app
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._owners = SocketOwners()
        traffic = Traffic(limits, streams=True, refusal_form=_refusal_form, now_s=self._loop.time)
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
            url = httptools.parse_url(exchange.target)
        except httptools.HttpParserInvalidURLError:
            exchange.refuse(Refusal(400, "Malformed HTTP request: the target is no URL"))
            return
        raw_path = url.path or b"/"
        path = raw_path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": exchange.version,
            "method": exchange.method.decode("ascii"),
            "scheme": "https" if exchange.transport.get_extra_info("sslcontext") else "http",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": exchange.headers,
            "tidemill.prove": exchange.prove,
        }
        try:
            await self._app(scope, partial(_receive, exchange), partial(_send, exchange))
        except Exception:  # noqa: BLE001 - the application answers its own failures; this one is of the application
            _log.exception("http.application_failed", path=path)
        if not exchange.answered and not exchange.gone:
            _log.error("http.not_answered", path=path)
            exchange.refuse(Refusal(500, "An internal error occurred. Its details are in the service's log."))


async def _receive(exchange: Exchange) -> _Message:
    exchange.ask_for_body()
    while not exchange.gone and not exchange.answered:
        if exchange.unread_bytes or (exchange.complete and not exchange.exhausted):
            body = exchange.take()
            return {"type": "http.request", "body": body, "more_body": not exchange.complete}
        await exchange.changed()
    return {"type": "http.disconnect"}


async def _send(exchange: Exchange, message: _Message) -> None:
    if message["type"] == "http.response.start":
        exchange.start(message["status"], message.get("headers", ()))
        return
    while not exchange.writable and not exchange.gone:
        await exchange.changed()
    if exchange.gone:
        await asyncio.sleep(0)  # lets an application that only sends notice the disconnect
    exchange.send(message.get("body", b""), more=message.get("more_body", False))


def _refusal_form(refusal: Refusal) -> tuple[Headers, bytes]:
    code = _CODES.get(refusal.status, "InvalidRequest")
    body = json.dumps({"__type": code, "message": refusal.message}).encode("ascii")
    headers = ((b"content-type", b"application/x-amz-json-1.1"), (b"x-amzn-errortype", code.encode("ascii")))
    return headers, body
