"""The errors of the object store, with the codes of S3.

They are defined beside the store, not in the S3 service, because the control plane calls the store directly.
"""

from tidemill.errors import AwsError


class NoSuchBucket(AwsError):
    """There is no such bucket."""


class NoSuchKey(AwsError):
    """There is no such object."""


class NoSuchUpload(AwsError):
    """The multipart upload was never begun, was aborted or is complete."""


class PreconditionFailed(AwsError):
    """A condition of the request does not hold."""


class InvalidArgument(AwsError):
    """A value is malformed or not allowed."""


class InvalidPart(AwsError):
    """A part is missing, or is not the one that was named."""


class ObjectDamaged(AwsError, code="InternalError"):
    """Stored bytes are missing or are not the bytes that were put. They are never sent."""


class ContentMissing(Exception):
    """Content is missing or was replaced in a remote S3. The message says what was found, without naming the object.

    Callers raise `ObjectDamaged`, which names the object.
    """


def no_such_bucket(bucket: str) -> NoSuchBucket:
    """Return the error for a bucket that does not exist.

    Args:
        bucket: Name that the request had.

    Returns:
        HTTP status 404, as on AWS.
    """
    return NoSuchBucket(
        f"there is no bucket {bucket!r}; create it first, or list the buckets there are",
        members={"BucketName": bucket},
    )


def no_such_key(bucket: str, key: str) -> NoSuchKey:
    """Return the error for an object that does not exist.

    Args:
        key: Key that the request had.

    Returns:
        HTTP status 404, as on AWS.
    """
    return NoSuchKey(
        f"there is no object s3://{bucket}/{key}; keys are compared exactly, check case and slashes",
        members={"Key": key},
    )


def no_such_upload(upload_id: str) -> NoSuchUpload:
    """Return the error for a multipart upload that does not exist.

    Args:
        upload_id: Id that the request had.

    Returns:
        HTTP status 404, as on AWS.
    """
    return NoSuchUpload(
        f"there is no multipart upload {upload_id!r} for this key: it was never begun, was aborted, or is complete;"
        " begin a new one",
        members={"UploadId": upload_id},
    )
