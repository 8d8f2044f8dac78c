"""Lists of what cannot exist here, which are empty."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.compatibility.nothing import EMPTY_LISTS
from tidemill.wire.exchange import Context, Handler


def _nothing(member: str) -> Handler:
    async def handle(request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {member: []}

    return handle


EMPTY_HANDLERS: Mapping[str, Handler] = {operation: _nothing(member) for operation, member in EMPTY_LISTS.items()}
"""By operation."""
