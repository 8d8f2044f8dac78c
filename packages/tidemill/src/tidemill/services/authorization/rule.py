"""The mapping of one operation to permissions."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.core.policy import Permission

Members = Mapping[str, Any]
"""Validated input members, by botocore's names."""

Rule = Callable[[Members, str], tuple[Permission, ...]]
"""Converts input members and the service's region to all permissions that a request needs."""
