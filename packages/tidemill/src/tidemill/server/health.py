"""`GET /healthz`: whether the service answers, and in which isolation mode its jobs run.

It is the only request that need not be signed. The answer contains nothing that a stranger could use. It cannot be a
request for a bucket of that name, because those are signed.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

__all__ = ["answer_health", "is_health_request"]


def is_health_request(scope: Mapping[str, Any]) -> bool:
    """Return whether an HTTP scope is an unsigned request for the health of the service."""
    return (
        scope.get("path") == "/healthz"
        and scope.get("method") in ("GET", "HEAD")
        and not scope.get("query_string")
        and not any(name == b"authorization" for name, _ in scope["headers"])
    )


async def answer_health(health: Mapping[str, str], send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
    """Answer 200 with ``{"status": "ok", ...}``."""
    body = json.dumps({"status": "ok", **health}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
