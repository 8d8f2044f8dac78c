"""Fixtures: one tidemill service for all tests, and the TensorFlow of this process with `s3://`."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from running_service import running_service

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"


@pytest.fixture
def reserve_port() -> Iterator[Callable[[], int]]:
    """Function that returns a port for a server that a test starts.

    A socket is bound to the port, but does not listen, until the test ends. So the system gives the port to nothing
    else, but a server that sets SO_REUSEADDR, as TensorFlow's does, can listen on it.
    """
    with ExitStack() as stack:

        def reserve() -> int:
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
            return int(sock.getsockname()[1])

        yield reserve


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment variables that point boto3 to a running service."""
    with running_service(tmp_path_factory.mktemp("service")) as variables:
        yield variables


@pytest.fixture(scope="session")
def tf(service: dict[str, str]) -> Any:
    """TensorFlow with tidemill's additions."""
    os.environ.update(service)
    import tidemill_tensorflow

    tidemill_tensorflow.activate()
    import tensorflow

    return tensorflow


@pytest.fixture(scope="session")
def s3(service: dict[str, str]) -> Any:
    """boto3's client of the service."""
    import boto3

    os.environ.update(service)
    return boto3.client("s3")


@pytest.fixture
def bucket(s3: Any, request: pytest.FixtureRequest) -> str:
    """A new bucket for the test."""
    name = f"b{abs(hash(request.node.nodeid)):x}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    return name


@pytest.fixture
def run_script(service: dict[str, str], tmp_path: Path) -> Any:
    """Function that runs a script as a job does, and returns the finished process."""

    def run(text: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "script.py"
        script.write_text("import tidemill_tensorflow.startup\n" + text)
        environment = {**os.environ, **service, "TIDEMILL_TENSORFLOW": "1", **variables}
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)

    return run
