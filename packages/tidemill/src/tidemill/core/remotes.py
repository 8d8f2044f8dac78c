"""Remote S3 stores: the setting ``remote_s3`` lists the stores from which training data may be read."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteS3:
    """The S3 endpoint of a bucket that this service does not have.

    Attributes:
        endpoint_url: E.g. ``https://s3.us-west-2.amazonaws.com`` or ``http://minio.lan:9000``.
        region: AWS region for which requests are signed.
        profile: Profile in AWS's configuration files; None uses boto3's default credentials.
        anonymous: Send unsigned requests, without looking for credentials.

    Raises:
        ValueError: ``endpoint_url`` is not the URL of an S3 endpoint.
    """

    endpoint_url: str
    region: str = "us-east-1"
    profile: str | None = None
    anonymous: bool = False

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # refuses misspelled members in the settings

    def __post_init__(self) -> None:
        expected = "expected http(s)://host[:port] with nothing behind; keys belong into a profile or the environment"
        parts = urlsplit(self.endpoint_url)
        plain = not (parts.username or parts.password or parts.query or parts.fragment or parts.path.strip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            shown = self.endpoint_url.rpartition("@")[2]  # the part before @ may be a key
            raise ValueError(f"endpoint_url {shown!r} is not the URL of an S3 endpoint: {expected}")


def pattern_for(bucket: str, patterns: Iterable[str]) -> str | None:
    """Return the longest pattern that matches a bucket, preferring the bucket's own name; None if none matches.

    Args:
        patterns: Patterns with ``*``, ``?`` and ``[...]``.
    """
    fitting = [pattern for pattern in patterns if fnmatchcase(bucket, pattern)]
    return max(fitting, key=lambda pattern: (pattern == bucket, len(pattern)), default=None)
