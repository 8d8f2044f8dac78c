"""ListEnvironments: the built environments of jobs and endpoints, as `tidemill environments list` shows them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.core.frameworks import ENVIRONMENTS
from tidemill.environments.builder import BuiltEnvironment, Environments
from tidemill.environments.disk_use import LayerSizes
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context

__all__ = ["EnvironmentOperations", "listed"]


class EnvironmentOperations(Operations):
    """Lists environments.

    Args:
        environments: Those of the service.
    """

    def __init__(self, environments: Environments) -> None:
        self._environments = environments
        self._sizes = LayerSizes()
        self._lock = asyncio.Lock()

    async def list_environments(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """ListEnvironments. Only the first request measures an environment's files, which takes up to a second each."""
        async with self._lock:
            return {"Environments": await asyncio.to_thread(listed, self._environments, self._sizes)}


def listed(environments: Environments, sizes: LayerSizes) -> list[dict[str, Any]]:
    """Return the built environments as ListEnvironments shows them, the last used first. Blocks.

    Args:
        environments: The environments of a directory.
        sizes: Measures them.
    """
    found = sorted(environments.built(), key=lambda each: each.last_use_s, reverse=True)
    return [_shown(each, sizes.of(each.prefix, *each.shared_layers)) for each in found]


def _shown(environment: BuiltEnvironment, size_bytes: int) -> dict[str, Any]:
    framework = ENVIRONMENTS.get(environment.name)
    return {
        "Name": environment.name,
        **({"Framework": f"{framework.title} {framework.release}"} if framework is not None else {}),
        "Python": environment.python,
        "Key": environment.key,
        "SizeBytes": size_bytes,
        "LastUse": when(int(environment.last_use_s * 1000)),
        "Path": str(environment.prefix),
    }
