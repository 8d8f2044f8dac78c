"""DeleteObjects: its entries are allowed or denied separately, and each denied entry becomes an error in the reply."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.core.policy import Permission
from tidemill.errors import AwsError
from tidemill.services.authorization.s3 import delete_entry
from tidemill.wire.exchange import Context, Handler, Reply

__all__ = ["needs_of_entries", "split_batch"]


def needs_of_entries(request: Mapping[str, Any], context: Context) -> list[tuple[Permission, ...]] | None:
    """Return the permissions per entry, or None for a request that is allowed or denied as a whole."""
    if (context.service, context.operation) != ("s3", "DeleteObjects"):
        return None
    return [delete_entry(request["Bucket"], entry) for entry in _entries(request)] or None


async def split_batch(
    handler: Handler, request: dict[str, Any], context: Context, refused: Sequence[AwsError | None]
) -> Mapping[str, Any] | Reply:
    """Call the handler with the allowed entries and add an error for each denied entry.

    Args:
        handler: Handler of DeleteObjects.
        request: Input members.
        context: Context of the request.
        refused: For each entry the error, or None if it is allowed.
    """
    entries = _entries(request)
    allowed = [entry for entry, error in zip(entries, refused, strict=True) if error is None]
    errors = [
        {"Key": entry["Key"], "Code": error.code, "Message": error.message}
        for entry, error in zip(entries, refused, strict=True)
        if error is not None
    ]
    if not allowed:
        return {"Deleted": [], "Errors": errors}
    answer = await handler({**request, "Delete": {**request["Delete"], "Objects": allowed}}, context)
    if isinstance(answer, Reply):
        return Reply(members=_joined(answer.members, errors), status=answer.status, headers=answer.headers)
    return _joined(answer, errors)


def _joined(members: Mapping[str, Any], errors: list[dict[str, str]]) -> dict[str, Any]:
    return {**members, "Errors": [*members.get("Errors", []), *errors]}


def _entries(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (request.get("Delete") or {}).get("Objects") or []
