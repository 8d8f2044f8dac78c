"""Rows of S3. Most members mean the same in every operation; these are listed once, in `COMMON`."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows, Unencrypted, honored, same

_WITH_CUSTOMER_KEY = Refused(
    "objects are stored in plain form, and no key of a client is kept; leave it out, or keep the state directory on an"
    " encrypted disk"
)
_CLASSES = (
    *("STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "REDUCED_REDUNDANCY"),
    *("GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"),
)
_GRANT = Refused(
    "access control lists are not supported: objects belong to the one account of this service; leave it out",
    code="AccessControlListNotSupported",
)
_LOCK = Refused("objects cannot be locked; leave it out")
_DIRECTORY_BUCKET = Refused("it belongs to directory buckets, which are not supported; leave it out")
_ONE_VERSION = "there are no versions: buckets here keep one version of each object; leave it out"
_CHECKSUMS = ("CRC32", "CRC32C", "CRC64NVME", "MD5", "SHA1", "SHA256", "SHA512", "XXHASH128", "XXHASH3", "XXHASH64")
_NO_COST = Recorded("requests cost nothing")


COMMON: Rows = {
    **honored("Bucket", "Key", "Body", "Prefix", "Delimiter", "EncodingType", "ContinuationToken", "MaxKeys"),
    **honored("UploadId", "PartNumber", "Range", "CopySource", "ContentLength", "ContentMD5"),
    **honored("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires"),
    **honored("ResponseCacheControl", "ResponseContentDisposition", "ResponseContentEncoding"),
    **honored("ResponseContentLanguage", "ResponseContentType", "ResponseExpires"),
    **honored("IfMatch", "IfModifiedSince", "IfUnmodifiedSince"),
    **honored("CopySourceIfMatch", "CopySourceIfModifiedSince"),
    **honored("CopySourceIfNoneMatch", "CopySourceIfUnmodifiedSince"),
    "IfNoneMatch": Honored("of a write, only `*`"),
    "Metadata": Honored("at most 2,048 bytes"),
    "Tagging": Honored("at most ten tags"),
    "ChecksumAlgorithm": Honored("a checksum must come with the body"),
    **honored("ChecksumType", "ChecksumMode"),
    **{f"Checksum{name}": Honored("verified") for name in _CHECKSUMS},
    "ExpectedBucketOwner": Honored("another account than this service's is AccessDenied"),
    "ExpectedSourceBucketOwner": Honored("another account than this service's is AccessDenied"),
    "RequestPayer": _NO_COST,
    "ServerSideEncryption": Unencrypted(
        "replies repeat it, but tidemill encrypts nothing; refused if the setting `encryption` is `refuse`, except for"
        " `aws:kms` without a key, which SDK v2 sends with every source archive",
        harmless=("aws:kms",),
    ),
    "SSEKMSKeyId": Unencrypted(names_key=True),
    "SSEKMSEncryptionContext": Unencrypted(),
    "BucketKeyEnabled": Unencrypted(),
    **same(_WITH_CUSTOMER_KEY, "SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5"),
    **same(_WITH_CUSTOMER_KEY, "CopySourceSSECustomerAlgorithm", "CopySourceSSECustomerKey"),
    **same(_WITH_CUSTOMER_KEY, "CopySourceSSECustomerKeyMD5"),
    "ACL": Refused(
        _GRANT.reason, harmless=("private", "bucket-owner-full-control"), code="AccessControlListNotSupported"
    ),
    **same(_GRANT, "GrantFullControl", "GrantRead", "GrantReadACP", "GrantWriteACP"),
    "StorageClass": Refused(
        "it belongs to other kinds of buckets; leave it out",
        harmless=_CLASSES,
        note="recorded and shown; objects of every class are stored alike, and can be read at once",
        code="InvalidStorageClass",
    ),
    "WebsiteRedirectLocation": Refused("buckets here are no web sites; leave it out"),
    "ObjectLockMode": _LOCK,
    "ObjectLockRetainUntilDate": _LOCK,
    "ObjectLockLegalHoldStatus": Refused(_LOCK.reason, harmless=("OFF",)),
    "ObjectLockEventHold": Refused(_LOCK.reason, harmless=("OFF",)),
    "ObjectLockEventHoldDurationDays": _LOCK,
    "ObjectLockEventHoldDurationYears": _LOCK,
    "BypassGovernanceRetention": Recorded("no object is locked"),
    "MFA": Recorded("no bucket asks for it"),
    "OptionalObjectAttributes": Recorded("no object is archived, so none has a RestoreStatus"),
    "VersionId": Refused(_ONE_VERSION, harmless=("null",), code="NoSuchVersion"),
}
"""Rows for members in every operation that has no row of its own for the member."""

_PARTS = "MultipartUpload.Parts"
_RULES = "ServerSideEncryptionConfiguration.Rules"

OPERATIONS: Mapping[str, Rows] = {
    "CreateBucket": {
        "GrantWrite": _GRANT,
        "CreateBucketConfiguration": Honored(),
        "CreateBucketConfiguration.LocationConstraint": Honored("only the service's region, or none"),
        "CreateBucketConfiguration.Location": _DIRECTORY_BUCKET,
        "CreateBucketConfiguration.Bucket": _DIRECTORY_BUCKET,
        "CreateBucketConfiguration.Tags": Refused("buckets have no tags; leave them out"),
        "ObjectLockEnabledForBucket": _LOCK,
        "ObjectOwnership": Refused(
            "there is one account, which owns every object; leave it out", harmless=("BucketOwnerEnforced",)
        ),
        "BucketNamespace": Refused(
            "there is one account, and one namespace of buckets; leave it out", harmless=("global",)
        ),
    },
    "DeleteBucket": {},
    "GetBucketLocation": {},
    "HeadBucket": {},
    "DeleteBucketEncryption": {},
    "DeleteBucketPolicy": {},
    "PutBucketEncryption": {
        "ServerSideEncryptionConfiguration": Honored(),
        _RULES: Honored("exactly one; GetBucketEncryption shows it"),
        f"{_RULES}[].ApplyServerSideEncryptionByDefault": Honored(
            "objects that are stored without a request to encrypt show it, also results of training and transform jobs"
        ),
        f"{_RULES}[].ApplyServerSideEncryptionByDefault.SSEAlgorithm": Unencrypted(
            "`AES256`, `aws:kms` and `aws:kms:dsse`; tidemill encrypts nothing; refused if the setting `encryption` is"
            " `refuse`"
        ),
        f"{_RULES}[].ApplyServerSideEncryptionByDefault.KMSMasterKeyID": Unencrypted(),
        f"{_RULES}[].BucketKeyEnabled": Unencrypted(),
        f"{_RULES}[].BlockedEncryptionTypes": Refused(
            "no type of encryption can be blocked; leave it out, or deny it by a bucket policy"
        ),
        "ContentMD5": Honored(),
    },
    "PutBucketPolicy": {
        "Policy": Honored(
            "`Principal`, and with Deny `NotPrincipal`: everyone, this account, its roles, users and sessions."
            " `Condition`: the operators and keys of `how-to/limit-what-a-job-may-do.md`. Anything else is"
            " MalformedPolicy. Deny holds for every caller; Allow adds rights to the named roles and sessions, and"
            " for everyone it is refused as a public policy. Conditions on encryption are checked when a multipart"
            " upload begins. What the service reads and stores for jobs is not subject to policies"
        ),
        "ConfirmRemoveSelfBucketAccess": Recorded("owner and users can always read, replace and delete the policy"),
    },
    # Other settings of buckets cannot be changed: a bucket answers as a new one on AWS.
    "GetBucketAccelerateConfiguration": {},
    "GetBucketAcl": {},
    "GetBucketCors": {},
    "GetBucketEncryption": {},
    "GetBucketLifecycleConfiguration": {},
    "GetBucketLogging": {},
    "GetBucketNotificationConfiguration": {},
    "GetBucketOwnershipControls": {},
    "GetBucketPolicy": {},
    "GetBucketPolicyStatus": {},
    "GetBucketReplication": {},
    "GetBucketRequestPayment": {},
    "GetBucketTagging": {},
    "GetBucketVersioning": {},
    "GetBucketWebsite": {},
    "GetObjectLockConfiguration": {},
    "GetPublicAccessBlock": {},
    "ListBuckets": honored("MaxBuckets", "BucketRegion"),
    "CopyObject": {
        **honored("MetadataDirective", "TaggingDirective"),
        "ChecksumAlgorithm": Honored("the copy gets this checksum"),
        "AnnotationDirective": Recorded("objects have no annotations"),
    },
    "ListObjectVersions": {
        **honored("KeyMarker"),
        "VersionIdMarker": Honored("only with KeyMarker; the one version of an object is `null`"),
    },
    "ListObjects": honored("Marker"),
    "ListObjectsV2": honored("FetchOwner", "StartAfter"),
    "AbortMultipartUpload": {"IfMatchInitiatedTime": _DIRECTORY_BUCKET},
    "CompleteMultipartUpload": {
        **honored("MultipartUpload", _PARTS, f"{_PARTS}[].ETag", f"{_PARTS}[].PartNumber", "MpuObjectSize"),
        **honored(*(f"{_PARTS}[].Checksum{name}" for name in _CHECKSUMS)),
    },
    "CreateMultipartUpload": {"ChecksumAlgorithm": Honored("every part must carry this checksum")},
    "ListMultipartUploads": honored("KeyMarker", "MaxUploads", "UploadIdMarker"),
    "ListParts": honored("MaxParts", "PartNumberMarker"),
    "UploadPart": {},
    "UploadPartCopy": honored("CopySourceRange"),
    "GetObject": {},
    "GetObjectAcl": {},
    "GetObjectAttributes": {
        "ObjectAttributes": Honored("parts are shown with their sizes, without their checksums"),
        **honored("MaxParts", "PartNumberMarker"),
    },
    "HeadObject": {},
    "DeleteObject": {"IfMatchLastModifiedTime": _DIRECTORY_BUCKET, "IfMatchSize": _DIRECTORY_BUCKET},
    "DeleteObjectTagging": {},
    "DeleteObjects": {
        **honored("Delete", "Delete.Objects", "Delete.Objects[].Key", "Delete.Objects[].ETag", "Delete.Quiet"),
        "Delete.Objects[].VersionId": Honored("`null`; another one is the NoSuchVersion error of its entry"),
        "Delete.Objects[].LastModifiedTime": _DIRECTORY_BUCKET,
        "Delete.Objects[].Size": _DIRECTORY_BUCKET,
    },
    "GetObjectTagging": {},
    "PutObject": {"WriteOffsetBytes": _DIRECTORY_BUCKET},
    "PutObjectTagging": honored("Tagging.TagSet", "Tagging.TagSet[].Key", "Tagging.TagSet[].Value"),
}
