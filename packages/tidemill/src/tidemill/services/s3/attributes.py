"""Converts between members of requests and attributes of objects: content headers, metadata, tags, encryption, times.

Encryption and storage classes are recorded and shown; tidemill stores all objects alike.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from tidemill.control.bucket_rules import DEFAULT_KEY, BucketRules, DefaultEncryption
from tidemill.control.kms_keys import KmsKeys
from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo

METADATA_MAX_BYTES = 2048
TAGS_MAX = 10
TAG_KEY_MAX = 128
TAG_VALUE_MAX = 256
DEFAULT_CONTENT_TYPE = "binary/octet-stream"
OWNER = {"DisplayName": "tidemill", "ID": ACCOUNT_ID}

_KEPT_HEADERS = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "Expires")
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


def attributes_of(
    request: Mapping[str, Any], headers: Mapping[str, str], storage: Mapping[str, Any]
) -> ObjectAttributes:
    """Return the object attributes that a put, copy or upload request sets, without checksums.

    Args:
        request: Input members.
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


def described(info: ObjectInfo) -> dict[str, Any]:
    """Return the members that GetObject and HeadObject share, without length and checksums.

    Args:
        info: The row of the object.

    Returns:
        Members in botocore's names.
    """
    members: dict[str, Any] = {
        "AcceptRanges": "bytes",
        "LastModified": timestamp(info.modified_ms),
        "ETag": quoted(info.etag),
        "ContentType": info.content_type,
        "Metadata": dict(info.metadata),
        **info.headers,
    }
    if info.tags:
        members["TagCount"] = len(info.tags)
    return members


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


def tag_set(info: ObjectInfo) -> list[dict[str, str]]:
    """Return tags in the form of GetObjectTagging.

    Args:
        info: The row of the object.

    Returns:
        Sorted by key.
    """
    return [{"Key": key, "Value": value} for key, value in sorted(info.tags.items())]


def quoted(etag: str) -> str:
    """Return an ETag in the form of the wire, with quotes.

    Args:
        etag: Without quotes.
    """
    return f'"{etag}"'


def timestamp(milliseconds: int) -> datetime:
    """Convert a time of the store to the type that the wire serializes.

    Args:
        milliseconds: Since the epoch.

    Returns:
        In UTC.
    """
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def bounded(value: int | None, *, name: str, most: int) -> int:
    """Check a page size, and limit it to ``most``.

    Raises:
        InvalidArgument: It is negative.
    """
    if value is not None and value < 0:
        raise InvalidArgument(f"{name} is {value}; it must be 0 or more")
    return most if value is None else min(value, most)


def _without_chunking(encoding: str) -> str:
    """Remove ``aws-chunked``, which describes the finished transfer and not the object."""
    kept = [entry.strip() for entry in encoding.split(",") if entry.strip().lower() not in ("", "aws-chunked")]
    return ",".join(kept)


def _invalid_tag(message: str) -> AwsError:
    return AwsError(message, code="InvalidTag")
