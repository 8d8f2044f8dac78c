"""Parse ``s3://`` paths into bucket and key."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill_tensorflow.s3.failures import INVALID_ARGUMENT, FilesystemError

SCHEME = "s3"


@dataclass(frozen=True, order=True)
class Location:
    """Location of an object, of a directory (all keys with a prefix), or of a bucket.

    Attributes:
        key: Key without a trailing slash; empty for the bucket itself.
    """

    bucket: str
    key: str

    @classmethod
    def parse(cls, path: str) -> Location:
        """Return the location of a path such as ``s3://bucket/prefix/key``.

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
        """Prefix of all keys in this directory; empty for a bucket."""
        return f"{self.key}/" if self.key else ""

    @property
    def parameters(self) -> dict[str, str]:
        """Bucket and key as keyword arguments of boto3."""
        return {"Bucket": self.bucket, "Key": self.key}

    def child(self, key: str) -> Location:
        """Return the location of another key in the same bucket."""
        return Location(self.bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}://{self.bucket}/{self.key}"
