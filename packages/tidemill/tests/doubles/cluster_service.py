"""The part of the service that the agents of a cluster use, in a thread: S3 and the API of instances."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

from tidemill._shared.http.exchange import Exchange
from tidemill.control.bucket_rules import BucketRules
from tidemill.control.kms_keys import KmsKeys
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.job_scope import HolderKind, JobScope, session_name
from tidemill.core.roles import Roles
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.services.authorization import Authorization
from tidemill.services.instances import InstancesService
from tidemill.services.s3 import S3Service
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.gateway import Gateway, HttpServer
from tidemill.wire.signing.credentials import Credential

REGION = "us-west-2"


class ClusterService:
    """Serves a store and the records of instances.

    Args:
        objects: The store; jobs may write below ``bucket/output/JOB_NAME``.
        instances: Returns the records; a restarted executor has new ones.

    Attributes:
        url: URL of the service.
        away: Whether it closes every connection without an answer.
        turned_away: Number of requests that it did not answer.
        clock: Its clock.
    """

    def __init__(self, objects: ObjectStore, instances: Callable[[], ClusterInstances]) -> None:
        self._instances = instances
        self._objects = objects
        self._keys: dict[str, Credential] = {}
        self.url = ""
        self.away = False
        self.turned_away = 0
        self.clock: Clock = SystemClock()

    def variables(self, job_name: str, *, attempt: int = 1, kind: str = "training") -> dict[str, str]:
        """Issue keys to a job, in place of earlier ones, and return the variables of its instances."""
        holder = HolderKind.ENDPOINT if kind == "endpoint" else HolderKind(f"{kind}-job")
        key = Credential(
            f"ASIA{job_name.upper().replace('-', ''):A<16}"[:20],
            f"secret-{job_name}-{attempt}",
            session_token=f"token-{attempt}",
            arn=f"arn:aws:sts::000000000000:assumed-role/SageMakerRole/{session_name(holder, job_name)}",
            role="SageMakerRole",
            scope=JobScope(name=job_name, kind=holder, output=f"bucket/output/{job_name}"),
        )
        self._keys[key.access_key_id] = key
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": key.secret_access_key,
            "AWS_SESSION_TOKEN": f"token-{attempt}",
        }

    def lookup(self, access_key_id: str) -> Credential | None:
        return self._keys.get(access_key_id)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve until the block ends."""
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen(128)
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            thread = threading.Thread(target=loop.run_until_complete, args=(self._serve(sock, stop),))
            thread.start()
            try:
                yield
            finally:
                loop.call_soon_threadsafe(stop.set)
                thread.join(20)
                loop.close()

    async def _serve(self, sock: socket.socket, stop: asyncio.Event) -> None:
        gateway: Gateway | None = None

        async def answer(exchange: Exchange) -> None:
            nonlocal gateway
            if self.away:
                self.turned_away += 1
                raise ConnectionResetError("the service is away")
            rules = Mock(spec=BucketRules, **{"encryption_of.return_value": None})
            services: dict[str, Any] = {
                "s3": S3Service(self._objects, Mock(spec=KmsKeys), rules, region=REGION),
                "tidemill-instances": InstancesService(self._instances()),
            }
            gateway = Gateway(services, self, authorizer=Authorization(Roles({})), region=REGION, clock=self.clock)
            await gateway(exchange)

        server = HttpServer(answer)
        await server.listener.open(sock)
        await stop.wait()
        self._instances().close()
        await server.drain(timeout_s=5)
