"""The mapping of an operation to permissions: most need the action of their name on a resource that they name."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.core.policy import Permission

Members = Mapping[str, Any]
"""Validated input members, by botocore's names."""

Rule = Callable[[Members, str], tuple[Permission, ...]]
"""Converts input members and the service's region to all permissions that a request needs."""

Resource = Callable[[Members, str], str]
"""Converts input members and the service's region to the ARN of a resource."""


def needs(action: str, *resources: Resource) -> Rule:
    """Return the rule of an operation that needs an action on each of some resources.

    Args:
        action: For example ``kms:CreateAlias``.
    """
    return lambda request, region: tuple(Permission(action, arn(request, region)) for arn in resources)


def by_name(service: str, resource: Resource, *operations: str) -> dict[str, Rule]:
    """Return the rules of operations that need the action of their name on a resource.

    Args:
        service: Beginning of the actions, e.g. ``iam``.
    """
    return {operation: needs(f"{service}:{operation}", resource) for operation in operations}


def everything(request: Members, region: str) -> str:
    """Return the resource of actions that IAM cannot limit to resources."""
    return "*"


def nothing(request: Members, region: str) -> tuple[Permission, ...]:
    """Need no permission."""
    return ()
