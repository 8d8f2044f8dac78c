"""Servers started by the command that users of TensorFlow Serving know."""

import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


def reserve(cleanup: ExitStack) -> int:
    """Return a port that nobody else gets: the socket that holds it never listens, so that a server still can."""
    holder = cleanup.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("0.0.0.0", 0))
    return int(holder.getsockname()[1])


@pytest.fixture
def command(server_process: type[Any], tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function that makes servers of `tensorflow_model_server` on reserved ports; they end with the test."""
    made = []
    with ExitStack() as cleanup:

        class ByFlags(server_process):
            def command(self) -> list[str]:
                return [sys.executable, "-m", "tidemill_serving.tensorflow_model_server", *self.arguments]

        def make(*flags: str, **environment: str) -> Any:
            rest, grpc = reserve(cleanup), reserve(cleanup)
            arguments = (f"--port={grpc}", f"--rest_api_port={rest}", *flags)
            made.append(ByFlags(tmp_path, arguments=arguments, environment=environment, port=rest, grpc_port=grpc))
            return made[-1]

        yield make
        for server in made:
            if server.process.poll() is None:
                server.process.kill()
            server.process.wait()
            server.process.stdout.close()


@pytest.fixture
def base(models: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that puts half_plus_two's versions below a directory."""

    def put(*versions: int, name: str = "half_plus_two", source: str = "half_plus/123") -> Path:
        directory = tmp_path / name
        directory.mkdir(exist_ok=True)
        for version in versions:
            hidden = directory / f".{version}"
            shutil.copytree(models / source, hidden)
            hidden.rename(directory / str(version))
        return directory

    return put
