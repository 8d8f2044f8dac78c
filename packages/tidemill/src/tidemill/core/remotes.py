"""S3 stores other than this service's own, from which training data may be read where the settings name them."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar
from urllib.parse import urlsplit

__all__ = ["RemoteS3", "pattern_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteS3:
    """Where a bucket lies that this service does not hold.

    Attributes:
        endpoint_url: E.g. ``https://s3.us-west-2.amazonaws.com`` or ``http://minio.lan:9000``.
        region: For which requests are signed.
        profile: Of AWS's configuration files; None leaves the choice to boto3.
        anonymous: Send requests unsigned, without looking for credentials.

    Raises:
        ValueError: The URL is not one of an S3 endpoint.
    """

    endpoint_url: str
    region: str = "us-east-1"
    profile: str | None = None
    anonymous: bool = False

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a misspelt member of the settings is an error

    def __post_init__(self) -> None:
        expected = "expected http(s)://host[:port] with nothing behind; keys belong into a profile or the environment"
        parts = urlsplit(self.endpoint_url)
        plain = not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            shown = self.endpoint_url.rpartition("@")[2]  # what stands before may be a key
            raise ValueError(f"endpoint_url {shown!r} is not the URL of an S3 endpoint: {expected}")


def pattern_for(bucket: str, patterns: Iterable[str]) -> str | None:
    """The pattern that a bucket falls under: the longest one that fits, itself before all. None where none fits."""
    fitting = [pattern for pattern in patterns if fnmatchcase(bucket, pattern)]
    return max(fitting, key=lambda pattern: (pattern == bucket, len(pattern)), default=None)
