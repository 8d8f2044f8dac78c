"""Determines the operation of a REST request by method, path, query and headers, according to the model."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from botocore.model import OperationModel

from tidemill.wire.protocols.models import service_model
from tidemill.wire.request import Request

__all__ = ["RestRouter", "Route"]

_PARAMETER = re.compile(r"\{(\w+)(\+?)\}")


@dataclass(frozen=True, slots=True)
class Route:
    """One operation, and the properties of its requests."""

    operation: str
    literals: tuple[tuple[str, str], ...]
    """Query parameters in the model's path, with their value or an empty text."""
    parameters: tuple[str, ...]
    """Query parameters that the operation requires."""
    headers: tuple[str, ...]
    """Headers that the operation requires."""
    handled: bool = False

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Sort key: more specific routes come first, and among equal ones those with a handler."""
        return len(self.literals), len(self.parameters) + len(self.headers), self.handled

    def fits(self, request: Request) -> bool:
        """Return whether the request has everything that the route requires."""
        query, headers = request.query_map, request.headers
        return (
            all(name in query and value in ("", query[name]) for name, value in self.literals)
            and all(name in query for name in self.parameters)
            and all(name in headers for name in self.headers)
        )


@dataclass(slots=True)
class _Place:
    pattern: re.Pattern[str]
    routes: list[Route] = field(default_factory=list)


class RestRouter:
    """The routes of one service.

    Args:
        service: botocore's name of the service.
        handled: Operations that have a handler.
    """

    def __init__(self, service: str, *, handled: Collection[str]) -> None:
        self._places: dict[str, dict[str, _Place]] = {}
        model = service_model(service)
        for name in model.operation_names:
            self._add(model.operation_model(name), handled=name in handled)
        for places in self._places.values():
            for place in places.values():
                place.routes.sort(key=lambda route: route.rank, reverse=True)

    def find(self, request: Request) -> tuple[str, Mapping[str, str]] | None:
        """Return the operation's name and its path parameters, or None."""
        for place in self._places.get(request.method, {}).values():
            found = place.pattern.fullmatch(request.raw_path)
            if found is None:
                continue
            for route in place.routes:
                if route.fits(request):
                    return route.operation, {
                        name: request.decode(text) for name, text in found.groupdict().items() if text is not None
                    }
        return None

    def knows(self, method: str) -> bool:
        """Return whether any operation uses ``method``."""
        return method in self._places

    def _add(self, operation: OperationModel, *, handled: bool) -> None:
        path, _, query = str(operation.http["requestUri"]).partition("?")
        places = self._places.setdefault(operation.http["method"], {})
        place = places.get(path)
        if place is None:
            place = places[path] = _Place(_path_pattern(path))
        parameters, headers = _required(operation)
        literals = tuple(parse_qsl(query, keep_blank_values=True))
        place.routes.append(Route(operation.name, literals, parameters, headers, handled))


def _required(operation: OperationModel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shape = operation.input_shape
    found: dict[str, list[str]] = {"querystring": [], "header": []}
    for name in shape.required_members if shape is not None else ():
        member = shape.members[name].serialization if shape is not None else {}
        location = member.get("location")
        if location in found:
            found[location].append(member.get("name", name))
    return tuple(found["querystring"]), tuple(name.lower() for name in found["header"])


def _path_pattern(path: str) -> re.Pattern[str]:
    parts: list[str] = []
    position = 0
    for found in _PARAMETER.finditer(path):
        parts.append(re.escape(path[position : found.start()]))
        parts.append(f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})")
        position = found.end()
    parts.append(re.escape(path[position:]))
    text = "".join(parts)
    return re.compile(text if text.endswith("/") else f"{text}/?" if not text.endswith(".+)") else text, re.DOTALL)
