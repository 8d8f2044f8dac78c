"""Whether connections between machines are encrypted: the environment variable `SMP_ENCRYPTION`."""

from __future__ import annotations

import os
import socket

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow._shared.encryption.certificate import find_obstacle
from smdistributed.modelparallel.tensorflow._shared.encryption.tunnel import enclose

__all__ = ["ENCRYPTION_VARIABLE", "encrypts", "secured"]

ENCRYPTION_VARIABLE = "SMP_ENCRYPTION"
"""`1` puts TLS around every TCP connection between ranks; `0` (default) does not."""


def encrypts() -> bool:
    """Return whether TCP connections are encrypted.

    Raises:
        SMPConfigurationError: If the variable has another value than 0 and 1, or a package for TLS is missing.
    """
    value = os.environ.get(ENCRYPTION_VARIABLE, "0")
    if value not in ("", "0", "1"):
        raise SMPConfigurationError(f"{ENCRYPTION_VARIABLE} is {value!r}; allowed is 0 or 1")
    if value == "1" and (obstacle := find_obstacle()):
        raise SMPConfigurationError(f"{ENCRYPTION_VARIABLE} is 1: {obstacle}")
    return value == "1"


def secured(connection: socket.socket, secret: bytes, *, server: bool, timeout_s: float) -> socket.socket:
    """Return the socket to use in place of a TCP connection.

    Args:
        connection: Owned.
        secret: Of the job.
        server: Whether this side accepted the connection.
        timeout_s: For the handshake of TLS.

    Raises:
        OSError: If the other side does not encrypt, or does not know the secret.
    """
    return enclose(connection, secret, server=server, timeout_s=timeout_s) if encrypts() else connection
