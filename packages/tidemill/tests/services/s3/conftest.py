"""Servers for the S3 tests: tidemill's, and moto's as the reference for S3's behavior."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

REPOSITORY = Path(__file__).resolve().parents[5]
MOTO_SERVER = REPOSITORY / ".venvs/peers/bin/moto_server"
KEYS = {"aws_access_key_id": "AKIATIDEMILLTESTS000", "aws_secret_access_key": "tidemill-tests-secret"}
REGION = "us-west-2"
_VARIABLES = {name.upper(): value for name, value in KEYS.items()} | {"AWS_EC2_METADATA_DISABLED": "true"}


class Server:
    """One server process."""

    def __init__(self, url: str, process: "subprocess.Popen[str]", root: Path) -> None:
        self.url = url
        self.process = process
        self.root = root

    def client(self, **config: Any) -> Any:
        """Return a boto3 client of the server; without retries unless requested."""
        settings = {"retries": {"total_max_attempts": 1}, "read_timeout": 60, **config}
        return boto3.client("s3", endpoint_url=self.url, region_name=REGION, config=Config(**settings), **KEYS)

    def content_files(self) -> list[Path]:
        """Return the files of the store that contain bytes of objects and parts."""
        return sorted(path for path in (self.root / "objects/content").rglob("*") if path.is_file())

    def content_file(self, data: bytes) -> Path:
        """Return the file that contains ``data``."""
        for path in self.content_files():
            # Files that other tests have replaced are removed meanwhile.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size == len(data) and path.read_bytes() == data:
                    return path
        raise AssertionError(f"no file holds the {len(data)} bytes that begin with {data[:50]!r}")

    def temporaries(self) -> list[Path]:
        """Return the unfinished files."""
        return list((self.root / "objects/tmp").iterdir())


@contextlib.contextmanager
def running(root: Path, environment: dict[str, str] | None = None, *elsewhere: str) -> Iterator[Server]:
    """Yield tidemill's S3 service on ``root``, which runs until the block ends.

    Args:
        root: State directory of the service.
        environment: Environment variables of the service.
        elsewhere: To keep contents in another S3: ``s3://bucket/prefix`` and the URL of that S3.
    """
    root.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("serve.py")), str(root), *elsewhere],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | _VARIABLES | (environment or {}),
    )
    assert process.stdout is not None
    try:
        url = next((line.strip() for line in process.stdout if line.startswith("http")), "")  # after its log
        assert url, "the server did not start; its standard error has the reason"
        yield Server(url, process, root)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a shared service; tests use separate buckets."""
    with running(tmp_path_factory.mktemp("s3") / "state") as server:
        yield server


@pytest.fixture(scope="session")
def start() -> Callable[..., Any]:
    """Return a function that starts a separate service: ``with start(root, environment) as server``."""
    return running


@pytest.fixture(scope="session")
def s3(server: Server) -> Any:
    """Return a boto3 client with its default settings, except for retries."""
    return server.client()


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    """Return a new bucket."""
    name = f"t-{os.urandom(6).hex()}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    return name


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield moto's server, the reference for AWS's behavior."""
    if not MOTO_SERVER.exists():
        pytest.skip(f"{MOTO_SERVER} is not installed; it is the oracle of this test")
    root = tmp_path_factory.mktemp("moto")
    with socket.socket() as reserved, (root / "log").open("w") as log:
        # Bound, but never listening: the system gives the port to nothing else, and moto's server sets SO_REUSEADDR.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        process = subprocess.Popen(
            [str(MOTO_SERVER), "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log, text=True
        )
        server = Server(f"http://127.0.0.1:{port}", process, root)
        try:
            # It answers as soon as it listens; until then connections are refused.
            server.client(retries={"total_max_attempts": 12, "mode": "standard"}).list_buckets()
            yield server
        finally:
            process.terminate()
            process.wait(timeout=30)
