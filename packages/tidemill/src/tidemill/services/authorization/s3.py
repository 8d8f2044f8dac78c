"""Permissions that S3's operations need."""

from collections.abc import Mapping

from tidemill.core.names import ACCOUNT_ID
from tidemill.core.policy import Permission
from tidemill.errors import AwsError
from tidemill.services.authorization.rule import Members, Rule
from tidemill.services.s3.copying import source_name

OWNER_MEMBERS = frozenset(("ExpectedBucketOwner", "ExpectedSourceBucketOwner"))


def check_owners(request: Members) -> None:
    """Refuse a request that expects another account as owner of its bucket, or of a copy's source bucket.

    Raises:
        AwsError: AccessDenied.
    """
    for member in OWNER_MEMBERS:
        owner = request.get(member)
        if owner is not None and owner != ACCOUNT_ID:
            raise AwsError(
                f"{member} is {owner!r}, but all buckets here belong to the account {ACCOUNT_ID}", code="AccessDenied"
            )


def _bucket(name: str) -> str:
    # A slash in the name would turn the ARN of a bucket into that of another bucket's object.
    return f"arn:aws:s3:::{name.replace('/', '%2F')}"


def _object(request: Members) -> str:
    return f"{_bucket(request['Bucket'])}/{request['Key']}"


def _on_bucket(action: str) -> Rule:
    return lambda request, region: (Permission(action, _bucket(request["Bucket"])),)


def _on_object(action: str) -> Rule:
    return lambda request, region: (Permission(action, _object(request)),)


def _versioned(before: str, after: str = "") -> Rule:
    """Insert ``Version`` into the action if the request has a VersionId, as IAM names these actions."""

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        version = "Version" if request.get("VersionId") else ""
        return (Permission(f"s3:{before}{version}{after}", _object(request)),)

    return rule


def _write(request: Members, region: str) -> tuple[Permission, ...]:
    return Permission("s3:PutObject", _object(request)), *_write_besides(request), *_compared(request)


def _write_besides(request: Members) -> tuple[Permission, ...]:
    """Permissions for tags and access control lists that a write sets."""
    target = _object(request)
    tags = (Permission("s3:PutObjectTagging", target),) if request.get("Tagging") else ()
    acl = (Permission("s3:PutObjectAcl", target),) if request.get("ACL") else ()
    return tags + acl


def _compared(request: Members) -> tuple[Permission, ...]:
    """A condition on an ETag discloses the current ETag, so it needs read permission."""
    compares = request.get("IfMatch") not in (None, "*")
    return (Permission("s3:GetObject", _object(request)),) if compares else ()


def _read_source(request: Members) -> Permission:
    bucket, key, version = source_name(request["CopySource"])
    return Permission("s3:GetObjectVersion" if version else "s3:GetObject", _object({"Bucket": bucket, "Key": key}))


def _copy(request: Members, region: str) -> tuple[Permission, ...]:
    source = _read_source(request)
    needs = (source, *_write(request, region))
    if request.get("TaggingDirective") == "REPLACE":
        return needs
    # The copy gets the tags of its source, if there are any.
    version = "Version" if source.action == "s3:GetObjectVersion" else ""
    return (
        *needs,
        Permission(f"s3:GetObject{version}Tagging", source.resource),
        Permission("s3:PutObjectTagging", _object(request)),
    )


def _copy_part(request: Members, region: str) -> tuple[Permission, ...]:
    return _read_source(request), Permission("s3:PutObject", _object(request))


def _delete(request: Members, region: str) -> tuple[Permission, ...]:
    return _versioned("DeleteObject")(request, region) + _compared(request)


def delete_entry(bucket: str, entry: Members) -> tuple[Permission, ...]:
    """Return the permissions that one entry of DeleteObjects needs.

    Args:
        bucket: Name of the bucket.
        entry: Members of the entry.
    """
    request = {"Bucket": bucket, "Key": entry["Key"], "VersionId": entry.get("VersionId"), "IfMatch": entry.get("ETag")}
    return _delete(request, "")


def _delete_many(request: Members, region: str) -> tuple[Permission, ...]:
    entries = (request.get("Delete") or {}).get("Objects") or []
    return tuple(need for entry in entries for need in delete_entry(request["Bucket"], entry))


def _attributes(request: Members, region: str) -> tuple[Permission, ...]:
    return _versioned("GetObject")(request, region) + _versioned("GetObject", "Attributes")(request, region)


# The names of some actions differ from those of their operations.
_SETTINGS = {
    "GetBucketAccelerateConfiguration": "GetAccelerateConfiguration",
    "GetBucketAcl": "GetBucketAcl",
    "GetBucketCors": "GetBucketCORS",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketLogging": "GetBucketLogging",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "GetBucketOwnershipControls": "GetBucketOwnershipControls",
    "GetBucketPolicy": "GetBucketPolicy",
    "GetBucketPolicyStatus": "GetBucketPolicyStatus",
    "GetBucketReplication": "GetReplicationConfiguration",
    "GetBucketRequestPayment": "GetBucketRequestPayment",
    "GetBucketTagging": "GetBucketTagging",
    "GetBucketVersioning": "GetBucketVersioning",
    "GetBucketWebsite": "GetBucketWebsite",
    "GetObjectLockConfiguration": "GetBucketObjectLockConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
}

S3: Mapping[str, Rule] = {
    **{operation: _on_bucket(f"s3:{action}") for operation, action in _SETTINGS.items()},
    "AbortMultipartUpload": _on_object("s3:AbortMultipartUpload"),
    "CompleteMultipartUpload": _write,
    "CopyObject": _copy,
    "CreateBucket": _on_bucket("s3:CreateBucket"),
    "CreateMultipartUpload": _write,
    "DeleteBucket": _on_bucket("s3:DeleteBucket"),
    "DeleteBucketEncryption": _on_bucket("s3:PutEncryptionConfiguration"),
    "DeleteBucketPolicy": _on_bucket("s3:DeleteBucketPolicy"),
    "DeleteObject": _delete,
    "DeleteObjectTagging": _versioned("DeleteObject", "Tagging"),
    "DeleteObjects": _delete_many,
    "GetBucketLocation": _on_bucket("s3:GetBucketLocation"),
    "GetObject": _versioned("GetObject"),
    "GetObjectAcl": _versioned("GetObject", "Acl"),
    "GetObjectAttributes": _attributes,
    "GetObjectTagging": _versioned("GetObject", "Tagging"),
    "HeadBucket": _on_bucket("s3:ListBucket"),
    "HeadObject": _versioned("GetObject"),
    "ListBuckets": lambda request, region: (Permission("s3:ListAllMyBuckets", "arn:aws:s3:::*"),),
    "ListMultipartUploads": _on_bucket("s3:ListBucketMultipartUploads"),
    "ListObjects": _on_bucket("s3:ListBucket"),
    "ListObjectsV2": _on_bucket("s3:ListBucket"),
    "ListObjectVersions": _on_bucket("s3:ListBucketVersions"),
    "ListParts": _on_object("s3:ListMultipartUploadParts"),
    "PutBucketEncryption": _on_bucket("s3:PutEncryptionConfiguration"),
    "PutBucketPolicy": _on_bucket("s3:PutBucketPolicy"),
    "PutObject": _write,
    "PutObjectTagging": _versioned("PutObject", "Tagging"),
    "UploadPart": _on_object("s3:PutObject"),
    "UploadPartCopy": _copy_part,
}
"""By operation. HeadObject and the operations on parts of an upload have no actions of their own in IAM."""
