"""A local executor with real shims and sandboxes, and an environment without TensorFlow in which jobs start quickly."""

import asyncio
import functools
import hashlib
import itertools
import secrets
import select
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tidemill.core.instances import InstanceRef, ObjectReference, StreamName
from tidemill.core.remotes import RemoteS3
from tidemill.core.segments import stream_directory
from tidemill.environments.build_lock import Built
from tidemill.environments.builder import Environments
from tidemill.executors.local import LocalExecutor
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.spec import ChannelSpec, InstanceSpec, RemoteObject
from tidemill.instance.status import InstanceExit
from tidemill.sandbox import detect
from tidemill.testing import Service

HERE = Path(__file__).parent
MOUNT = ("bubblewrap", "unshare")
BACKENDS = (*MOUNT, "plain")
_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def _the_machine_is_tried_once() -> Iterator[None]:
    """Make all executors share one trial of what this machine can isolate, for 0.05 s of CPU each time."""
    with mock.patch("tidemill.executors.local.detect", functools.cache(detect)):
        yield


@pytest.fixture(scope="session")
def environments_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of environments with complete ones of TensorFlow 2.21, which have fakes of the in-job
    distributions."""
    directory = tmp_path_factory.mktemp("environments")
    for name in ("tf-2.21", "tf-2.21-gpu"):
        _fake_environment(directory, name)
    return directory


@pytest.fixture
def fake_environment() -> Callable[[Path, str], None]:
    """Return a function that creates a complete environment with fakes, e.g. ``tf-2.21``, in a directory."""
    return _fake_environment


def _fake_environment(directory: Path, name: str) -> None:
    environment = Environments(directory).describe(name)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (environment.prefix / "bin").mkdir(parents=True)
    environment.python.symlink_to(base)
    (environment.prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    for name, source in (("tidemill_runtime", "fake_runtime.py"), ("tidemill_serving", "fake_serving.py")):
        package = environment.site_packages / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        shutil.copy(HERE / source, package / "__main__.py")
    for layer in environment.shared_layers:
        layer.mkdir(exist_ok=True)
        Built(layer).complete({"name": environment.name})
    Built(environment.prefix).complete(
        {"name": environment.name, "key": environment.key, "lock_sha256": environment.lock_sha256}
    )


def open_executor(
    state_dir: Path, environments_dir: Path, isolation: str, service_url: str | None = None, **settings: Any
) -> LocalExecutor:
    """Return an executor over a store that keeps content in files named by their digest."""
    return LocalExecutor(
        state_dir=state_dir,
        environments_dir=environments_dir,
        isolation=isolation,
        content_file=lambda content_id: state_dir / "objects" / content_id,
        logs=state_dir / "logs",
        service_url=service_url,
        **settings,
    )


@dataclass
class Stage:
    """An executor, its directories, and short ways to run a script in it."""

    executor: LocalExecutor
    state_dir: Path
    environments_dir: Path
    refs: list[InstanceRef] = field(default_factory=list)
    isolation: str = "auto"
    service_url: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def spec(self, script: str = "", **changes: Any) -> InstanceSpec:
        # Processes are found by the id of their job on the whole machine, where other tests may run.
        ref, number = InstanceRef(secrets.token_hex(16), 0), next(_numbers)
        self.refs.append(ref)
        defaults: dict[str, Any] = {
            "ref": ref,
            "kind": "training",
            "job_name": f"job-{number}",
            "hosts": ("algo-1", "algo-2"),
            "framework_version": "2.21",
            "log": StreamName("jobs", ref.job_id),
            "config": {"hyperparameters": {"script": script}},
            "grace_s": 20.0,
        }
        return InstanceSpec(**{**defaults, **changes})

    def start(self, script: str = "", **changes: Any) -> InstanceRef:
        spec = self.spec(script, **changes)
        self.executor.launch([spec])
        return spec.ref

    def run(self, script: str = "", **changes: Any) -> tuple[InstanceRef, InstanceExit]:
        ref = self.start(script, **changes)
        return ref, self.ended(ref)

    def ended(self, ref: InstanceRef) -> InstanceExit:
        self.wait(ref, lambda: not self.executor.observe(ref).running)
        ended = self.executor.observe(ref).exit
        assert ended is not None, self.directory(ref).shim_log.read_text()
        return ended

    def wait(self, ref: InstanceRef, condition: Callable[[], bool], *, timeout_s: float = 60) -> None:
        """Wait, woken by the executor's own notifications, until a condition holds."""

        async def follow() -> None:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self.executor.changed(timeout_s=0.2)

        asyncio.run(follow())

    def wait_for_line(self, ref: InstanceRef, line: str) -> None:
        self.wait(ref, lambda: line in self.lines(ref) or not self.executor.observe(ref).running)
        assert line in self.lines(ref), (self.lines(ref), self.executor.observe(ref))

    def lines(self, ref: InstanceRef, *, stream: str | None = None) -> list[str]:
        directory = stream_directory(self.state_dir / "logs", "jobs", stream or ref.job_id)
        data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return [line.split(b" ", 1)[1].decode() for line in data.split(b"\n")[:-1]]

    def directory(self, ref: InstanceRef) -> InstanceDirectory:
        return InstanceDirectory.of(self.state_dir, ref)

    def stored(self, data: bytes, *, name: str, uri: str | None = None) -> ObjectReference:
        """Return an object of a store that keeps its files by digest."""
        digest = hashlib.sha256(data).hexdigest()
        file = self.state_dir / "objects" / digest
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return ObjectReference(
            uri=uri or f"s3://bucket/data/{name}", name=name, content_id=digest, size_bytes=len(data), sha256=digest
        )

    def content(self, reference: ObjectReference) -> Path:
        """Return the file of an object that `stored` created."""
        return self.state_dir / "objects" / reference.content_id

    def artifact(self, ref: InstanceRef, name: str) -> Path:
        """Return an artifact from the executor."""
        file = self.executor.publication(ref, name)
        assert file is not None
        return file

    def channel(self, name: str = "training", **objects: bytes) -> ChannelSpec:
        return ChannelSpec(name=name, objects=[self.stored(data, name=key) for key, data in objects.items()])

    def reopen(self) -> None:
        """Replace the executor by a new one on the same directories, as a restart of the server does."""
        self.executor.close()
        self.executor = open_executor(
            self.state_dir, self.environments_dir, self.isolation, self.service_url, **self.settings
        )

    def close(self) -> None:
        for ref in self.refs:
            self.executor.reap(ref.job_id)
        self.executor.close()


@pytest.fixture
def make_stage(tmp_path: Path, environments_dir: Path, need: Callable[[str], None]) -> Iterator[Callable[..., Stage]]:
    """Yield a function that makes a stage with the requested isolation; the test is skipped if the machine lacks it."""
    made: list[Stage] = []

    def make(
        isolation: str, environments_dir: Path = environments_dir, service_url: str | None = None, **settings: Any
    ) -> Stage:
        backend = isolation.removeprefix("full:")
        if backend in MOUNT:
            need(backend)
        state_dir = tmp_path / "state"
        executor = open_executor(state_dir, environments_dir, isolation, service_url, **settings)
        made.append(
            Stage(
                executor,
                state_dir,
                environments_dir,
                isolation=isolation,
                service_url=service_url,
                settings=settings,
            )
        )
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    """Return a stage with the best sandbox that works here."""
    return make_stage("auto")


@pytest.fixture(params=BACKENDS)
def any_stage(request: pytest.FixtureRequest, make_stage: Callable[..., Stage]) -> Stage:
    """Return a stage with each backend in turn."""
    return make_stage(request.param)


class Wire:
    """A proxy between a client and a store, which forwards bytes until a test disturbs it.

    Attributes:
        cut_after: Bytes of answers after which each connection is closed.
        silent_after: Bytes of answers after which a connection stays open, but silent.
        answer: Answer to every request, instead of the store's.
        requests: The head of each request.
        tls: If set, the proxy is an https endpoint.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.tls: ssl.SSLContext | None = None
        self.cut_after = self.silent_after = 1 << 60
        self.answer = b""
        self.requests: list[str] = []
        self._target = target
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._port}"

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def _listen(self) -> None:
        with suppress(OSError):
            while not self._ended.is_set():
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(client,)))
                self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), ExitStack() as stack:
            if self.tls:
                client = stack.enter_context(self.tls.wrap_socket(client, server_side=True))
            store: socket.socket | None = None
            given = 0
            while not self._ended.is_set():
                if isinstance(client, ssl.SSLSocket) and client.pending():
                    ready: list[socket.socket] = [client]
                else:
                    ready, _, _ = select.select([client, store] if store else [client], [], [], 0.05)
                if client in ready:
                    if not (asked := client.recv(65536)):
                        return
                    self.requests.append(asked.decode("latin-1"))
                    if self.answer:
                        client.sendall(self.answer)
                        return
                    store = store or stack.enter_context(socket.create_connection(self._target))
                    store.sendall(asked)
                elif store in ready:
                    if not (data := store.recv(65536)):
                        return
                    if given + len(data) > self.silent_after:
                        self._ended.wait()
                        return
                    given += len(data)
                    client.sendall(data[: self.cut_after - given + len(data)])
                    if given >= self.cut_after:
                        return


@dataclass
class RemoteStore:
    """Another service, used as the remote S3 of a test, behind a proxy that can be disturbed."""

    service: Service
    wire: Wire
    bucket: str

    def __post_init__(self) -> None:
        self.s3 = self.service.client("s3")
        self.s3.create_bucket(Bucket=self.bucket)

    def put(self, key: str, data: bytes) -> RemoteObject:
        etag = self.s3.put_object(Bucket=self.bucket, Key=key, Body=data)["ETag"]
        return RemoteObject(
            uri=f"s3://{self.bucket}/{key}", name=key, size_bytes=len(data), etag=etag, remote=self.bucket
        )

    @property
    def remotes(self) -> dict[str, RemoteS3]:
        return {self.bucket: RemoteS3(endpoint_url=self.wire.url)}


@pytest.fixture(scope="session")
def remote_service() -> Iterator[Service]:
    """Yield the service behind `remote`."""
    with Service() as service:
        yield service


@pytest.fixture
def remote(remote_service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteStore]:
    """Yield an empty bucket of a remote S3. Its keys are in the environment, as those of a real one would be."""
    for name, value in remote_service.environment.items():
        if name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    host, _, port = remote_service.url.rpartition("//")[2].partition(":")
    wire = Wire((host, int(port)))
    try:
        yield RemoteStore(remote_service, wire, f"remote-{next(_numbers)}")
    finally:
        wire.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory, need: Callable[[str], None]) -> Path:
    """Return a file with a self-signed certificate for 127.0.0.1, and its key."""
    need("openssl")
    directory = tmp_path_factory.mktemp("certificate")
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*command, "-keyout", "key.pem", "-out", "only.pem"], cwd=directory, check=True, capture_output=True)
    both = directory / "both.pem"
    both.write_text((directory / "only.pem").read_text() + (directory / "key.pem").read_text())
    return both
