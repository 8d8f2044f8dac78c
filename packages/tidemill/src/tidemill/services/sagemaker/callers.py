"""The callers that descriptions name as CreatedBy and LastModifiedBy."""

from typing import Any


def user_of(arn: str) -> dict[str, Any]:
    """Return a caller as descriptions show it.

    Args:
        arn: ARN of the caller.
    """
    return {"IamIdentity": {"Arn": arn, "PrincipalId": arn.rpartition("/")[2]}}
