"""Converts between members of requests and attributes of objects: content headers, metadata, tags, checksums, times."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo

__all__ = [
    "OWNER",
    "attributes_of",
    "bounded",
    "check_tags",
    "described",
    "quoted",
    "tag_set",
    "tags_of_header",
    "tags_of_set",
    "timestamp",
]

METADATA_MAX_BYTES = 2048
TAGS_MAX = 10
TAG_KEY_MAX = 128
TAG_VALUE_MAX = 256
DEFAULT_CONTENT_TYPE = "binary/octet-stream"
OWNER = {"DisplayName": "tidemill", "ID": ACCOUNT_ID}

_KEPT_HEADERS = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "Expires")


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
