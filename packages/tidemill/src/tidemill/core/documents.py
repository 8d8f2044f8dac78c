"""Dataclasses as JSON, by their fields: documents of the store, and the files between server and shim.

JSON is read leniently: unknown members are ignored, and missing members get their default. So a version can read what
an earlier one has stored, and files of a later one.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Document:
    """Base class of dataclasses that are stored. Each field is a member."""

    __slots__ = ()

    to_document = asdict
    """The JSON-able form for the store, if no field has a path (`members_of` converts these, too)."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Parse the output of `to_document`.

        Args:
            document: A value of JSON.

        Raises:
            KeyError: A member without a default is missing.
        """
        return parsed(cls, document)


def members_of(value: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON.

    Args:
        value: The dataclass. Its fields contain dataclasses, mappings, tuples, paths, enums and values of JSON.
        without: Names of fields to leave out.
    """
    return {each.name: _to_json(getattr(value, each.name)) for each in fields(value) if each.name not in without}


def parsed(kind: type[T], value: Mapping[str, Any]) -> T:
    """Return the dataclass whose fields are members of ``value``; other members are ignored.

    Args:
        kind: The dataclass.
        value: Output of `members_of`.

    Raises:
        KeyError: A field without a default is missing.
    """
    members = {}
    for name, required, parse in _fields(kind):
        if required or name in value:
            members[name] = value[name] if parse is None else parse(value[name])
    return kind(**members)


def _to_json(value: Any) -> Any:
    if is_dataclass(value):
        return members_of(value)
    if isinstance(value, Mapping):
        return {name: _to_json(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_to_json(each) for each in value]
    return str(value) if isinstance(value, Path | Enum) else value


@cache
def _fields(kind: type[Any]) -> list[tuple[str, bool, Callable[[Any], Any] | None]]:
    """Return each field's name, whether it has no default, and what parses its value; None if nothing has to."""
    hints = get_type_hints(kind)
    return [
        (each.name, each.default is MISSING and each.default_factory is MISSING, _parser(hints[each.name]))
        for each in fields(kind)
    ]


def _parser(hint: Any) -> Callable[[Any], Any] | None:
    kind, parts = get_origin(hint), get_args(hint)
    if type(None) in parts:
        inner = _parser(parts[0])
        return inner and (lambda value: None if value is None else inner(value))
    if kind is tuple:
        inner = _parser(parts[0])
        return tuple if inner is None else lambda value: tuple(map(inner, value))
    if kind is Mapping:
        inner = _parser(parts[1])
        return inner and (lambda value: {name: inner(each) for name, each in value.items()})
    if is_dataclass(hint):
        return lambda value: parsed(hint, value)
    if isinstance(hint, type) and hasattr(hint, "_make"):  # a named tuple
        return hint._make
    return hint if hint is int or (isinstance(hint, type) and issubclass(hint, Path | Enum)) else None
