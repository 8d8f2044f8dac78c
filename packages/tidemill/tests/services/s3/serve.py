"""The S3 service alone, as a process: wire, service and store, without control plane. Run as ``serve.py ROOT``.

Prints its URL once it listens. Ends in order at SIGTERM.
"""

import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

from tidemill.core.clock import SystemClock
from tidemill.core.roles import Roles
from tidemill.services.authorization import Authorization
from tidemill.services.s3 import S3Service
from tidemill.store.database import Database
from tidemill.store.objects import ObjectStore
from tidemill.store.schema import metadata
from tidemill.wire.credentials import Credential
from tidemill.wire.gateway import Gateway

ACCESS_KEY = "AKIATIDEMILLTESTS000"
SECRET_KEY = "tidemill-tests-secret"
REGION = "us-west-2"


class OneKey:
    """Knows one key pair."""

    def lookup(self, access_key_id: str) -> Credential | None:
        if access_key_id != ACCESS_KEY:
            return None
        arn = "arn:aws:sts::000000000000:assumed-role/SageMakerRole/user"
        return Credential(ACCESS_KEY, SECRET_KEY, arn=arn, unrestricted=True)


class App:
    """Gateway and lifespan."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._gateway: Gateway | None = None

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        if scope["type"] != "lifespan":
            assert self._gateway is not None
            await self._gateway(scope, receive, send)
            return
        await receive()
        with Database.open(self._root / "tidemill.db", metadata=metadata) as database:
            objects = ObjectStore(database, self._root / "objects", clock=SystemClock())
            await objects.sweep()
            self._gateway = Gateway(
                {"s3": S3Service(objects, region=REGION)}, OneKey(), authorizer=Authorization(Roles({})), region=REGION
            )
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await objects.close()
        await send({"type": "lifespan.shutdown.complete"})


def main() -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
        config = uvicorn.Config(App(Path(sys.argv[1])), lifespan="on", log_config=None, access_log=False)
        uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
