"""Messages over unix sockets: with descriptors and the sender's pid, and every way in which a stream can be wrong."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from tidemill_runtime.channel import LENGTH, MAX_MESSAGE_BYTES, Message, receive, send


@pytest.fixture
def pair():
    """Yield both ends of a connection."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with one, other:
        yield one, other


@pytest.mark.parametrize("content", [{}, {"command": "a\nb", "deep": {"list": [1, 2.5, None, True]}}, {"word": "ä€😀"}])
def test_a_message_arrives_as_it_was_sent(pair, content):
    send(pair[0], content)
    assert receive(pair[1]) == Message(content)


def test_messages_arrive_one_by_one_and_then_the_end(pair):
    for number in range(3):
        send(pair[0], {"number": number})
    pair[0].close()
    assert [receive(pair[1]) for _ in range(4)] == [*(Message({"number": number}) for number in range(3)), None]


def test_descriptors_lead_to_the_same_files(pair, tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    fds = [os.open(file, os.O_CREAT | os.O_WRONLY) for file in files]
    send(pair[0], {"for": "you"}, descriptors=tuple(fds))
    message = receive(pair[1])
    assert len(set(message.descriptors) | set(fds)) == 4, "they are new descriptors"
    for number, fd in enumerate(message.descriptors):
        assert not os.get_inheritable(fd)
        os.write(fd, b"%d" % number)
    for fd in (*fds, *message.descriptors):
        os.close(fd)
    assert [file.read_bytes() for file in files] == [b"0", b"1"]


def test_the_kernel_names_the_sender_if_the_receiver_asks_for_it(pair):
    send(pair[0], {})
    assert receive(pair[1]).sender_pid == 0
    pair[1].setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    send(pair[0], {"sender_pid": 1})
    assert receive(pair[1]).sender_pid == os.getpid()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (LENGTH.pack(2)[:3], "ends inside"),
        (LENGTH.pack(10) + b'{"a": ', "ends inside"),
        (
            LENGTH.pack(MAX_MESSAGE_BYTES + 1),
            f"a message of {MAX_MESSAGE_BYTES + 1} bytes; at most {MAX_MESSAGE_BYTES}",
        ),
        (LENGTH.pack(3) + b"{]}", "Expecting"),
    ],
    ids=["half a length", "half a message", "too long", "no JSON"],
)
def test_bytes_that_are_no_message_are_an_error_that_leaves_no_descriptor_open(pair, data, words):
    sent = os.open(os.devnull, os.O_RDONLY)
    pair[0].sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.to_bytes(4, sys.byteorder))])
    pair[0].close()
    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with pytest.raises(ValueError, match=words):
        receive(pair[1])
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208
    os.close(sent)


def test_a_message_that_arrives_byte_by_byte_is_whole(pair):
    text = b'{"slow": 1}'
    for byte in LENGTH.pack(len(text)) + text:
        pair[0].sendall(bytes([byte]))
    assert receive(pair[1]) == Message({"slow": 1})
