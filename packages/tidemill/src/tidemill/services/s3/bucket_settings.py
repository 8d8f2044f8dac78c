"""The settings of buckets. Only default encryption and policy can be changed: the others are those of a new bucket."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidemill.control.bucket_rules import BucketRules, DefaultEncryption
from tidemill.core.bucket_policy import read_bucket_policy
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.policy_document import load_document
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.s3.attributes import OWNER
from tidemill.services.s3.intention import Encryption
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context, Handler, Reply

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


class BucketSettings(Operations):
    """The operations on settings of a bucket, and GetObjectAcl.

    Args:
        objects: Used to check that the bucket or the object exists.
        rules: Default encryption and policies of buckets.
        encryption: Whether a rule for encryption is shown.
    """

    def __init__(self, objects: ObjectStore, rules: BucketRules, encryption: Encryption) -> None:
        self._objects = objects
        self._rules = rules
        self._encryption = encryption

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Handlers by operation."""
        return {
            **{name: partial(self._answer, name) for name in _ANSWERS},
            **{name: partial(self._refuse, name) for name in _ABSENT},
            **super().handlers,
        }

    async def get_bucket_encryption(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetBucketEncryption. Rules are only shown, if at all; the default is that of a new bucket on AWS."""
        if not self._encryption.recorded:
            return await self._refuse("GetBucketEncryption", request, context)
        self._objects.require_bucket(request["Bucket"])
        default = self._rules.encryption_of(request["Bucket"]) or DefaultEncryption(algorithm="AES256")
        shown = {"SSEAlgorithm": default.algorithm} | ({"KMSMasterKeyID": default.key} if default.key else {})
        rule = {"ApplyServerSideEncryptionByDefault": shown, "BucketKeyEnabled": default.bucket_key}
        return {"ServerSideEncryptionConfiguration": {"Rules": [rule]}}

    async def put_bucket_encryption(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """PutBucketEncryption: objects that are stored later without an encryption show this one."""
        await self._rules.set_encryption(request["Bucket"], self._encryption.default_of(request))
        return {}

    async def delete_bucket_encryption(self, request: dict[str, Any], context: Context) -> Reply:
        """DeleteBucketEncryption."""
        await self._rules.set_encryption(request["Bucket"], None)
        return Reply(status=204)

    async def get_bucket_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetBucketPolicy: the text as the client gave it."""
        text = self._rules.policy_text(request["Bucket"])
        return {"Policy": text} if text else await self._refuse("GetBucketPolicy", request, context)

    async def get_bucket_policy_status(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetBucketPolicyStatus: no accepted policy is public."""
        if not self._rules.policy_text(request["Bucket"]):
            return await self._refuse("GetBucketPolicyStatus", request, context)
        return {"PolicyStatus": {"IsPublic": False}}

    async def put_bucket_policy(self, request: dict[str, Any], context: Context) -> Reply:
        """PutBucketPolicy. The authorization of requests evaluates it."""
        bucket, text = request["Bucket"], request["Policy"]
        self._objects.require_bucket(bucket)
        try:
            load_document(text)
            policy = read_bucket_policy(text, bucket=bucket)
        except ValueError as error:
            raise AwsError(f"The policy cannot be used: {error}", code="MalformedPolicy") from error
        if policy.is_public:
            raise AwsError(
                "a statement allows something to everyone, and the public access block of every bucket blocks public"
                " policies (BlockPublicPolicy); name roles or users as Principal, or use Deny",
                code="AccessDenied",
            )
        await self._rules.set_policy(bucket, text)
        return Reply(status=204)

    async def delete_bucket_policy(self, request: dict[str, Any], context: Context) -> Reply:
        """DeleteBucketPolicy."""
        await self._rules.set_policy(request["Bucket"], "")
        return Reply(status=204)

    async def get_object_acl(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._objects.require(request["Bucket"], request["Key"])
        return _ACL

    async def _answer(self, operation: str, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._objects.require_bucket(request["Bucket"])
        return _ANSWERS[operation]

    async def _refuse(self, operation: str, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._objects.require_bucket(request["Bucket"])
        code, message = _ABSENT[operation]
        raise AwsError(message, code=code, status=404, members={"BucketName": request["Bucket"]})
