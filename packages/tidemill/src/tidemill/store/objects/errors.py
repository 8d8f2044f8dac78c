"""What the object store refuses, in the codes of S3.

    AwsError
    ├── NoSuchBucket          404  there is no such bucket
    ├── NoSuchKey             404  there is no such object
    ├── NoSuchUpload          404  the upload was never begun, was aborted or is complete
    ├── PreconditionFailed    412  a condition of the request does not hold
    ├── InvalidArgument       400  a value is malformed or not allowed
    ├── InvalidPart           400  a part is missing or is not the one that was named
    └── ObjectDamaged         500  stored bytes are not the bytes that were put

They live beside the store because the control plane meets them too, without any service in between.
"""

import contextlib
import errno
from collections.abc import Iterator

from tidemill.errors import AwsError, ServiceUnavailable

__all__ = [
    "ContentMissing",
    "InvalidArgument",
    "InvalidPart",
    "NoSuchBucket",
    "NoSuchKey",
    "NoSuchUpload",
    "ObjectDamaged",
    "PreconditionFailed",
    "disk_errors",
    "no_such_bucket",
    "no_such_key",
    "no_such_upload",
]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class NoSuchBucket(AwsError):
    """There is no such bucket."""

    code = "NoSuchBucket"
    status = 404


class NoSuchKey(AwsError):
    """There is no such object."""

    code = "NoSuchKey"
    status = 404


class NoSuchUpload(AwsError):
    """The multipart upload was never begun, was aborted or is complete."""

    code = "NoSuchUpload"
    status = 404


class PreconditionFailed(AwsError):
    """A condition of the request does not hold."""

    code = "PreconditionFailed"
    status = 412


class InvalidArgument(AwsError):
    """A value is malformed or not allowed."""

    code = "InvalidArgument"
    status = 400


class InvalidPart(AwsError):
    """A part is missing, or is not the one that was named."""

    code = "InvalidPart"
    status = 400


class ObjectDamaged(AwsError):
    """Stored bytes are missing or are not the bytes that were put. They are never sent."""

    code = "InternalError"
    status = 500


class ContentMissing(Exception):
    """Content is not where it was put; the text says what was found. Callers name the object, as `ObjectDamaged`."""


def no_such_bucket(bucket: str) -> NoSuchBucket:
    """The error for a bucket that is not there."""
    return NoSuchBucket(
        f"there is no bucket {bucket!r}; create it first, or list the buckets there are",
        members={"BucketName": bucket},
    )


def no_such_key(bucket: str, key: str) -> NoSuchKey:
    """The error for an object that is not there."""
    return NoSuchKey(
        f"there is no object s3://{bucket}/{key}; keys are compared exactly, check case and slashes",
        members={"Key": key},
    )


def no_such_upload(upload_id: str) -> NoSuchUpload:
    """The error for a multipart upload that is not there."""
    return NoSuchUpload(
        f"there is no multipart upload {upload_id!r} for this key: it was never begun, was aborted, or is complete;"
        " begin a new one",
        members={"UploadId": upload_id},
    )


@contextlib.contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn a full or failing disk into an answer that says so.

    Raises:
        ServiceUnavailable: The disk is full, or reading or writing failed.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise ServiceUnavailable(
                f"no space left on the disk of the object store while {doing}; nothing was stored. Delete objects or"
                " free space on the disk, then repeat the request"
            ) from error
        if error.errno in (errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE):
            raise ServiceUnavailable(
                f"the disk of the object store failed while {doing} ({error.strerror}); nothing was stored. Check the"
                " disk and the service's log, then repeat the request"
            ) from error
        raise
