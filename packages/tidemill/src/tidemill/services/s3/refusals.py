"""What a request may ask for that this service cannot honour: it is refused, never ignored.

Encryption with a key, access control lists, other storage classes, object locks and versions have no counterpart here.
"""

from collections.abc import Mapping
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError

__all__ = ["Refusals"]

_KEYED = (
    "SSEKMSKeyId",
    "SSEKMSEncryptionContext",
    "SSECustomerAlgorithm",
    "SSECustomerKey",
    "SSECustomerKeyMD5",
    "CopySourceSSECustomerAlgorithm",
    "CopySourceSSECustomerKey",
    "CopySourceSSECustomerKeyMD5",
)
_GRANTS = ("GrantFullControl", "GrantRead", "GrantReadACP", "GrantWrite", "GrantWriteACP")
_LOCKS = ("ObjectLockMode", "ObjectLockRetainUntilDate", "ObjectLockLegalHoldStatus", "ObjectLockEnabledForBucket")
_OTHER = ("WebsiteRedirectLocation", "WriteOffsetBytes")
_PRIVATE_ACLS = ("private", "bucket-owner-full-control")


class Refusals:
    """Refuses what cannot be honoured.

    Args:
        plain_without_key: Accept ``ServerSideEncryption=aws:kms`` without a key id, store the object in plain form
            and say nothing of encryption in the reply. AWS's SDK version 2 sends it with every source archive.
    """

    def __init__(self, *, plain_without_key: bool) -> None:
        self._plain_without_key = plain_without_key

    def check(self, request: Mapping[str, Any]) -> None:
        """Refuse the request if it asks for something that cannot be honoured.

        Raises:
            AwsError: InvalidRequest, AccessControlListNotSupported, InvalidStorageClass, NoSuchVersion, AccessDenied.
        """
        self._check_encryption(request)
        _check_owner(request, "ExpectedBucketOwner")
        _check_owner(request, "ExpectedSourceBucketOwner")
        acl = request.get("ACL")
        grants = [name for name in _GRANTS if request.get(name)]
        if grants or (acl is not None and acl not in _PRIVATE_ACLS):
            raise AwsError(
                f"access control lists are not supported, received {', '.join(grants) or acl!r}; objects belong to the"
                " one account of this service. Leave the argument out",
                code="AccessControlListNotSupported",
                status=400,
            )
        storage_class = request.get("StorageClass")
        if storage_class not in (None, "STANDARD"):
            raise AwsError(
                f"the storage class {storage_class!r} does not exist here; only STANDARD does",
                code="InvalidStorageClass",
                status=400,
            )
        for name in (*_LOCKS, *_OTHER):
            if request.get(name):
                raise _not_supported(f"{name}={request[name]!r}", "leave it out")
        version_id = request.get("VersionId")
        if version_id not in (None, "null"):
            raise AwsError(
                f"there is no version {version_id!r}: buckets here keep one version of each object; leave VersionId out"
                " of the request",
                code="NoSuchVersion",
                status=404,
                members={"VersionId": version_id},
            )

    def _check_encryption(self, request: Mapping[str, Any]) -> None:
        keyed = [name for name in _KEYED if request.get(name)]
        if keyed:
            raise _not_supported(
                f"encryption with a key ({', '.join(keyed)})", "leave it out: objects are stored in plain form"
            )
        wanted = request.get("ServerSideEncryption")
        if wanted is None or (wanted == "aws:kms" and self._plain_without_key):
            return
        raise _not_supported(
            f"ServerSideEncryption={wanted!r}",
            "leave it out (objects are stored in plain form) or keep the state directory on an encrypted disk",
        )


def _check_owner(request: Mapping[str, Any], member: str) -> None:
    owner = request.get(member)
    if owner is not None and owner != ACCOUNT_ID:
        raise AwsError(
            f"{member} is {owner!r}, but all buckets here belong to the account {ACCOUNT_ID}",
            code="AccessDenied",
            status=403,
        )


def _not_supported(what: str, instead: str) -> AwsError:
    return AwsError(f"{what} cannot be honoured by this service; {instead}", code="InvalidRequest", status=400)
