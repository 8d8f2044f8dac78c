"""How replies show objects: content headers, metadata, tags, times, pages."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.services.s3.intention import quoted
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectInfo

OWNER = {"DisplayName": "tidemill", "ID": ACCOUNT_ID}


def described(info: ObjectInfo) -> dict[str, Any]:
    """Return the members that GetObject and HeadObject share, without length and checksums.

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


def storage_class_of(headers: Mapping[str, Any]) -> str:
    """Return the storage class of an object with these headers, as lists show it.

    Args:
        headers: Headers kept with the object.

    Returns:
        ``STANDARD`` by default.
    """
    shown: str = headers.get("StorageClass", "STANDARD")
    return shown


def tag_set(info: ObjectInfo) -> list[dict[str, str]]:
    """Return tags in the form of GetObjectTagging.

    Returns:
        Sorted by key.
    """
    return [{"Key": key, "Value": value} for key, value in sorted(info.tags.items())]


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
