"""Checks the members with which a request names the expected owner of a bucket."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError

__all__ = ["check_owners"]

_MEMBERS = ("ExpectedBucketOwner", "ExpectedSourceBucketOwner")


def check_owners(request: Mapping[str, Any]) -> None:
    """Refuse a request that expects another account as owner of its bucket, or of a copy's source bucket.

    Raises:
        AwsError: AccessDenied (403).
    """
    for member in _MEMBERS:
        owner = request.get(member)
        if owner is not None and owner != ACCOUNT_ID:
            raise AwsError(
                f"{member} is {owner!r}, but all buckets here belong to the account {ACCOUNT_ID}",
                code="AccessDenied",
                status=403,
            )
