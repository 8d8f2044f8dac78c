"""How one operation is mapped to permissions."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.core.policy import Permission

__all__ = ["Members", "Rule"]

Members = Mapping[str, Any]
"""Validated input members, by botocore's names."""

Rule = Callable[[Members, str], tuple[Permission, ...]]
"""From input members and the service's region to the permissions that a request needs, all of them."""
