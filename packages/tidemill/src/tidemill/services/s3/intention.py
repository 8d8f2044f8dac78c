"""What a request that writes an object asks for: attributes, encryption, tags, conditions, and who publishes it.

Encryption and storage classes are recorded and shown; tidemill stores all objects alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from tidemill.control.bucket_rules import DEFAULT_KEY, BucketRules, DefaultEncryption
from tidemill.control.kms_keys import KmsKeys
from tidemill.errors import AwsError
from tidemill.services.s3.conditions import failed, matches
from tidemill.store.objects.errors import InvalidArgument, no_such_key
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo, Precondition, check_key
from tidemill.store.objects.store import ObjectStore
from tidemill.store.objects.upload_index import UploadInfo
from tidemill.wire.exchange import Context

METADATA_MAX_BYTES = 2048
TAGS_MAX = 10
TAG_KEY_MAX = 128
TAG_VALUE_MAX = 256
DEFAULT_CONTENT_TYPE = "binary/octet-stream"

_KEPT_HEADERS = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "Expires")
_ALGORITHMS = ("AES256", "aws:kms", "aws:kms:dsse")
_ENCRYPTION_MEMBERS = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")

STORAGE_MEMBERS = (*_ENCRYPTION_MEMBERS, "StorageClass")
"""Members about storage, which are kept among the headers of an object. A copy does not inherit them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intention:
    """What a put or a new upload asks for.

    Attributes:
        attributes: The attributes of the object, without checksums.
        precondition: What must hold when the object is stored; None for most requests.
        publisher: The job that publishes the object; empty if none does.
    """

    attributes: ObjectAttributes
    precondition: Precondition | None
    publisher: str


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
            NoSuchBucket: There is no such bucket.
            InvalidArgument: The members contradict each other, or the algorithm does not exist.
        """
        self._rules.require_bucket(request["Bucket"])
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


async def intention_of(
    request: Mapping[str, Any], context: Context, encryption: Encryption, objects: ObjectStore
) -> Intention:
    """Return what a put or a new upload asks for, checked as far as that needs no byte of the object.

    Args:
        encryption: Decides about the members on storage.
        objects: Has the object that would be replaced.

    Raises:
        NoSuchBucket: There is no such bucket.
        InvalidArgument: The key cannot be a key, or members contradict each other.
        AwsError: A condition does not hold, or an attribute is not allowed.
    """
    bucket, key = request["Bucket"], request["Key"]
    check_key(key)
    attributes = attributes_of(request, context.headers, await encryption.storage_of(request))
    precondition = keeping_published(context, "s3:PutObject", bucket, key, then=write_precondition(request))
    if precondition is not None:
        precondition(objects.head(bucket, key))
    return Intention(attributes=attributes, precondition=precondition, publisher=publisher_of(context, bucket, key))


def attributes_of(
    request: Mapping[str, Any], headers: Mapping[str, str], storage: Mapping[str, Any]
) -> ObjectAttributes:
    """Return the object attributes that a put, copy or upload request sets, without checksums.

    Args:
        headers: Request headers; ``Expires`` is kept as the client wrote it.
        storage: Result of `Encryption.storage_of`.

    Raises:
        AwsError: MetadataTooLarge, InvalidTag.
    """
    metadata = {name.lower(): value for name, value in (request.get("Metadata") or {}).items()}
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items())
    if size_bytes > METADATA_MAX_BYTES:
        raise AwsError(
            f"the user metadata has {size_bytes} bytes; names and values together may have {METADATA_MAX_BYTES}",
            code="MetadataTooLarge",
            members={"Size": size_bytes, "MaxSizeAllowed": METADATA_MAX_BYTES},
        )
    kept = {name: str(request[name]) for name in _KEPT_HEADERS if request.get(name)}
    if "Expires" in kept and "expires" in headers:
        kept["Expires"] = headers["expires"]
    kept["ContentEncoding"] = _without_chunking(kept.get("ContentEncoding", ""))
    return ObjectAttributes(
        content_type=request.get("ContentType") or DEFAULT_CONTENT_TYPE,
        metadata=metadata,
        headers={**{name: value for name, value in kept.items() if value}, **storage},
        tags=tags_of_header(request.get("Tagging")),
    )


def write_precondition(request: Mapping[str, Any]) -> Precondition | None:
    """Return the precondition of a put, or None if the request has no conditions.

    Raises:
        InvalidArgument: ``IfNoneMatch`` is not ``*``.
    """
    if_match, if_none_match = request.get("IfMatch"), request.get("IfNoneMatch")
    if if_none_match is not None and if_none_match.strip() != "*":
        raise InvalidArgument(f"If-None-Match of a write is {if_none_match!r}; only '*' is allowed")
    if if_match is None and if_none_match is None:
        return None

    def check(present: ObjectInfo | None) -> None:
        if if_none_match is not None and present is not None:
            raise failed("IfNoneMatch", if_none_match, present)
        if if_match is not None:
            if present is None:
                raise no_such_key(request["Bucket"], request["Key"])
            if not matches(if_match, present.etag):
                raise failed("IfMatch", if_match, present)

    return check


def delete_precondition(if_match: str | None) -> Precondition | None:
    """Return the precondition of a delete, or None without one. A missing key satisfies it.

    Args:
        if_match: ETag of the request, or None.

    Returns:
        A function that raises PreconditionFailed.
    """
    if if_match is None:
        return None

    def check(present: ObjectInfo | None) -> None:
        if present is not None and not matches(if_match, present.etag):
            raise failed("IfMatch", if_match, present)

    return check


def publisher_of(context: Context, bucket: str, key: str) -> str:
    """Return the publisher to record with an object that the caller writes; empty if it publishes nothing.

    Args:
        context: The context of the request.
        bucket: Name of the bucket.
        key: The key.
    """
    return context.writer.publisher_of(bucket, key) if context.writer else ""


def keeping_published(
    context: Context, action: str, bucket: str, key: str, *, then: Precondition | None = None
) -> Precondition | None:
    """Return ``then`` with a check before it that the caller may change the existing object.

    Args:
        action: The IAM action of the change, e.g. ``s3:DeleteObject``.
        bucket: Bucket of the object.
        key: Key of the object.
        then: Another precondition. Default: none.
    """
    writer = context.writer
    if writer is None or not writer.keeps(bucket, key):
        return then

    def check(present: ObjectInfo | None) -> None:
        if present is not None:
            _raise(writer.refusal(action, present.bucket, present.key, publisher=present.publisher))
        if then is not None:
            then(present)

    return check


def check_upload(context: Context, action: str, upload: UploadInfo) -> None:
    """Raise AccessDenied if the caller may not change a multipart upload that another job began.

    Args:
        action: For example ``s3:PutObject``.
        upload: The row of the upload.

    Raises:
        AccessDenied: If another job began the upload.
    """
    if context.writer is not None:
        _raise(context.writer.refusal(action, upload.bucket, upload.key, publisher=upload.publisher))


def tags_of_header(text: str | None) -> dict[str, str]:
    """Parse tags in the form of a query string.

    Raises:
        AwsError: InvalidTag.
    """
    if not text:
        return {}
    pairs = parse_qsl(text, keep_blank_values=True)
    return check_tags(pairs)


def tags_of_set(tagging: Mapping[str, Any]) -> dict[str, str]:
    """Parse tags in the form of PutObjectTagging.

    Raises:
        AwsError: InvalidTag.
    """
    return check_tags([(tag["Key"], tag.get("Value") or "") for tag in tagging.get("TagSet") or ()])


def check_tags(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return tags by key; there may be at most ten, with different keys and legal lengths.

    Raises:
        AwsError: InvalidTag.
    """
    tags = dict(pairs)
    if len(tags) != len(pairs) or len(tags) > TAGS_MAX:
        raise _invalid_tag(f"{len(pairs)} tags with {len(tags)} different keys; at most {TAGS_MAX}, each key once")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_MAX or len(value) > TAG_VALUE_MAX:
            raise _invalid_tag(
                f"the tag {key[:TAG_KEY_MAX]!r} has a key of {len(key)} and a value of {len(value)} characters; a key"
                f" has 1 to {TAG_KEY_MAX}, a value at most {TAG_VALUE_MAX}"
            )
    return tags


def encryption_of(headers: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members about encryption, as the request that sets them is answered.

    Args:
        headers: Headers kept with the object.
    """
    members = {name: headers[name] for name in _ENCRYPTION_MEMBERS if name in headers}
    if request.get("SSEKMSEncryptionContext"):
        members["SSEKMSEncryptionContext"] = request["SSEKMSEncryptionContext"]
    return members


def quoted(etag: str) -> str:
    """Return an ETag in the form of the wire, with quotes.

    Args:
        etag: Without quotes.
    """
    return f'"{etag}"'


def _without_chunking(encoding: str) -> str:
    """Remove ``aws-chunked``, which describes the finished transfer and not the object."""
    kept = [entry.strip() for entry in encoding.split(",") if entry.strip().lower() not in ("", "aws-chunked")]
    return ",".join(kept)


def _invalid_tag(message: str) -> AwsError:
    return AwsError(message, code="InvalidTag")


def _raise(error: AwsError | None) -> None:
    if error is not None:
        raise error
