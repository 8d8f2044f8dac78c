"""The check of writes against what other jobs published, inside the transaction that writes."""

from tidemill.errors import AwsError
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import Precondition
from tidemill.store.objects.upload_index import UploadInfo
from tidemill.wire.exchange import Context

__all__ = ["check_upload", "keeping_published", "publisher_of"]


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
        context: Context of the request.
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
        context: The context of the request.
        action: For example ``s3:PutObject``.
        upload: The row of the upload.

    Raises:
        AccessDenied: If another job began the upload.
    """
    if context.writer is not None:
        _raise(context.writer.refusal(action, upload.bucket, upload.key, publisher=upload.publisher))


def _raise(error: AwsError | None) -> None:
    if error is not None:
        raise error
