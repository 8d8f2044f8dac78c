"""The traversal of botocore's shapes, from their innermost parts outward.

`fold` visits a shape and everything inside it, and passes each part to a `Build`, innermost first, together with the
results for the parts inside. Parsers, writers and checks are functions built this way, once per shape of an operation
(`Functions`). `members` lists the members of a structure with their paths, by the same traversal.

Paths are tuples of steps: a member's name, ``[]`` for the items of a list, ``{}`` for the values of a map.
`render` formats them as ``InputDataConfig[].DataSource.S3DataSource.S3Uri``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from botocore.model import ListShape, MapShape, Shape, StructureShape

ITEM = "[]"
VALUE = "{}"

Path = tuple[str, ...]
T = TypeVar("T")


class Build(Protocol[T]):
    """Builds a result for each part of a shape. ``at`` is the part's path from the outermost shape."""

    def structure(self, shape: StructureShape, inside: Mapping[str, T], at: Path) -> T:
        """Build a structure from the results of its members, by name in the model's order."""

    def list(self, shape: ListShape, item: T, at: Path) -> T:
        """Build a list from the result of its items."""

    def map(self, shape: MapShape, key: T, value: T, at: Path) -> T:
        """Build a map from the results of its keys and values."""

    def scalar(self, shape: Shape, at: Path) -> T:
        """Build a string, number, boolean, timestamp or blob."""

    def again(self, shape: StructureShape, result: Callable[[], T], at: Path) -> T:
        """Represent a structure inside itself. ``result`` returns the structure's result when the fold has ended."""


class Functions:
    """Base class of builders that create a function for each part of a shape; None if a part needs no work.

    A structure inside itself calls the function of the outer one.
    """

    def again(
        self, shape: StructureShape, result: Callable[[], Callable[..., Any] | None], at: Path
    ) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            function = result()
            return None if function is None else function(*arguments)

        return call


@dataclass(frozen=True, slots=True)
class Place:
    """A member of a structure: its path and its shape."""

    path: Path
    shape: Shape

    def __str__(self) -> str:
        return render(self.path)


def fold(shape: Shape, build: Build[T]) -> T:
    """Build a shape from its innermost parts outward.

    Args:
        shape: Any shape; a recursive shape is entered once.
        build: Creates the result of each part.
    """
    return _fold(shape, build, (), {})


def members(shape: Shape | None) -> tuple[Place, ...]:
    """Return every member of a structure and of all structures inside it, each before its own members.

    Args:
        shape: An operation's input or output. None, botocore's value for an operation without one, has no members.
    """
    return () if shape is None else fold(shape, _Members())


def render(path: Path) -> str:
    """Format a path with dots, e.g. ``Tags[].Key``.

    Args:
        path: Names of members, `ITEM` and `VALUE`.
    """
    text = ""
    for step in path:
        text += step if step in (ITEM, VALUE) or not text else f".{step}"
    return text


def _fold(shape: Shape, build: Build[T], at: Path, entered: dict[str, list[T]]) -> T:
    if isinstance(shape, StructureShape):
        return _fold_structure(shape, build, at, entered)
    if isinstance(shape, ListShape):
        return build.list(shape, _fold(shape.member, build, (*at, ITEM), entered), at)
    if isinstance(shape, MapShape):
        key = _fold(shape.key, build, at, entered)
        return build.map(shape, key, _fold(shape.value, build, (*at, VALUE), entered), at)
    return build.scalar(shape, at)


def _fold_structure(shape: StructureShape, build: Build[T], at: Path, entered: dict[str, list[T]]) -> T:
    outer = entered.get(shape.name)
    if outer is not None:
        return build.again(shape, lambda: outer[0], at)
    results: list[T] = []
    inner = {**entered, shape.name: results}
    inside = {name: _fold(member, build, (*at, name), inner) for name, member in shape.members.items()}
    results.append(build.structure(shape, inside, at))
    return results[0]


class _Members:
    """Collects members. The result for a part is the tuple of the members inside it."""

    def structure(self, shape: StructureShape, inside: Mapping[str, tuple[Place, ...]], at: Path) -> tuple[Place, ...]:
        found: list[Place] = []
        for name, deeper in inside.items():
            found += (Place((*at, name), shape.members[name]), *deeper)
        return tuple(found)

    def list(self, shape: ListShape, item: tuple[Place, ...], at: Path) -> tuple[Place, ...]:
        return item

    def map(self, shape: MapShape, key: tuple[Place, ...], value: tuple[Place, ...], at: Path) -> tuple[Place, ...]:
        return value

    def scalar(self, shape: Shape, at: Path) -> tuple[Place, ...]:
        return ()

    def again(self, shape: StructureShape, result: Callable[[], tuple[Place, ...]], at: Path) -> tuple[Place, ...]:
        return ()
