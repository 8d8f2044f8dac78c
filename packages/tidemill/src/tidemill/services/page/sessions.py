"""CreatePageToken and DeletePageSessions: begin and end sessions of browsers, which act as the signer."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.page_sessions import PageSessions
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context


class SessionOperations(Operations):
    """Begins and ends sessions of the page."""

    def __init__(self, sessions: PageSessions) -> None:
        self._sessions = sessions

    async def create_page_token(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return a token with which one browser begins a session."""
        _check_key(context)
        token, expires_ms = await self._sessions.create_token(
            context.caller.access_key_id, read_only=request.get("ReadOnly", False)
        )
        return {"Token": token, "ExpirationTime": when(expires_ms)}

    async def delete_page_sessions(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """End all sessions of the key, and make its unused tokens worthless."""
        _check_key(context)
        return {"DeletedCount": await self._sessions.end_all(context.caller.access_key_id)}


def _check_key(context: Context) -> None:
    """Refuse a session of the page, which would make itself another one with more rights or a longer life."""
    if context.of_page:
        raise AwsError(
            f"{context.operation} must be signed with a key: a session of the page makes no sessions. Use `tidemill"
            " open`.",
            code="AccessDeniedException",
        )
