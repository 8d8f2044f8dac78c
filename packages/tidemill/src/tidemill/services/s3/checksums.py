"""S3's additional checksums as its model names them, and the joining of those of parts.

The wire verifies the checksums of request bodies. Here are those that the service itself computes: for copies, and for
objects made from parts.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.errors import AwsError
from tidemill.wire.bodies import checksums
from tidemill.wire.bodies.checksums import MEMBERS, Checksum

__all__ = ["base64_of", "begin", "check_algorithm", "checksum_members", "composite", "member_of"]


def member_of(algorithm: str) -> str:
    """The member that carries checksums of an algorithm, e.g. ``ChecksumCRC32`` of ``CRC32``."""
    return f"Checksum{algorithm}"


def check_algorithm(algorithm: str) -> None:
    """Refuse an algorithm that is not known.

    Raises:
        AwsError: InvalidRequest.
    """
    if member_of(algorithm) not in MEMBERS.values():
        known = ", ".join(member.removeprefix("Checksum") for member in MEMBERS.values())
        raise AwsError(
            f"there is no checksum algorithm {algorithm!r}; use one of {known}", code="InvalidRequest", status=400
        )


def begin(algorithm: str) -> Checksum:
    """Begin a checksum.

    Raises:
        AwsError: InvalidRequest, for an unknown algorithm.
    """
    check_algorithm(algorithm)
    return checksums.new_checksum(algorithm.lower())


def checksum_members(members: Mapping[str, Any]) -> dict[str, str]:
    """The base64 checksums among ``members``, by member name."""
    return {name: str(members[name]) for name in MEMBERS.values() if members.get(name) is not None}


def base64_of(checksum: Checksum) -> str:
    """The value of a checksum as the wire has it."""
    return base64.b64encode(checksum.digest()).decode()


def composite(algorithm: str, values: Iterable[str]) -> str:
    """The checksum of the checksums of parts, in S3's form with the number of parts.

    Args:
        algorithm: Of all parts.
        values: Base64 checksums of the parts, in order.
    """
    digests = [base64.b64decode(value) for value in values]
    checksum = begin(algorithm)
    checksum.update(b"".join(digests))
    return f"{base64_of(checksum)}-{len(digests)}"
