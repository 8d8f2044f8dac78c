"""Requests of tests to the root process that runs Slurm's daemons; see `daemons.Cluster`."""

import json
import os
import socket
from typing import Any

_socket: socket.socket | None = None


def ask(what: str, *arguments: str) -> Any:
    """Call a method of `daemons.Cluster` and return its result."""
    global _socket
    if _socket is None:
        _socket = socket.socket(fileno=int(os.environ["SLURM_TEST_CONTROL"]))
    _socket.sendall(json.dumps({"do": what, "with": arguments}).encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        part = _socket.recv(1 << 16)
        if not part:
            raise ConnectionError("the process that runs Slurm's daemons has ended")
        answer += part
    return json.loads(answer)
