"""A toy service on a real port, shared by the tests of the wire."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import structlog
from botocore.config import Config
from structlog.testing import LogCapture

sys.path.insert(0, str(Path(__file__).parent))

import toys


@pytest.fixture(scope="session", autouse=True)
def wire_log() -> Iterator[LogCapture]:
    """Yield the events of the wire, which are not printed."""
    capture = LogCapture()
    structlog.configure(processors=[capture])
    yield capture
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> toys.Toys:
    return toys.Toys(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="session")
def port(toy: toys.Toys) -> Iterator[int]:
    with toys.serving(toys.toy_gateway(toy)) as port:
        yield port


@pytest.fixture(scope="session")
def client(port: int) -> Iterator[Callable[..., Any]]:
    clients: dict[str, Any] = {}

    def make(service: str, **config: Any) -> Any:
        name = f"{service} {config}"
        if name not in clients:
            clients[name] = boto3.client(
                service,
                endpoint_url=f"http://127.0.0.1:{port}",
                aws_access_key_id=toys.KEY,
                aws_secret_access_key=toys.SECRET,
                region_name="us-west-2",
                config=Config(retries={"total_max_attempts": 1}, read_timeout=20, **config),
            )
        return clients[name]

    yield make
    for made in clients.values():
        made.close()
