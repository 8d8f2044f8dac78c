"""Conditions on ETags and times: those of reads and of the sources of copies. Those of writes are in `intention`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.store.objects.errors import PreconditionFailed
from tidemill.store.objects.index import ObjectInfo


def is_unmodified(request: Mapping[str, Any], info: ObjectInfo, *, prefix: str = "") -> bool:
    """Return whether a read must be answered "not modified" instead of with the object.

    Args:
        request: Contains ``IfMatch``, ``IfNoneMatch``, ``IfModifiedSince``, ``IfUnmodifiedSince``.
        prefix: Prefix of these member names, e.g. ``CopySource``.

    Raises:
        PreconditionFailed: ``IfMatch`` or ``IfUnmodifiedSince`` is not satisfied.
    """
    if_match = request.get(f"{prefix}IfMatch")
    if if_match is not None:
        if not matches(if_match, info.etag):
            raise failed(f"{prefix}IfMatch", if_match, info)
    elif (since := request.get(f"{prefix}IfUnmodifiedSince")) is not None and _modified_after(info, since):
        raise failed(f"{prefix}IfUnmodifiedSince", since, info)
    if_none_match = request.get(f"{prefix}IfNoneMatch")
    if if_none_match is not None:
        return matches(if_none_match, info.etag)
    since = request.get(f"{prefix}IfModifiedSince")
    return since is not None and not _modified_after(info, since)


def copy_precondition(request: Mapping[str, Any], source: ObjectInfo) -> None:
    """Check the conditions of a copy on its source.

    Raises:
        PreconditionFailed: A condition is not satisfied.
    """
    if is_unmodified(request, source, prefix="CopySource"):
        raise PreconditionFailed(
            f"the source s3://{source.bucket}/{source.key} is the version that the copy was to skip"
            f" (ETag {source.etag!r})",
            members={"Condition": "x-amz-copy-source-If-None-Match"},
        )


def matches(condition: str, etag: str) -> bool:
    """Return whether a condition names an ETag.

    Args:
        condition: Value of If-Match or If-None-Match: ETags, separated by commas, or an asterisk.
        etag: ETag of the object, without quotes.
    """
    wanted = (entry.strip().removeprefix("W/").strip('"') for entry in condition.split(","))
    return any(entry in ("*", etag) for entry in wanted)


def _modified_after(info: ObjectInfo, since: datetime) -> bool:
    """Return whether an object is newer than an HTTP date, which has whole seconds; the same second is not newer."""
    moment = since if since.tzinfo else since.replace(tzinfo=UTC)
    return info.modified_ms // 1000 > int(moment.timestamp())


def failed(condition: str, value: object, info: ObjectInfo) -> PreconditionFailed:
    """Return the error for a condition that does not hold.

    Args:
        condition: Name of the member.
    """
    return PreconditionFailed(
        f"the condition {condition}={value} does not hold for s3://{info.bucket}/{info.key}: its ETag is"
        f" {info.etag!r}; read the object again and decide anew",
        members={"Condition": condition},
    )
