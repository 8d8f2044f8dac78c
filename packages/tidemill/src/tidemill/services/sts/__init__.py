"""AWS Security Token Service: GetCallerIdentity, GetSessionToken, AssumeRole."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.credentials import Credentials, TemporaryKeys
from tidemill.core.names import ACCOUNT_ID, role_name, unique_id
from tidemill.core.policy_document import load_document, read_policy
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context

__all__ = ["StsService"]

_SESSION_S = 43_200
_ROLE_S = 3600


class StsService(Operations):
    """Returns the caller's identity, and temporary keys with at most the caller's rights."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    async def get_caller_identity(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the ARN of the caller. For the owner that of an assumed role: AWS's SDKs parse the role from it."""
        return {
            "Account": ACCOUNT_ID,
            "UserId": context.caller.access_key_id,
            "Arn": context.caller.arn,
        }

    async def get_session_token(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Create temporary keys of the caller."""
        key = context.caller.access_key_id
        if not key.startswith("AKIA"):
            raise AwsError("Cannot call GetSessionToken with session credentials", code="AccessDenied")
        opened = await self._credentials.open_session(key, lifetime_s=request.get("DurationSeconds", _SESSION_S))
        return {"Credentials": _shown(*opened)}

    async def assume_role(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Create temporary keys with those rights of the caller that the role's policy allows, too."""
        role, session = role_name(request["RoleArn"]), request["RoleSessionName"]
        arn = f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/{role}/{session}"
        opened = await self._credentials.open_session(
            context.caller.access_key_id,
            lifetime_s=request.get("DurationSeconds", _ROLE_S),
            arn=arn,
            role=role,
            policy=_policy(request.get("Policy")),
        )
        user = {"AssumedRoleId": f"{unique_id('AROA', role)}:{session}", "Arn": arn}
        return {"Credentials": _shown(*opened), "AssumedRoleUser": user}


def _policy(text: str | None) -> Mapping[str, Any] | None:
    """Return the document of a session's policy.

    Raises:
        AwsError: MalformedPolicyDocument.
    """
    if text is None:
        return None
    try:
        document = load_document(text)
        read_policy(document)
    except ValueError as error:
        raise AwsError(f"The policy of the session cannot be used: {error}", code="MalformedPolicyDocument") from error
    return dict(document)


def _shown(keys: TemporaryKeys, expires_ms: int) -> dict[str, Any]:
    return {
        "AccessKeyId": keys.access_key_id,
        "SecretAccessKey": keys.secret_access_key,
        "SessionToken": keys.session_token,
        "Expiration": when(expires_ms),
    }
