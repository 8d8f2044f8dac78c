"""The settings of buckets, which nobody can change: every bucket answers as a new one does on AWS."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.services.s3.attributes import OWNER
from tidemill.services.s3.encryption import Encryption
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context, Handler

__all__ = ["BucketSettings"]

_ACL = {
    "Owner": OWNER,
    "Grants": [{"Grantee": {"Type": "CanonicalUser", "ID": ACCOUNT_ID}, "Permission": "FULL_CONTROL"}],
}
_BLOCKS = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")

_ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "GetBucketAccelerateConfiguration": {},
    "GetBucketAcl": _ACL,
    "GetBucketLogging": {},
    "GetBucketNotificationConfiguration": {},
    "GetBucketOwnershipControls": {"OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}},
    "GetBucketRequestPayment": {"Payer": "BucketOwner"},
    "GetBucketVersioning": {},
    "GetPublicAccessBlock": {"PublicAccessBlockConfiguration": dict.fromkeys(_BLOCKS, True)},
}
"""Replies by operation."""

_ABSENT: Mapping[str, tuple[str, str]] = {
    "GetBucketCors": ("NoSuchCORSConfiguration", "The CORS configuration does not exist"),
    "GetBucketEncryption": (
        "ServerSideEncryptionConfigurationNotFoundError",
        "The server side encryption configuration was not found",
    ),
    "GetBucketLifecycleConfiguration": (
        "NoSuchLifecycleConfiguration",
        "The lifecycle configuration does not exist",
    ),
    "GetBucketPolicy": ("NoSuchBucketPolicy", "The bucket policy does not exist"),
    "GetBucketPolicyStatus": ("NoSuchBucketPolicy", "The bucket policy does not exist"),
    "GetBucketReplication": (
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found",
    ),
    "GetBucketTagging": ("NoSuchTagSet", "The TagSet does not exist"),
    "GetBucketWebsite": (
        "NoSuchWebsiteConfiguration",
        "The specified bucket does not have a website configuration",
    ),
    "GetObjectLockConfiguration": (
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket",
    ),
}
"""Error codes and AWS's messages by operation, for settings that a new bucket lacks."""


class BucketSettings:
    """The operations that read settings of a bucket, and GetObjectAcl.

    Args:
        objects: Used to check that the bucket or the object exists.
        encryption: Whether a rule for encryption is shown.
    """

    def __init__(self, objects: ObjectStore, encryption: Encryption) -> None:
        self._objects = objects
        self._encryption = encryption

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Handlers by operation."""
        return {
            **{name: partial(self._answer, name) for name in _ANSWERS},
            **{name: partial(self._refuse, name) for name in _ABSENT},
            "GetBucketEncryption": self.encryption,
            "GetObjectAcl": self.object_acl,
        }

    async def encryption(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetBucketEncryption. AWS encrypts every object of such a bucket; here the rule is only shown, if at all."""
        if not self._encryption.recorded:
            return await self._refuse("GetBucketEncryption", request, context)
        self._objects.require_bucket(request["Bucket"])
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}
        return {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}

    async def object_acl(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetObjectAcl."""
        self._objects.require(request["Bucket"], request["Key"])
        return _ACL

    async def _answer(self, operation: str, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._objects.require_bucket(request["Bucket"])
        return _ANSWERS[operation]

    async def _refuse(self, operation: str, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._objects.require_bucket(request["Bucket"])
        code, message = _ABSENT[operation]
        raise AwsError(message, code=code, status=404, members={"BucketName": request["Bucket"]})
