"""Messages between instances on several machines, and attacks by strangers. Real sockets on loopback."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import sys
import threading
from dataclasses import replace

import pytest

from tidemill_runtime import channel
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.handshake import NUM_PORTS, answer, ask, port_of
from tidemill_runtime.mpi.network import Addresses, NetworkPeers, call
from tidemill_runtime.mpi.plan import FAILED, Outcome

SECRET = secrets.token_bytes(32)
CONTENT = {"addresses": {"algo-1": "127.0.0.1", "algo-2": "127.0.0.1"}, "secret": SECRET.hex()}


@pytest.fixture
def pair():
    """Return both ends of a connection, authenticated."""
    left, right = socket.socketpair()
    found = []
    thread = threading.Thread(target=lambda: found.append(answer(right, secret=SECRET, host="algo-2")))
    thread.start()
    asking = ask(left, secret=SECRET, host="algo-2")
    thread.join()
    yield asking, found[0]
    asking.close()
    found[0].close()


@pytest.fixture
def instance(tmp_path, request):
    """Yield a listening instance: its peers, its supervisor's socket, and where other instances find it."""
    file = tmp_path / "peers.json"
    file.write_text(json.dumps({**CONTENT, "encrypted": getattr(request, "param", False)}))
    peers = NetworkPeers(tmp_path, file=file, host="algo-2", others=["algo-1"])
    listener = peers.listen()
    yield peers, listener, Addresses.read(file)
    peers.close()
    listener.close()


def test_messages_arrive_in_both_directions(pair):
    asking, answering = pair
    for number in range(3):
        asking.send({"number": number})
        assert answering.receive() == {"number": number}
        answering.send({"back": number})
        assert asking.receive() == {"back": number}
    asking.close()
    assert answering.receive() is None


@pytest.mark.parametrize("how", ["changed", "repeated", "reflected"])
def test_a_message_that_the_other_side_did_not_send_is_refused(pair, how):
    asking, answering = pair
    asking.send({"command": "true"})
    sent = answering.raw.recv(4096)
    victim, by = (asking, answering) if how == "reflected" else (answering, asking)
    if how == "repeated":
        by.raw.sendall(sent)
        assert victim.receive() == {"command": "true"}
    by.raw.sendall(sent.replace(b"true", b"evil") if how == "changed" else sent)
    with pytest.raises(ValueError, match="did not send"):
        victim.receive()


def test_a_listener_without_the_secret_is_not_accepted_as_the_instance():
    left, right = socket.socketpair()
    with left, right:
        right.sendall(secrets.token_bytes(64))  # a random number, and an answer with another secret
        with pytest.raises(ValueError, match="is not algo-2 of this job"):
            ask(left, secret=SECRET, host="algo-2")


@pytest.mark.parametrize("instance", [False, True], indirect=True, ids=["clear", "encrypted"])
def test_only_a_peer_with_the_secret_can_start_a_command(instance):
    _, listener, addresses = instance
    ports = [port_of(SECRET, "algo-2", number) for number in range(NUM_PORTS)]
    stranger = replace(addresses, secret=secrets.token_bytes(32))
    strangers = 0
    for port in ports:
        try:
            raw = socket.create_connection(("127.0.0.1", port), timeout=30)
        except ConnectionRefusedError:
            continue
        with raw:
            strangers += 1
            with pytest.raises((ValueError, OSError)):
                ask(stranger.secured(raw, server=False), secret=stranger.secret, host="algo-2")
    assert strangers >= 1
    connection = call(addresses, "algo-2")
    assert connection is not None
    assert isinstance(connection.raw, ssl.SSLSocket) == addresses.encrypted
    connection.send({"command": "the peer's"})
    accepted, _ = listener.accept()  # the first to arrive, so no connection of a stranger was passed on
    with accepted:
        message = channel.receive(accepted)
        assert message is not None
        assert message.content == {"command": "the peer's"}
        channel.send(accepted, {"status": 7})
    assert connection.receive() == {"status": 7}
    connection.close()


def test_the_first_notice_of_a_failure_stays(instance):
    peers, listener, addresses = instance
    for code in (3, 4):
        connection = call(addresses, "algo-2")
        assert connection is not None
        outcome = {"exit_code": code, "where": "rank 0 on algo-1", "pid": 1, "reports": "", "tail": ""}
        connection.send({"notice": FAILED, "outcome": outcome, "sender": "algo-1"})
        assert connection.receive() == {}
        connection.close()
        listener.accept()[0].close()
    assert peers.read_notice(FAILED) == Outcome(3, where="rank 0 on algo-1", pid=1)


def test_encryption_without_its_package_is_refused_by_name(tmp_path, monkeypatch):
    file = tmp_path / "peers.json"
    file.write_text(json.dumps({**CONTENT, "encrypted": True}))
    assert Addresses.read(file).encrypted
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match="needs the package cryptography, which is not installed"):
        Addresses.read(file)
