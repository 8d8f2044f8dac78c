"""Server-side encryption and storage classes of objects: recorded and shown. tidemill stores all objects alike."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.bucket_rules import DEFAULT_KEY, BucketRules, DefaultEncryption
from tidemill.control.kms_keys import KmsKeys
from tidemill.errors import AwsError
from tidemill.store.objects.errors import InvalidArgument

__all__ = ["STORAGE_MEMBERS", "Encryption", "encryption_of", "storage_class_of"]

_ALGORITHMS = ("AES256", "aws:kms", "aws:kms:dsse")
_ENCRYPTION_MEMBERS = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")

STORAGE_MEMBERS = (*_ENCRYPTION_MEMBERS, "StorageClass")
"""Members about storage, which are kept among the headers of an object. A copy does not inherit them."""


class Encryption:
    """Decides what is recorded of requests to encrypt.

    Args:
        keys: The KMS keys, to which those are added that requests name.
        rules: The default encryption of buckets.
        recorded: Whether to record requests to encrypt. Otherwise the gateway refuses them, except for ``aws:kms``
            without a key, of which no reply then claims anything.
    """

    def __init__(self, keys: KmsKeys, rules: BucketRules, *, recorded: bool) -> None:
        self._keys = keys
        self._rules = rules
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
            if algorithm:
                return {"ServerSideEncryption": algorithm}
            default = self._rules.encryption_of(request["Bucket"])
            return await self._members(default) if default else {}
        bucket_key = bool(request.get("BucketKeyEnabled"))
        return await self._members(DefaultEncryption(algorithm=algorithm, key=key or "", bucket_key=bucket_key))

    async def _members(self, wanted: DefaultEncryption) -> dict[str, Any]:
        members: dict[str, Any] = {"ServerSideEncryption": wanted.algorithm}
        if wanted.algorithm != "AES256":
            members["SSEKMSKeyId"] = await self._keys.use(wanted.key or DEFAULT_KEY)
            members |= {"BucketKeyEnabled": True} if wanted.bucket_key else {}
        return members

    def default_of(self, request: Mapping[str, Any]) -> DefaultEncryption:
        """Return the default encryption that PutBucketEncryption sets.

        Raises:
            AwsError: MalformedXML, InvalidArgument.
        """
        rules = request["ServerSideEncryptionConfiguration"].get("Rules") or []
        wanted = rules[0].get("ApplyServerSideEncryptionByDefault") if len(rules) == 1 else None
        if not wanted or wanted.get("SSEAlgorithm") not in _ALGORITHMS:
            raise AwsError(
                f"Rules is {rules!r}; expected one rule with ApplyServerSideEncryptionByDefault, whose SSEAlgorithm is"
                f" one of {', '.join(_ALGORITHMS)}",
                code="MalformedXML",
            )
        algorithm, key = wanted["SSEAlgorithm"], wanted.get("KMSMasterKeyID") or ""
        if key and algorithm == "AES256":
            raise InvalidArgument(f"KMSMasterKeyID is {key!r}, but SSEAlgorithm is 'AES256'; a KMS key needs aws:kms")
        return DefaultEncryption(algorithm=algorithm, key=key, bucket_key=bool(rules[0].get("BucketKeyEnabled")))


def encryption_of(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members about encryption among the headers of an object, as writes reply them.

    Args:
        headers: Headers kept with the object.
    """
    return {name: headers[name] for name in _ENCRYPTION_MEMBERS if name in headers}


def storage_class_of(headers: Mapping[str, Any]) -> str:
    """Return the storage class of an object with these headers, as lists show it.

    Args:
        headers: Headers kept with the object.

    Returns:
        ``STANDARD`` by default.
    """
    shown: str = headers.get("StorageClass", "STANDARD")
    return shown
