"""CreateMetricsToken, ListMetricsTokens, DeleteMetricsToken: who may read the metrics of the service."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.metrics_tokens import MetricsTokens
from tidemill.services.operations import Operations
from tidemill.services.page.ownership import check_owner
from tidemill.services.times import when
from tidemill.wire.exchange import Context


class MetricsTokenOperations(Operations):
    """Manages the tokens, for the owner of the service alone: a token outlives the key of who made it.

    Args:
        owner: Access key id of the owner.
    """

    def __init__(self, tokens: MetricsTokens, *, owner: str) -> None:
        self._tokens = tokens
        self._owner = owner

    async def create_metrics_token(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        check_owner(context, self._owner)
        return {"Token": await self._tokens.create(request["Name"])}

    async def list_metrics_tokens(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        check_owner(context, self._owner)
        return {
            "Tokens": [{"Name": each.name, "CreationTime": when(each.created_ms)} for each in await self._tokens.list()]
        }

    async def delete_metrics_token(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        check_owner(context, self._owner)
        await self._tokens.delete(request["Name"])
        return {}
