"""Which operation each method of a class of handlers performs."""

import re
from collections.abc import Mapping
from inspect import iscoroutinefunction

from tidemill.wire.exchange import Handler, Service


class Operations:
    """Handlers: each public method performs the operation whose method in boto3 has its name."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """The methods by operation, e.g. ``create_trial`` at ``CreateTrial``."""
        methods = (name for name in dir(type(self)) if iscoroutinefunction(getattr(type(self), name)))
        return {_operation(name): getattr(self, name) for name in methods if not name.startswith("_")}


class OperationGroups:
    """A service whose handlers are those of several classes."""

    def __init__(self, *parts: Service) -> None:
        self.handlers: Mapping[str, Handler] = {
            name: handler for part in parts for name, handler in part.handlers.items()
        }


def _operation(method: str) -> str:
    return re.sub(r"(?:^|_)(.)", lambda found: found[1].upper(), method)
