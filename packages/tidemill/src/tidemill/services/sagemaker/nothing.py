"""Lists of what cannot exist here, which are empty."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.compatibility.nothing import EMPTY_LISTS
from tidemill.wire.exchange import Context, Handler


class EmptyLists:
    """The operations that list what cannot exist here."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return dict.fromkeys(EMPTY_LISTS, self._list)

    async def _list(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {EMPTY_LISTS[context.operation]: []}
