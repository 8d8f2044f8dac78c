"""Flattens and rebuilds nested arguments.

A step function needs three features that `tf.nest` does not have: sets are flattened (they contain tensors as
`tensor.ref()`, since tensors are not hashable), a structure has a hashable key, and containers of user-defined classes
are rebuilt in their own class. Dataclasses are leaves, as in `tf.nest`.
"""

import collections
import copy
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class StructureNode(Protocol):
    """A structure without its leaves."""

    def key(self) -> Hashable:
        """Return a key that is equal for equal structures."""

    def build(self, values: Sequence[Any]) -> Any:
        """Rebuild the structure with `values` as its leaves."""


Visitor = Callable[[Any, str], StructureNode]
"""Function that `take_apart` calls with each leaf and its path, such as `x['image'][0]`."""


@dataclass(frozen=True)
class LeafNode:
    """The place of one leaf."""

    index: int

    def key(self) -> Hashable:
        """See `StructureNode`."""
        return self.index

    def build(self, values: Sequence[Any]) -> Any:
        """See `StructureNode`.

        Args:
            values: All leaves of the argument.

        Returns:
            One of them.
        """
        return values[self.index]


@dataclass(frozen=True)
class ContainerNode:
    """A container and the structures of its children."""

    kind: type
    names: tuple[Hashable, ...]
    """The keys of a mapping; the positions of anything else."""
    children: tuple[StructureNode, ...]
    make: Callable[[list[Any]], Any]
    """Rebuilds the container from the children's values."""

    def key(self) -> Hashable:
        """See `StructureNode`."""
        return self.kind, tuple(map(static_key, self.names)), tuple(child.key() for child in self.children)

    def build(self, values: Sequence[Any]) -> Any:
        """See `StructureNode`."""
        return self.make([child.build(values) for child in self.children])


class Identity:
    """A key for unhashable objects, equal only to itself. It keeps the object alive, so that its id is not reused."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value


def static_key(value: object) -> Hashable:
    """Return a key for a Python value: its value and type if it is hashable (1, 1.0 and True differ), else its id.

    Args:
        value: Any object.
    """
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, complex):
        return complex, value.real.hex(), value.imag.hex()
    try:
        hash(value)
    except TypeError:
        return Identity(value)
    return type(value), value


def take_apart(
    value: Any, path: str, visit: Visitor, is_leaf: Callable[[Any], bool] = lambda _: False
) -> StructureNode:
    """Flatten lists, tuples, namedtuples, mappings and sets, and visit their leaves.

    Args:
        path: Its name in error messages.
        visit: Called with each leaf, in an order that is equal on all ranks if Python's own iteration order is.
        is_leaf: Returns True for containers to treat as leaves.
    """
    if is_leaf(value):
        return visit(value, path)
    if isinstance(value, Mapping):
        return _take_mapping_apart(value, path, visit, is_leaf)
    if isinstance(value, AbstractSet):
        return _take_set_apart(value, path, visit, is_leaf)
    if isinstance(value, (list, tuple)):
        children = tuple(take_apart(item, f"{path}[{index}]", visit, is_leaf) for index, item in enumerate(value))
        return ContainerNode(type(value), tuple(range(len(children))), children, _maker_of_sequence(value))
    if _is_reference(value):
        child = take_apart(value.deref(), path, visit, is_leaf)
        return ContainerNode(type(value), (0,), (child,), _make_reference)
    return visit(value, path)


def _take_mapping_apart(
    value: Mapping[Any, Any], path: str, visit: Visitor, is_leaf: Callable[[Any], bool]
) -> StructureNode:
    names = tuple(value)
    kind: Any = type(value)
    children = tuple(take_apart(value[name], f"{path}[{name!r}]", visit, is_leaf) for name in names)

    def make(items: list[Any]) -> Any:
        pairs = dict(zip(names, items, strict=True))
        if kind in (dict, collections.OrderedDict):
            return kind(pairs)
        if isinstance(value, MutableMapping):
            same = copy.copy(value)
            for name, item in pairs.items():
                same[name] = item
            return same
        return kind(pairs)  # an immutable mapping is constructed from its pairs, as in tf.nest

    return ContainerNode(kind, names, children, make)


def _take_set_apart(
    value: AbstractSet[Any], path: str, visit: Visitor, is_leaf: Callable[[Any], bool]
) -> StructureNode:
    items = sorted(value, key=_rank_in_set)
    children = tuple(take_apart(item, f"{path}{{{index}}}", visit, is_leaf) for index, item in enumerate(items))
    kind: Any = frozenset if isinstance(value, frozenset) else set
    return ContainerNode(kind, tuple(range(len(children))), children, kind)


def _rank_in_set(item: Any) -> tuple[str, str]:
    # The order of a set differs between processes: strings hash by a seed of the process, tensors by their address.
    # The leaves become inputs of a graph that all ranks must build alike, so sort by properties equal on all ranks.
    if _is_reference(item):
        tensor = item.deref()
        return "tensor", f"{getattr(tensor, 'dtype', '')}{getattr(tensor, 'shape', '')}"
    if isinstance(item, (str, bytes, int, float, np.generic)):
        return type(item).__name__, repr(item)
    return type(item).__qualname__, ""


def _maker_of_sequence(value: Sequence[Any]) -> Callable[[list[Any]], Any]:
    kind: Any = type(value)
    if hasattr(value, "_fields"):
        return lambda items: kind(*items)
    if isinstance(value, tuple):
        return kind
    return list  # TensorFlow's tracking lists wrap a plain list


def _is_reference(value: object) -> bool:
    return type(value).__name__ == "Reference" and callable(getattr(value, "deref", None))


def _make_reference(items: list[Any]) -> Any:
    # A Python value has no ref(); it can be hashed as it is.
    return items[0].ref() if hasattr(items[0], "ref") else items[0]
