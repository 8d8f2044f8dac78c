"""S3's additional checksums under the names of its model, and checksums of multipart objects.

The wire verifies the checksums of request bodies. This module has the checksums that the service computes itself: for
copies, and for objects made from parts.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import MEMBERS, Checksum, new_checksum


def member_of(algorithm: str) -> str:
    """Return the member with checksums of an algorithm, e.g. ``ChecksumCRC32`` for ``CRC32``.

    Args:
        algorithm: One of ``CRC32``, ``CRC32C``, ``CRC64NVME``, ``SHA1``, ``SHA256``.
    """
    return f"Checksum{algorithm}"


def check_algorithm(algorithm: str) -> None:
    """Refuse an unknown algorithm.

    Raises:
        AwsError: InvalidRequest.
    """
    if member_of(algorithm) not in MEMBERS.values():
        known = ", ".join(member.removeprefix("Checksum") for member in MEMBERS.values())
        raise AwsError(f"there is no checksum algorithm {algorithm!r}; use one of {known}", code="InvalidRequest")


def begin(algorithm: str) -> Checksum:
    """Begin a checksum.

    Raises:
        AwsError: InvalidRequest, for an unknown algorithm.
    """
    check_algorithm(algorithm)
    return new_checksum(algorithm.lower())


def checksum_members(members: Mapping[str, Any]) -> dict[str, str]:
    """Return the base64 checksums among ``members``, by member name.

    Args:
        members: Members of a request or object.
    """
    return {name: str(members[name]) for name in MEMBERS.values() if members.get(name) is not None}


def base64_of(checksum: Checksum) -> str:
    """Return the value of a checksum in the form of the wire.

    Args:
        checksum: The checksum; more bytes may follow.
    """
    return base64.b64encode(checksum.digest()).decode()


def composite(algorithm: str, values: Iterable[str]) -> str:
    """Return the checksum of the parts' checksums, in S3's form with the number of parts.

    Args:
        values: Base64 checksums of the parts, in order.
    """
    digests = [base64.b64decode(value) for value in values]
    checksum = begin(algorithm)
    checksum.update(b"".join(digests))
    return f"{base64_of(checksum)}-{len(digests)}"
