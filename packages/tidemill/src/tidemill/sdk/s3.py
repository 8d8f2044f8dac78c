"""Objects by their S3 URIs, in the form of SageMaker's SDK."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk.session import Session, encrypted_with, put_bytes

__all__ = ["S3Downloader", "S3Uploader", "determine_bucket_and_prefix", "parse_s3_url", "s3_path_join"]


class S3Uploader:
    """Uploads files, texts and bytes."""

    @staticmethod
    def upload(
        local_path: str | Path,
        desired_s3_uri: str,
        kms_key: str | None = None,
        sagemaker_session: Any = None,
        callback: Callable[[int], None] | None = None,
    ) -> str:
        """Upload a file, or every file below a directory.

        Args:
            local_path: File or directory.
            desired_s3_uri: S3 URI of the prefix.
            kms_key: KMS key of the objects. Recorded: nothing is encrypted.
            sagemaker_session: The `Session` to use. Default: a new one.
            callback: Called with the number of bytes of each transferred part.

        Returns:
            S3 URI of the file, or of the prefix for a directory.
        """
        target = S3Uri.parse(desired_s3_uri)
        return Session.adopt(sagemaker_session).upload_data(
            local_path, target.bucket, target.key, callback=callback, extra_args=encrypted_with(kms_key)
        )

    @staticmethod
    def upload_string_as_file_body(
        body: str, desired_s3_uri: str, kms_key: str | None = None, sagemaker_session: Any = None
    ) -> str:
        """Store a text as an object.

        Args:
            body: The text, stored as UTF-8.
            desired_s3_uri: S3 URI of the object.
            kms_key: As for `upload`.
            sagemaker_session: As for `upload`.

        Returns:
            The S3 URI.
        """
        target = S3Uri.parse(desired_s3_uri)
        session = Session.adopt(sagemaker_session)
        return session.upload_string_as_file_body(body, target.bucket, target.key, kms_key)

    @staticmethod
    def upload_bytes(b: Any, s3_uri: str, kms_key: str | None = None, sagemaker_session: Any = None) -> str:
        """Store bytes as an object.

        Args:
            b: Bytes, or a file of them.
            s3_uri: S3 URI of the object.
            kms_key: As for `upload`.
            sagemaker_session: As for `upload`.

        Returns:
            The S3 URI.
        """
        body = b if isinstance(b, bytes) else b.read()
        put_bytes(Session.adopt(sagemaker_session), body, S3Uri.parse(s3_uri), kms_key)
        return s3_uri


class S3Downloader:
    """Downloads and lists objects."""

    @staticmethod
    def download(
        s3_uri: str, local_path: str | Path, kms_key: str | None = None, sagemaker_session: Any = None
    ) -> list[str]:
        """Download an object, or all objects below a prefix, into a directory.

        Args:
            s3_uri: S3 URI of an object or a prefix.
            local_path: Directory; created if missing.
            kms_key: Ignored: the service knows the key of an object.
            sagemaker_session: The `Session` to use. Default: a new one.

        Returns:
            Paths of the files.
        """
        del kms_key
        source = S3Uri.parse(s3_uri)
        return Session.adopt(sagemaker_session).download_data(local_path, source.bucket, source.key)

    @staticmethod
    def read_file(s3_uri: str, sagemaker_session: Any = None) -> str:
        """Return the text of an object.

        Args:
            s3_uri: S3 URI of the object.
            sagemaker_session: As for `download`.

        Returns:
            The content, decoded as UTF-8.
        """
        return S3Downloader.read_bytes(s3_uri, sagemaker_session).decode()

    @staticmethod
    def read_bytes(s3_uri: str, sagemaker_session: Any = None) -> bytes:
        """Return the bytes of an object.

        Args:
            s3_uri: S3 URI of the object.
            sagemaker_session: As for `download`.

        Returns:
            The content.
        """
        source = S3Uri.parse(s3_uri)
        client = Session.adopt(sagemaker_session).s3_client
        return client.get_object(Bucket=source.bucket, Key=source.key)["Body"].read()

    @staticmethod
    def list(s3_uri: str, sagemaker_session: Any = None) -> list[str]:
        """Return the objects whose URIs begin with a URI.

        Args:
            s3_uri: S3 URI of a prefix.
            sagemaker_session: As for `download`.

        Returns:
            S3 URIs, in the order of their keys.
        """
        source = S3Uri.parse(s3_uri)
        keys = Session.adopt(sagemaker_session).list_s3_files(source.bucket, source.key)
        return [f"s3://{source.bucket}/{key}" for key in keys]


def parse_s3_url(url: str) -> tuple[str, str]:
    """Return bucket and key of an S3 URI.

    Args:
        url: The URI.

    Returns:
        The bucket and the key, which may be empty.

    Raises:
        ValueError: It is no S3 URI.

    Example:
        >>> parse_s3_url("s3://bucket/data/train.csv")
        ('bucket', 'data/train.csv')
    """
    found = S3Uri.parse(url)
    return found.bucket, found.key


def s3_path_join(*args: str | None, with_end_slash: bool = False) -> str:
    """Return texts joined by single slashes, without one at the ends; a scheme at the beginning is kept.

    Args:
        *args: The texts; empty ones and None are left out.
        with_end_slash: Whether the result ends with a slash.

    Returns:
        A key, or an S3 URI.

    Example:
        >>> s3_path_join("s3://", "/bucket/", "data//train.csv")
        's3://bucket/data/train.csv'
    """
    scheme, _, path = "/".join(each for each in args if each).rpartition("://")
    path = re.sub("/+", "/", path).strip("/")
    return f"{scheme + '://' if scheme else ''}{path}{'/' if with_end_slash and path else ''}"


def determine_bucket_and_prefix(
    bucket: str | None = None, key_prefix: str | None = None, sagemaker_session: Any = None
) -> tuple[str, str | None]:
    """Return a bucket, or the default one, and a prefix.

    Args:
        bucket: Name of the bucket.
        key_prefix: The prefix.
        sagemaker_session: The `Session` whose default bucket is used.

    Returns:
        The bucket and the prefix.
    """
    return bucket or Session.adopt(sagemaker_session).default_bucket(), key_prefix
