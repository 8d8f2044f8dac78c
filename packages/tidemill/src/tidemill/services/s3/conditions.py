"""What must hold for a request: conditions on ETags and times, and that writes keep what other jobs published."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tidemill.errors import AwsError
from tidemill.store.objects.errors import InvalidArgument, PreconditionFailed, no_such_key
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import Precondition
from tidemill.store.objects.upload_index import UploadInfo
from tidemill.wire.exchange import Context


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
        if not _matches(if_match, info.etag):
            raise _failed(f"{prefix}IfMatch", if_match, info)
    elif (since := request.get(f"{prefix}IfUnmodifiedSince")) is not None and _modified_after(info, since):
        raise _failed(f"{prefix}IfUnmodifiedSince", since, info)
    if_none_match = request.get(f"{prefix}IfNoneMatch")
    if if_none_match is not None:
        return _matches(if_none_match, info.etag)
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
            raise _failed("IfNoneMatch", if_none_match, present)
        if if_match is not None:
            if present is None:
                raise no_such_key(request["Bucket"], request["Key"])
            if not _matches(if_match, present.etag):
                raise _failed("IfMatch", if_match, present)

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
        if present is not None and not _matches(if_match, present.etag):
            raise _failed("IfMatch", if_match, present)

    return check


def publisher_of(context: Context, bucket: str, key: str) -> str:
    """Return the publisher to record with an object that the caller writes; empty if it publishes nothing.

    Args:
        context: The context of the request.
        bucket: Name of the bucket.
    """
    return context.writer.publisher_of(bucket, key) if context.writer else ""


def keeping_published(
    context: Context, action: str, bucket: str, key: str, *, then: Precondition | None = None
) -> Precondition | None:
    """Return ``then`` with a check before it that the caller may change the existing object.

    Args:
        context: Context of the request.
        action: The IAM action of the change, e.g. ``s3:DeleteObject``.
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
        context: The context of the request.
        action: For example ``s3:PutObject``.
        upload: The row of the upload.

    Raises:
        AccessDenied: If another job began the upload.
    """
    if context.writer is not None:
        _raise(context.writer.refusal(action, upload.bucket, upload.key, publisher=upload.publisher))


def _matches(condition: str, etag: str) -> bool:
    wanted = (entry.strip().removeprefix("W/").strip('"') for entry in condition.split(","))
    return any(entry in ("*", etag) for entry in wanted)


def _modified_after(info: ObjectInfo, since: datetime) -> bool:
    """Return whether an object is newer than an HTTP date, which has whole seconds; the same second is not newer."""
    moment = since if since.tzinfo else since.replace(tzinfo=UTC)
    return info.modified_ms // 1000 > int(moment.timestamp())


def _failed(condition: str, value: object, info: ObjectInfo) -> PreconditionFailed:
    return PreconditionFailed(
        f"the condition {condition}={value} does not hold for s3://{info.bucket}/{info.key}: its ETag is"
        f" {info.etag!r}; read the object again and decide anew",
        members={"Condition": condition},
    )


def _raise(error: AwsError | None) -> None:
    if error is not None:
        raise error
