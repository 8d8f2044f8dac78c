"""Authenticated messages between instances: strangers, changed, repeated and cut messages are refused."""

from __future__ import annotations

import socket
import threading

import pytest

from tidemill_runtime.mpi.handshake import (
    _HEAD,
    MAX_MESSAGE_BYTES,
    NUM_PORTS,
    SupervisorConnection,
    answer,
    ask,
    port_of,
)

SECRET = b"s" * 32


def meet(*, asking=SECRET, answering=SECRET, expected="algo-2", host="algo-2"):
    """Return both connections, or the error of a side in its place."""
    one, other = socket.socketpair()
    for raw in (one, other):
        raw.settimeout(20)
    found = {}

    def run(side, function, raw, secret, name):
        try:
            found[side] = function(raw, secret=secret, host=name)
        except (OSError, ValueError) as error:
            found[side] = error
            raw.close()

    threads = [
        threading.Thread(target=run, args=("asks", ask, one, asking, expected)),
        threading.Thread(target=run, args=("answers", answer, other, answering, host)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found["asks"], found["answers"]


@pytest.fixture
def pair():
    """Yield a connection of each side."""
    both = meet()
    yield both
    for each in both:
        each.close()


def test_messages_go_both_ways_in_order_until_the_end(pair):
    asks, answers = pair
    for number in range(3):
        asks.send({"number": number, "word": "ä"})
    answers.send({})
    assert [answers.receive() for _ in range(3)] == [{"number": number, "word": "ä"} for number in range(3)]
    assert asks.receive() == {}
    asks.close()
    assert answers.receive() is None


@pytest.mark.parametrize(
    "difference",
    [{"asking": b"x" * 32}, {"answering": b"x" * 32}, {"expected": "algo-3"}],
    ids=["a stranger asks", "a stranger answers", "another instance answers"],
)
def test_who_does_not_know_the_secret_or_has_another_name_is_refused(difference):
    asks, answers = meet(**difference)
    assert isinstance(asks, (OSError, ValueError))
    assert isinstance(answers, ValueError) and str(answers) == "a stranger"


def test_the_secret_is_never_sent():
    one, other = socket.socketpair()
    with one, other:
        other.settimeout(20)
        thread = threading.Thread(target=lambda: other.sendall(b"r" * 32))
        thread.start()
        one.settimeout(0.01)
        with pytest.raises(TimeoutError):
            ask(one, secret=SECRET, host="algo-1")
        thread.join()
        assert SECRET not in other.recv(1000)


def frame_of(sender, content):
    """Return the bytes of a message, which is not sent."""
    kept, raw = bytearray(), sender.raw
    sender.raw = type("Recorder", (), {"sendall": staticmethod(kept.extend)})
    try:
        sender.send(content)
    finally:
        sender.raw = raw
    return bytes(kept)


@pytest.mark.parametrize("change", ["repeated", "changed", "reflected", "of another connection"])
def test_a_message_that_the_other_side_did_not_send_now_is_refused(pair, change):
    asks, answers = pair
    frame = frame_of(asks, {"command": "true"})
    if change == "repeated":
        asks.raw.sendall(frame)
        assert answers.receive() == {"command": "true"}
    elif change == "changed":
        frame = frame.replace(b"true", b"fals")
    elif change == "reflected":
        frame = frame_of(answers, {"command": "true"})
    else:
        others = meet()
        frame = frame_of(others[0], {"command": "true"})
        for each in others:
            each.close()
    asks.raw.sendall(frame)
    with pytest.raises(ValueError, match="a message that the other instance did not send"):
        answers.receive()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0", "the stream ends inside of a message"),
        (_HEAD.pack(10, b"m" * 32) + b"{}", "the stream ends inside of a message"),
        (_HEAD.pack(MAX_MESSAGE_BYTES + 1, b"m" * 32), f"a message of {MAX_MESSAGE_BYTES + 1} bytes; at most"),
    ],
    ids=["half a head", "half a body", "too long"],
)
def test_a_cut_or_endless_message_is_refused(data, words):
    one, other = socket.socketpair()
    connection = SupervisorConnection(other, b"key", own=b"b")
    with one:
        one.sendall(data)
    with pytest.raises(ValueError, match=words):
        connection.receive()
    connection.close()


def test_ports_follow_from_the_secret_and_the_name_and_differ():
    ports = [port_of(SECRET, "algo-1", number) for number in range(NUM_PORTS)]
    assert ports == [port_of(SECRET, "algo-1", number) for number in range(NUM_PORTS)]
    assert all(21000 <= port < 29000 for port in ports) and len(set(ports)) > NUM_PORTS // 2
    assert ports != [port_of(SECRET, "algo-2", number) for number in range(NUM_PORTS)]
    assert ports != [port_of(b"t" * 32, "algo-1", number) for number in range(NUM_PORTS)]
