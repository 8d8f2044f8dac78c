"""Messages over a unix socket: a length, then JSON, with descriptors and the sender's pid as ancillary data."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

LENGTH = struct.Struct("!I")
CREDENTIALS = struct.Struct("3i")
MAX_MESSAGE_BYTES = 16 << 20
MAX_DESCRIPTORS = 8


@dataclass(frozen=True)
class Message:
    """A received message.

    Attributes:
        content: The JSON object.
        descriptors: Received file descriptors; the receiver must close them.
        sender_pid: The sender's pid in the receiver's pid namespace, from the kernel; 0 if SO_PASSCRED is off.
    """

    content: dict[str, Any]
    descriptors: tuple[int, ...] = field(default_factory=tuple)
    sender_pid: int = 0


def send(connection: socket.socket, content: dict[str, Any], *, descriptors: tuple[int, ...] = ()) -> None:
    """Send one message.

    Raises:
        OSError: The other side has closed the connection.
    """
    text = json.dumps(content).encode("ascii")
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    connection.sendmsg([LENGTH.pack(len(text))], [rights] if descriptors else [])
    connection.sendall(text)


def receive(connection: socket.socket) -> Message | None:
    """Receive one message; None at the end of the stream.

    Raises:
        ValueError: The received bytes are not a message.
        OSError: The other side has closed the connection, or is too slow.
    """
    room = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize) + socket.CMSG_SPACE(CREDENTIALS.size)
    head, ancillary, _, _ = connection.recvmsg(LENGTH.size, room, socket.MSG_CMSG_CLOEXEC)
    descriptors, sender_pid = _unpack(ancillary)
    try:
        if not head:
            return None
        head += _read(connection, LENGTH.size - len(head))
        (size_bytes,) = LENGTH.unpack(head)
        if size_bytes > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {size_bytes} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
        content = json.loads(_read(connection, size_bytes))
    except BaseException:
        for fd in descriptors:
            os.close(fd)
        raise
    return Message(content, descriptors, sender_pid)


def _unpack(ancillary: list[tuple[int, int, bytes]]) -> tuple[tuple[int, ...], int]:
    descriptors = array.array("i")
    sender_pid = 0
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        elif (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            sender_pid = CREDENTIALS.unpack(data[: CREDENTIALS.size])[0]
    return tuple(descriptors), sender_pid


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        part = connection.recv(size_bytes - len(data))
        if not part:
            raise ValueError("the stream ends inside of a message")
        data += part
    return data
