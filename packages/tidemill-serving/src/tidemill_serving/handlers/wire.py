"""Data that the server and its worker processes exchange: the setup of a worker, and frames on sockets.

A frame is a JSON header and a body of bytes, each preceded by its length. A lane is one socket pair: it carries one
request at a time, so frames need no request ids. Standard library only, since workers must start fast.
"""

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

TENSORFLOW_SERVING = "tensorflow-serving"
PYTHON = "python"
KINDS = (TENSORFLOW_SERVING, PYTHON)
"""The kinds of endpoints: with an ``inference.py``, or with a script of functions such as ``input_fn``."""

LENGTHS = struct.Struct("!IQ")
"""Sizes of header and body in bytes, at the start of each frame."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class WorkerSetup:
    """Settings of a worker process, passed on its command line.

    Attributes:
        kind: ``tensorflow-serving`` (`handler`, or `input_handler` and `output_handler`) or ``python`` (`input_fn`,
            `output_fn`, `transform_fn`, `predict_fn`).
        script: Path of the user's module; empty for a ``python`` endpoint without a script.
        paths: Directories to put at the front of ``sys.path``.
        control_fd: Socket on which the worker reports that it is ready; at its end of file the worker exits.
        lane_fds: Sockets, one per request that the worker handles at a time.
        rest_port: Loopback port of TF Serving's REST API.
        grpc_port: Loopback port of TF Serving's gRPC API.
        default_model: Model for requests that name none.
        model_dir: Directory of the unpacked model archive.
        model_timeout_s: Maximum time in seconds that the model of a ``python`` endpoint takes for a call.
    """

    kind: str
    script: str
    paths: tuple[str, ...]
    control_fd: int
    lane_fds: tuple[int, ...]
    rest_port: int
    grpc_port: int
    default_model: str
    model_dir: str
    model_timeout_s: float

    def to_argument(self) -> str:
        """Return the setup as one command line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "WorkerSetup":
        """Parse the result of `to_argument`.

        Args:
            text: JSON text.
        """
        fields = json.loads(text)
        fields["paths"] = tuple(fields["paths"])
        fields["lane_fds"] = tuple(fields["lane_fds"])
        return cls(**fields)


def frame(header: Mapping[str, Any], body: bytes = b"") -> tuple[bytes, bytes]:
    """Return the two parts of a frame, in sending order.

    Args:
        header: Fields that JSON can hold.
        body: Sent without a copy.

    Returns:
        Lengths and JSON; the body.
    """
    head = json.dumps(header).encode()
    return LENGTHS.pack(len(head), len(body)) + head, body


def receive(lane: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """Wait for a frame and return it, or None if the other side has closed the socket.

    Args:
        lane: A blocking stream socket.

    Returns:
        Header and body.
    """
    lengths = _exactly(lane, LENGTHS.size)
    if lengths is None:
        return None
    head_bytes, body_bytes = LENGTHS.unpack(lengths)
    head, body = _exactly(lane, head_bytes), _exactly(lane, body_bytes)
    if head is None or body is None:
        return None
    return json.loads(head), bytes(body)


def _exactly(lane: socket.socket, size_bytes: int) -> bytearray | None:
    data = bytearray(size_bytes)
    view = memoryview(data)
    while view:
        count = lane.recv_into(view, min(len(view), _READ_BYTES))
        if not count:
            return None
        view = view[count:]
    return data
