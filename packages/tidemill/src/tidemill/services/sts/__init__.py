"""AWS Security Token Service: GetCallerIdentity."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.wire.exchange import Context, Handler

__all__ = ["StsService"]


class StsService:
    """Returns the caller's identity: the ARN of an assumed role, from which AWS's SDKs parse the role."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"GetCallerIdentity": self.caller_identity}

    async def caller_identity(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {
            "Account": ACCOUNT_ID,
            "UserId": context.caller.access_key_id,
            "Arn": context.caller.arn,
        }
