"""The host names of AWS's own services, which the service answers for a client that cannot be given another address."""

import re

_SUFFIXES = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_BUCKET = re.compile(r"(?P<bucket>.+)\.s3[.-](?:[a-z0-9-]+\.)*(?:amazonaws\.com|amazonaws\.com\.cn|api\.aws)")


def is_aws_host(name: str) -> bool:
    """Return whether a host name belongs to one of AWS's services.

    Args:
        name: Name in lower case, without a port.
    """
    return name.endswith(_SUFFIXES)


def bucket_in(name: str) -> str | None:
    """Return the bucket that a host name of S3 begins with, or None.

    Args:
        name: Name in lower case, without a port, e.g. ``data.s3.us-west-2.amazonaws.com``.
    """
    found = _BUCKET.fullmatch(name)
    return found["bucket"] if found is not None else None
