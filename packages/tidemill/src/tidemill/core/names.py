"""Names: the account, ARNs, S3 URIs."""

import base64
import hashlib
import re
from dataclasses import dataclass

ACCOUNT_ID = "000000000000"
DEFAULT_REGION = "us-west-2"
INPUTS_PREFIX = "tidemill-inputs/"
"""Prefix of the keys of local data that the SDK uploads; see `tidemill.sdk.upload`."""
KEY_MAX_BYTES = 1024
"""Maximum length of a key of S3, as UTF-8."""

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True)
class S3Uri:
    """``s3://bucket/key``; the key may be empty."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, text: str) -> "S3Uri":
        """Parse an S3 URI.

        Raises:
            ValueError: It does not have the form ``s3://bucket[/key]``, or the bucket name is not legal.
        """
        if not text.startswith("s3://"):
            raise ValueError(f"{text!r} is not an S3 URI; expected s3://bucket/key")
        bucket, _, key = text.removeprefix("s3://").partition("/")
        if not is_bucket_name(bucket):
            raise ValueError(
                f"{text!r}: {bucket!r} is not a bucket name; allowed are 3-63 characters of a-z, 0-9, '.' and '-',"
                " beginning and ending with a letter or digit"
            )
        return cls(bucket, key)

    def __truediv__(self, name: str) -> "S3Uri":
        return S3Uri(self.bucket, f"{self.key.rstrip('/')}/{name}" if self.key else name)

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"


def is_bucket_name(name: str) -> bool:
    """Return whether ``name`` is a legal bucket name. ``endpoints`` is not: it would hide SageMaker Runtime's paths.

    Args:
        name: Any text.
    """
    return bool(_BUCKET.fullmatch(name)) and ".." not in name and name != "endpoints"


def sagemaker_arn(kind: str, name: str, *, region: str = DEFAULT_REGION) -> str:
    """Return the ARN of a SageMaker resource, e.g. ``sagemaker_arn("training-job", "digits")``.

    Args:
        kind: Kind of the resource, e.g. ``endpoint``.
    """
    return f"arn:aws:sagemaker:{region}:{ACCOUNT_ID}:{kind}/{name}"


def kms_arn(text: str, *, region: str = DEFAULT_REGION) -> str:
    """Return the ARN of a KMS key or alias given by id, ``alias/NAME`` or ARN; it need not exist.

    Args:
        text: Id, ``alias/NAME`` or ARN.
        region: AWS region, for an id or alias.
    """
    if text.startswith("arn:"):
        return text
    resource = text if text.startswith("alias/") else f"key/{text}"
    return f"arn:aws:kms:{region}:{ACCOUNT_ID}:{resource}"


def role_arn(role: str) -> str:
    """Return the ARN of a role given by name or ARN.

    Args:
        role: Name or ARN.
    """
    return role if role.startswith("arn:") else f"arn:aws:iam::{ACCOUNT_ID}:role/{role}"


def role_name(role: str) -> str:
    """Return the name of a role given by name or ARN, without its path.

    Args:
        role: Name or ARN.
    """
    resource = role.split(":", 5)[-1].removeprefix("role") if role.startswith("arn:") else role
    return resource.rstrip("/").rpartition("/")[2]


def default_bucket(region: str = DEFAULT_REGION) -> str:
    """Return the bucket that AWS's SDKs use by default.

    Returns:
        ``sagemaker-REGION-ACCOUNT``.
    """
    return f"sagemaker-{region}-{ACCOUNT_ID}"


def unique_id(prefix: str, name: str) -> str:
    """Return the unique id of a role or user: 21 letters and digits, which depend only on the name.

    Args:
        prefix: ``AROA`` for a role, whose name is the same in every case; ``AIDA`` for a user.
        name: Name of the role or user.
    """
    digest = hashlib.sha256(f"{prefix}/{name.casefold() if prefix == 'AROA' else name}".encode()).digest()
    return prefix + base64.b32encode(digest).decode()[:17]
