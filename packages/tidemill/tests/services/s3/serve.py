"""The S3 service alone, as a process: wire, service and store, without control plane.

Run as ``serve.py ROOT``, or ``serve.py ROOT s3://BUCKET/PREFIX URL`` to keep contents in another S3. In the other S3 it
removes contents without an object once, at the start. Prints its URL when it listens, on $PORT or any port. Ends
normally at SIGTERM.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import uvloop

from tidemill.control.bucket_rules import BucketRules
from tidemill.control.kms_keys import KmsKeys
from tidemill.core.clock import SystemClock
from tidemill.core.job_scope import JobScope
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.core.roles import Roles
from tidemill.errors import ServiceUnavailable
from tidemill.services.authorization import Authorization
from tidemill.services.s3 import HandedFiles, S3Service
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.contents import RemoteSettings
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.gateway import Gateway, HttpServer
from tidemill.wire.signing.credentials import Credential

ACCESS_KEY = "AKIATIDEMILLTESTS000"
JOB_KEY = "ASIATIDEMILLJOB"
SECRET_KEY = "tidemill-tests-secret"
REGION = "us-west-2"
FILE_MAX_BYTES = 64 * 1024 * 1024


class SomeKeys:
    """Finds the keys of a user and of the jobs ``job-N``; the jobs 1 to 9 share a prefix of checkpoints."""

    def lookup(self, access_key_id: str) -> Credential | None:
        arn = "arn:aws:sts::000000000000:assumed-role/SageMakerRole/"
        if access_key_id == ACCESS_KEY:
            return Credential(ACCESS_KEY, SECRET_KEY, arn=f"{arn}user", unrestricted=True)
        number = access_key_id.removeprefix(JOB_KEY)
        if not access_key_id.startswith(JOB_KEY) or not number.isdigit():
            return None
        name = f"job-{number}"
        scope = JobScope(name=name, output=f"sagemaker-tests/out/{name}", checkpoints="sagemaker-tests/shared")
        if int(number) > 9:
            scope = replace(scope, checkpoints=None)
        return Credential(access_key_id, SECRET_KEY, arn=arn + name, role="SageMakerRole", scope=scope)


@contextlib.asynccontextmanager
async def opened(root: Path, elsewhere: RemoteSettings) -> AsyncGenerator[Gateway]:
    """Open the store; yield the gateway above it."""
    with SqliteDatabase.open(root / "tidemill.db", metadata=metadata) as database:
        grace_s = 0 if elsewhere.home else 10
        objects = ObjectStore(database, root / "objects", clock=SystemClock(), grace_s=grace_s, remote=elsewhere)
        await asyncio.to_thread(objects.contents.remote.check)
        await objects.sweep()
        with contextlib.suppress(ServiceUnavailable):
            await objects.contents.remote.clean()
        records = SqlRecordStore(database, clock=SystemClock())
        keys = KmsKeys(records, region=REGION, clock=SystemClock())
        rules = BucketRules(records, objects, keys, clock=SystemClock())
        files = HandedFiles(objects.contents.disk, limit_bytes=FILE_MAX_BYTES)
        service = S3Service(objects, keys, rules, region=REGION, handed_files=files)
        async with files.listening(root / "files.sock"):
            yield Gateway({"s3": service}, SomeKeys(), authorizer=Authorization(Roles({}), rules=rules), region=REGION)
        await objects.close()


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    elsewhere = RemoteSettings()
    if len(sys.argv) > 2:
        home = S3Uri.parse(sys.argv[2])
        remotes = {home.bucket: RemoteS3(endpoint_url=sys.argv[3], region=REGION)}
        elsewhere = RemoteSettings(home, remotes=remotes, copies_max_bytes=1 << 30)
    async with opened(Path(sys.argv[1]), elsewhere) as gateway:
        server = HttpServer(gateway)
        with socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0")))) as sock:
            await server.listener.open(sock)
            print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
            await stop.wait()
        await server.drain(timeout_s=5)


if __name__ == "__main__":
    uvloop.run(main())
