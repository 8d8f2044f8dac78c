"""Shared fixtures: SavedModels built once, and real server processes."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

START_DEADLINE_S = 60
REQUEST_DEADLINE_S = 30
_LONGEST_WAIT_S = 120.0


@dataclass
class Answer:
    """A reply, read to its end."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket; its path may be longer than a socket address allows."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=REQUEST_DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


@dataclass
class ServerProcess:
    """``python -m tidemill_serving``, started with a free port."""

    model_dir: Path
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    unix_socket: Path | None = None
    log: list[str] = field(default_factory=list)
    port: int = 0
    grpc_port: int = 0

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "tidemill_serving", "--model-dir", str(self.model_dir), "--port", "0"]
        if self.unix_socket is not None:
            command += ["--unix-socket", str(self.unix_socket)]
        return [*command, *self.arguments]

    def launch(self) -> None:
        self.process = subprocess.Popen(
            self.command(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment},
        )

    def start(self) -> "ServerProcess":
        self.launch()
        assert self.process.stdout is not None
        for line in self.process.stdout:  # ends with the process
            self.log.append(line.rstrip("\n"))
            if line.startswith("grpc.ready") and "unix:" not in line:
                self.grpc_port = int(line.rpartition(":")[2])
            if line.startswith("server.ready"):
                self.port = int(line.rpartition(":")[2])
                return self
        raise AssertionError(f"exit status {self.process.wait()}: {self.log}")

    def connect(self, *, unix: bool = False) -> http.client.HTTPConnection:
        if unix:
            assert self.unix_socket is not None
            return UnixConnection(self.unix_socket)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=REQUEST_DEADLINE_S)

    def request(
        self,
        method: str,
        target: str,
        body: bytes | str | dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        *,
        unix: bool = False,
    ) -> Answer:
        connection = self.connect(unix=unix)
        try:
            payload = json.dumps(body) if isinstance(body, dict) else body
            connection.request(method, target, payload, headers or {})
            reply = connection.getresponse()
            return Answer(reply.status, reply.read(), {name.lower(): value for name, value in reply.getheaders()})
        finally:
            connection.close()

    def get(self, target: str) -> Answer:
        return self.request("GET", target)

    def predict(self, model: str, body: bytes | str | dict[str, Any]) -> Answer:
        return self.request("POST", f"/v1/models/{model}:predict", body)

    def invoke(self, body: bytes | str, content_type: str = "application/json", **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", "/invocations", body, {"Content-Type": content_type, **named})

    def line(self, *parts: str, since: int = 0) -> str:
        """Wait for the log's first line, from number ``since`` on, that contains all these texts, and return it."""
        for line in self.log[since:]:
            if all(part in line for part in parts):
                return line
        assert self.process.stdout is not None
        deadline = threading.Timer(_LONGEST_WAIT_S, self.process.kill)  # its log ends then
        deadline.start()
        try:
            for line in self.process.stdout:
                self.log.append(line.rstrip("\n"))
                if all(part in line for part in parts):
                    return self.log[-1]
        finally:
            deadline.cancel()
        raise AssertionError(f"the log ended without {parts}: {self.log}")

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        assert self.process.stdout is not None
        self.log += [line.rstrip("\n") for line in self.process.stdout]
        self.process.stdout.close()
        return self.process.wait()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of all test models, by name."""
    directory = tmp_path_factory.mktemp("models")
    script = Path(__file__).parent / "build_models.py"
    built = subprocess.run(
        [sys.executable, str(script), str(directory)],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return directory


@pytest.fixture(scope="session")
def server_process() -> type[ServerProcess]:
    """Return the class, for fixtures in directories below this one."""
    return ServerProcess


@pytest.fixture(scope="session")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yield one server with all models: on a port, on a unix socket with a long path, and with gRPC."""
    long_directory = tmp_path_factory.mktemp("sockets") / ("d" * 120)
    long_directory.mkdir()
    environment = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus"}
    socket_path = long_directory / "endpoint.sock"
    arguments = ("--grpc-port", "0")
    running = ServerProcess(models, arguments=arguments, environment=environment, unix_socket=socket_path).start()
    yield running
    assert running.terminate() == 0, running.log


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Yield a function that starts servers, which end with the test."""
    started: list[ServerProcess] = []

    def start_server(model_dir: Path, **options: Any) -> ServerProcess:
        running = ServerProcess(model_dir, **options)
        started.append(running)
        return running.start()

    yield start_server
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        if running.process.stdout is not None:
            running.process.stdout.close()
