"""WaitForChanges: what has changed among the jobs, endpoints and other resources that a viewer looks at."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from tidemill.control.changes import Changed, ChangeFeed
from tidemill.control.resources import ARTIFACT, EXPERIMENT, PIPELINE_EXECUTION, TITLES, TRIAL, TRIAL_COMPONENT
from tidemill.core.names import sagemaker_arn
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context

__all__ = ["VIEWED", "ChangeOperations"]

_LONGEST_WAIT_S = 30
VIEWED = tuple(kind for kind in TITLES if kind not in (EXPERIMENT, TRIAL, TRIAL_COMPONENT, ARTIFACT))
"""The kinds that a viewer may look at who may describe them."""


class ChangeOperations(Operations):
    """Tells viewers what has changed.

    Args:
        feed: Keeps the changes of the kinds in `VIEWED`.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed

    async def wait_for_changes(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Answer when something has changed that the caller may describe, at the latest after ``WaitSeconds``."""
        looked_at: dict[str, set[str]] = {}
        for each in request["Interests"]:
            looked_at.setdefault(each["Kind"], set()).update(each.get("Names") or ("",))

        def looks_at(changed: Changed) -> bool:
            names = looked_at.get(changed[0], ())
            return changed[1] in names or "" in names

        @cache
        def may_see(changed: Changed) -> bool:
            return context.permits(f"sagemaker:Describe{TITLES[changed[0]]}", _arn(changed, context.region))

        found = await self._feed.wait(
            request.get("Token"),
            looks_at=looks_at,
            may_see=may_see,
            timeout_s=request.get("WaitSeconds", _LONGEST_WAIT_S),
        )
        by_kind: dict[str, list[str]] = {}
        for kind, name in found.changed:
            by_kind.setdefault(kind, []).append(name)
        changes = [{"Kind": kind, "Names": names} for kind, names in by_kind.items()]
        return {"Token": found.token, "Changes": changes, "Everything": found.everything}


def _arn(changed: Changed, region: str) -> str:
    kind, name = changed
    if kind == PIPELINE_EXECUTION:  # named by the end of its ARN, ``pipeline/NAME/execution/ID``
        kind, _, name = name.partition("/")
    return sagemaker_arn(kind, name, region=region)
