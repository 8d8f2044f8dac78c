"""CreateMetricsToken, ListMetricsTokens, DeleteMetricsToken: who may read the metrics of the service."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.metrics_tokens import MetricsTokens
from tidemill.errors import AwsError
from tidemill.services.times import when
from tidemill.wire.exchange import Context, Handler


class MetricsTokenOperations:
    """Manages the tokens, for the owner of the service alone: a token outlives the key of who made it.

    Args:
        tokens: The tokens.
        owner: Access key id of the owner.
    """

    def __init__(self, tokens: MetricsTokens, *, owner: str) -> None:
        self._tokens = tokens
        self._owner = owner

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "CreateMetricsToken": self.create,
            "ListMetricsTokens": self.list,
            "DeleteMetricsToken": self.delete,
        }

    async def create(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._check_owner(context)
        return {"Token": await self._tokens.create(request["Name"])}

    async def list(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._check_owner(context)
        return {
            "Tokens": [{"Name": each.name, "CreationTime": when(each.created_ms)} for each in await self._tokens.list()]
        }

    async def delete(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._check_owner(context)
        await self._tokens.delete(request["Name"])
        return {}

    def _check_owner(self, context: Context) -> None:
        if context.of_page or context.caller.access_key_id != self._owner:
            raise AwsError(
                f"{context.operation} is for the owner of the service, who signs with the key in its state directory:"
                " `tidemill metrics` does.",
                code="AccessDeniedException",
            )
