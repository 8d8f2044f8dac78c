"""Paths as TensorFlow gives them, as bucket and key."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_tensorflow.s3.failures import INVALID_ARGUMENT, FilesystemError

__all__ = ["SCHEME", "Location"]

SCHEME = "s3"


@dataclass(frozen=True, order=True)
class Location:
    """A place in S3: an object, a directory (all keys that begin with a prefix), or a whole bucket.

    Attributes:
        bucket: Name of the bucket.
        key: Without a slash at its end; empty for the bucket itself.
    """

    bucket: str
    key: str

    @classmethod
    def parse(cls, path: str) -> Location:
        """Return the place of a path such as ``s3://bucket/prefix/key``.

        Raises:
            FilesystemError: The path names no bucket.
        """
        scheme, separator, rest = path.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme != SCHEME or not separator or not bucket:
            raise FilesystemError(INVALID_ARGUMENT, f"{path!r} names no bucket; paths have the form s3://BUCKET/KEY")
        return cls(bucket, key.rstrip("/"))

    @property
    def prefix(self) -> str:
        """What the keys in this directory begin with."""
        return f"{self.key}/" if self.key else ""

    @property
    def parameters(self) -> dict[str, str]:
        """Bucket and key, as boto3 takes them."""
        return {"Bucket": self.bucket, "Key": self.key}

    def child(self, key: str) -> Location:
        """Return the place of another key of the same bucket."""
        return Location(self.bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.key}"
