"""How many connections strangers may have: with a clock of the test, and on real servers with and without TLS."""

import contextlib
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
import trustme
from botocore.config import Config

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))

import toys

from tidemill._shared.http.limits import Limits
from tidemill._shared.http.room import Room
from tidemill.wire.gateway import LIMITS
from tidemill.wire.socket_owner import SocketOwners

OWN = ("127.0.0.1", 8780)
LOOPBACK = "127.0.0.1"


@dataclass(eq=False)
class Fake:
    """A connection that waits for its client, unless told otherwise."""

    waits: bool = True
    aborted: bool = False

    def abort(self) -> None:
        self.aborted = True


class Stage:
    """A room of 400 connections, 64 of them for each client without a signature. Ports of clients are their owners."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked: list[int] = []
        self.room = Room(Limits(connections=400, unproven=64), now_s=lambda: self.now_s, owner_of=self._owner_of)

    def enter(self, count: int, *, host: str = LOOPBACK, owner: int = 0) -> list[Fake]:
        made = [Fake() for _ in range(count)]
        assert all(self.room.enter(each, peer=(host, owner), own=OWN) for each in made)
        return made

    def later(self) -> None:
        self.now_s += 10
        self.room.trim()

    def _owner_of(self, peer: Any, own: Any) -> int:
        assert own == OWN
        self.asked.append(peer[1])
        return int(peer[1])


@pytest.fixture
def stage() -> Stage:
    return Stage()


def open_ones(connections: list[Fake]) -> int:
    return sum(not each.aborted for each in connections)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "192.0.2.7"])
def test_of_one_client_64_idle_connections_stay_and_the_oldest_go(stage: Stage, host: str) -> None:
    idle = stage.enter(200, host=host)
    assert open_ones(idle) == 200, "many good clients may come together"
    stage.later()
    assert [each.aborted for each in idle] == [True] * 136 + [False] * 64


def test_a_connection_whose_request_is_being_answered_stays(stage: Stage) -> None:
    busy = stage.enter(10)
    for each in busy:
        each.waits = False
    stage.enter(300)
    stage.later()
    assert open_ones(busy) == 10


def test_a_connection_with_a_signed_request_no_longer_counts(stage: Stage) -> None:
    agents = stage.enter(64)
    for each in agents:
        stage.room.prove(each)
    idle = stage.enter(100)
    stage.later()
    assert (open_ones(agents), open_ones(idle)) == (64, 64)


def test_users_of_the_machine_and_other_addresses_have_limits_of_their_own(stage: Stage) -> None:
    first, second, other = stage.enter(100, owner=1), stage.enter(60, owner=2), stage.enter(60, host="192.0.2.7")
    stage.later()
    assert (open_ones(first), open_ones(second), open_ones(other)) == (64, 60, 60)
    assert sorted(stage.asked) == [1] * 100 + [2] * 60


def test_the_kernel_is_not_asked_for_owners_while_there_are_few_connections(stage: Stage) -> None:
    stage.enter(64, owner=1)
    assert stage.asked == []
    stage.enter(1, owner=2)
    assert sorted(stage.asked) == [1] * 64 + [2]


def test_a_quarter_of_the_room_is_kept_for_connections_with_a_signed_request(stage: Stage) -> None:
    idle = stage.enter(1000)
    assert open_ones(idle) == 300
    agents = []
    for _ in range(350):
        agents += stage.enter(1)
        stage.room.prove(agents[-1])
    assert open_ones(agents) == 350
    assert (open_ones(idle), len(stage.room)) == (50, 400)


def test_a_flood_takes_no_connection_from_others(stage: Stage) -> None:
    others = stage.enter(60, owner=2) + stage.enter(60, host="192.0.2.7")
    flood = stage.enter(5000, owner=1)
    newcomer = stage.enter(1, owner=3)
    assert (open_ones(others), open_ones(flood), open_ones(newcomer)) == (120, 179, 1)


def test_a_connection_is_refused_only_if_no_other_waits(stage: Stage) -> None:
    for each in stage.enter(300):
        each.waits = False
    assert not stage.room.enter(Fake(), peer=(LOOPBACK, 0), own=OWN)
    assert len(stage.room) == 301
    for each in list(stage.room):
        stage.room.leave(each)
    assert len(stage.room) == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_kernel_tells_the_owner_of_a_connection(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server, contextlib.closing(SocketOwners()) as owners:
        own = server.getsockname()
        with socket.create_connection(own[:2]) as client:
            assert owners(client.getsockname(), own) == os.geteuid()
            mapped = [
                (f"::ffff:{end[0]}" if family == socket.AF_INET else end[0], end[1])
                for end in (client.getsockname(), own)
            ]
            assert owners(*mapped) == os.geteuid()
        assert owners((host, 1), own) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_kernel_tells_another_user_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.closing(SocketOwners()) as owners:
        client = socket.socket()
        os.fchown(client.fileno(), 12345, -1)
        with client:
            client.connect(server.getsockname())
            assert owners(client.getsockname(), server.getsockname()) == 12345


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture(scope="module", params=["http", "https"])
def server(
    request: pytest.FixtureRequest, tls: ssl.SSLContext, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Yield the URL of toy services with room for 80 connections."""
    gateway = toys.toy_gateway(toys.Toys(tmp_path_factory.mktemp("toys")))
    limits = replace(LIMITS, connections=80)
    with toys.serving(gateway, limits=limits, tls=tls if request.param == "https" else None) as port:
        yield f"{request.param}://127.0.0.1:{port}"


@pytest.fixture
def identity(server: str, authority: trustme.CA, tmp_path: Path) -> Iterator[Any]:
    """Yield a client that does not repeat its requests."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with contextlib.closing(
        boto3.client(
            "sts",
            endpoint_url=server,
            region_name="us-west-2",
            aws_access_key_id=toys.KEY,
            aws_secret_access_key=toys.SECRET,
            verify=str(tmp_path / "ca.pem"),
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=100),
        )
    ) as client:
        yield client


def test_idle_connections_keep_nobody_out(server: str, identity: Any) -> None:
    identity.get_caller_identity()
    host, _, port = server.rpartition("//")[2].partition(":")
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(200)]
        for _ in range(3):
            identity.get_caller_identity()
            identity._endpoint.http_session.close()  # the next request opens a connection
        # The oldest are closed, on TLS before their handshakes have ended.
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""


@pytest.mark.parametrize("server", ["https"], indirect=True)
def test_failed_handshakes_leave_no_connection_behind(server: str, identity: Any) -> None:
    host, _, port = server.rpartition("//")[2].partition(":")
    for _ in range(200):
        with socket.create_connection((host, int(port)), timeout=60) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(1000):
                    pass
    identity.get_caller_identity()
