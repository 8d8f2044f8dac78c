"""The service ``tidemill``: its operations are listed in ``wire/models/tidemill``, one file here for each noun."""

from collections.abc import Mapping

from tidemill.wire.exchange import Handler, Service


class PageService:
    """All handlers of the service.

    Args:
        *parts: Each has the handlers of one noun.
    """

    def __init__(self, *parts: Service) -> None:
        self._parts = parts

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {name: handler for part in self._parts for name, handler in part.handlers.items()}
