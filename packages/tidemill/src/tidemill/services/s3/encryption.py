"""Server-side encryption and storage classes of objects: recorded and shown. tidemill stores all objects alike."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.kms_keys import KmsKeys
from tidemill.store.objects.errors import InvalidArgument

__all__ = ["STORAGE_MEMBERS", "Encryption", "encryption_of", "storage_class_of"]

_ALGORITHMS = ("AES256", "aws:kms", "aws:kms:dsse")
_DEFAULT_KEY = "alias/aws/s3"
_ENCRYPTION_MEMBERS = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")

STORAGE_MEMBERS = (*_ENCRYPTION_MEMBERS, "StorageClass")
"""Members about storage, which are kept among the headers of an object. A copy does not inherit them."""


class Encryption:
    """Decides what is recorded of requests to encrypt.

    Args:
        keys: The KMS keys, to which those are added that requests name.
        recorded: Whether to record requests to encrypt. Otherwise the gateway refuses them, except for ``aws:kms``
            without a key, of which no reply then claims anything.
    """

    def __init__(self, keys: KmsKeys, *, recorded: bool) -> None:
        self._keys = keys
        self.recorded = recorded

    async def storage_of(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members about storage that a put, a copy or an upload sets, by their names in replies.

        Raises:
            InvalidArgument: The members contradict each other, or the algorithm does not exist.
        """
        members: dict[str, Any] = {}
        if request.get("StorageClass") not in (None, "STANDARD"):
            members["StorageClass"] = request["StorageClass"]
        return members | await self._encryption(request) if self.recorded else members

    async def _encryption(self, request: Mapping[str, Any]) -> dict[str, Any]:
        algorithm, key = request.get("ServerSideEncryption"), request.get("SSEKMSKeyId")
        if algorithm is not None and algorithm not in _ALGORITHMS:
            raise InvalidArgument(f"ServerSideEncryption is {algorithm!r}; allowed are {', '.join(_ALGORITHMS)}")
        if algorithm in (None, "AES256"):
            for name in ("SSEKMSKeyId", "SSEKMSEncryptionContext"):
                if request.get(name):
                    raise InvalidArgument(
                        f"{name} is {request[name]!r}, but ServerSideEncryption is {algorithm!r}; a KMS key needs"
                        " ServerSideEncryption=aws:kms"
                    )
            return {"ServerSideEncryption": algorithm} if algorithm else {}
        members: dict[str, Any] = {
            "ServerSideEncryption": algorithm,
            "SSEKMSKeyId": await self._keys.name(key or _DEFAULT_KEY),
        }
        return members | ({"BucketKeyEnabled": True} if request.get("BucketKeyEnabled") else {})


def encryption_of(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members about encryption among the headers of an object, as writes reply them."""
    return {name: headers[name] for name in _ENCRYPTION_MEMBERS if name in headers}


def storage_class_of(headers: Mapping[str, Any]) -> str:
    """Return the storage class of an object with these headers, as lists show it."""
    shown: str = headers.get("StorageClass", "STANDARD")
    return shown
