"""The owner of a loopback connection, from the kernel's socket diagnosis (`man 7 sock_diag`).

One question takes 15 to 50 us. `/proc/net/tcp` answers it too, but contains all sockets: 25 ms if there are 3,000.
"""

import errno
import os
import socket
import struct
import sys
from typing import Any

import structlog

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_ALL = 0xFFFFFFFF
_ANSWER_BYTES = 8192
_HEADER = struct.Struct("=IHHII")
_UID_AT = _HEADER.size + 64
"""Offset of `idiag_uid` in an answer: after family, state, timer, retransmissions, both ends, and three numbers."""

_log = structlog.get_logger()


class SocketOwners:
    """Asks the kernel for the owners of connections that processes of this machine have opened."""

    def __init__(self) -> None:
        self._netlink: socket.socket | None = None
        self._works = True

    def __call__(self, peer: Any, own: Any) -> int | None:
        """Return the uid of the owner of a connection; None if the kernel does not tell, or the client has left.

        Args:
            peer: Address of the client's end, which is on loopback.
            own: Address of the server's end.
        """
        if not self._works:
            return None
        try:
            return self._ask(_question(peer, own))
        except OSError as error:
            self._works = False
            self.close()
            reason = f"the kernel does not tell the owners of connections ({error}): all on loopback share one limit"
            _log.warning("http.owners_unknown", reason=reason)
            return None

    def close(self) -> None:
        """Close the socket; the next question opens another one."""
        if self._netlink is not None:
            self._netlink.close()
            self._netlink = None

    def _ask(self, question: bytes) -> int | None:
        if self._netlink is None:
            # Without blocking: the kernel has answered when `send` returns.
            kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
            self._netlink = socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG)
            self._netlink.connect((0, 0))
        self._netlink.send(question)
        answer = self._netlink.recv(_ANSWER_BYTES)
        _, kind, *_ = _HEADER.unpack_from(answer)
        if kind == _SOCK_DIAG_BY_FAMILY:
            return int.from_bytes(answer[_UID_AT : _UID_AT + 4], sys.byteorder)
        code = -int.from_bytes(answer[_HEADER.size : _HEADER.size + 4], sys.byteorder, signed=True)
        if code == errno.ENOENT:
            return None
        raise OSError(code, os.strerror(code))


def _question(peer: Any, own: Any) -> bytes:
    hosts = [end[0].removeprefix("::ffff:") for end in (peer, own)]
    family = socket.AF_INET6 if ":" in hosts[0] else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host in hosts)
    ends = (
        struct.pack("!HH", peer[1], own[1]) + addresses + struct.pack("=III", 0, _ALL, _ALL)
    )  # no interface, no cookie
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL) + ends
    return _HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + request
