"""Documents of the store: what earlier versions have stored is read, and written again unchanged."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.documents import Document, members_of, parsed

STORED = [tuple(row) for row in json.loads((Path(__file__).parent / "stored_documents.json").read_text())]
"""Documents that were written before the classes shared one form: of each class with all fields, and with the least."""


class Color(StrEnum):
    RED = "Red"
    BLUE = "Blue"


class Pair(NamedTuple):
    left: str
    right: int


@dataclass(frozen=True, slots=True)
class Leaf:
    color: Color
    at: Path
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Document):
    name: str
    leaf: Leaf
    last: Leaf | None = None
    color: Color | None = None
    leaves: tuple[Leaf, ...] = ()
    pairs: tuple[Pair, ...] = ()
    colors: tuple[Color, ...] = ()
    by_name: Mapping[str, Leaf] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)
    known: bool = False


def leaves() -> st.SearchStrategy[Leaf]:
    paths = st.text("abc/", min_size=1, max_size=5).map(Path)
    return st.builds(Leaf, st.sampled_from(Color), paths, st.none() | st.integers())


def json_values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    )


def trees() -> st.SearchStrategy[Tree]:
    return st.builds(
        Tree,
        name=st.text(max_size=5),
        leaf=leaves(),
        last=st.none() | leaves(),
        color=st.none() | st.sampled_from(Color),
        leaves=st.lists(leaves(), max_size=3).map(tuple),
        pairs=st.lists(st.builds(Pair, st.text(max_size=3), st.integers()), max_size=3).map(tuple),
        colors=st.lists(st.sampled_from(Color), max_size=3).map(tuple),
        by_name=st.dictionaries(st.text(max_size=3), leaves(), max_size=3),
        free=st.dictionaries(st.text(max_size=3), json_values(), max_size=3),
        known=st.booleans(),
    )


@pytest.mark.parametrize(("kind", "document"), STORED, ids=[f"{row[0]}-{i % 2}" for i, row in enumerate(STORED)])
def test_a_stored_document_of_an_earlier_version_is_read_and_written_unchanged(
    kind: str, document: dict[str, Any]
) -> None:
    module, _, name = kind.partition(":")
    read = getattr(importlib.import_module(f"tidemill.{module}"), name).from_document
    stored = read(document)
    written = json.loads(json.dumps(stored.to_document()))
    assert {name: written[name] for name in document} == document
    assert all(value is None for name, value in written.items() if name not in document)
    assert read(written) == stored


@given(trees())
def test_every_value_survives_the_way_through_json(tree: Tree) -> None:
    read = Tree.from_document(json.loads(json.dumps(members_of(tree))))
    assert read == tree == Tree.from_document(tree.to_document())
    assert [type(each) for each in read.pairs] == [Pair] * len(tree.pairs)
    assert [type(each) for each in read.colors] == [Color] * len(tree.colors)


@given(trees(), st.sets(st.sampled_from(("last", "color", "leaves", "pairs", "colors", "by_name", "free", "known"))))
def test_missing_members_get_their_default_and_unknown_ones_are_ignored(tree: Tree, missing: set[str]) -> None:
    document = {name: value for name, value in tree.to_document().items() if name not in missing}
    read = Tree.from_document({**document, "of_a_later_version": {"a": 1}})
    least = Tree(name="", leaf=tree.leaf)
    for name in document:
        assert getattr(read, name) == getattr(tree, name)
    for name in missing:
        assert getattr(read, name) == getattr(least, name)


def test_a_document_without_a_member_that_has_no_default_is_refused() -> None:
    with pytest.raises(KeyError, match="leaf"):
        Tree.from_document({"name": "a"})
    with pytest.raises(ValueError, match="Green"):
        parsed(Leaf, {"color": "Green", "at": "a"})


def test_fields_can_be_left_out() -> None:
    assert members_of(Leaf(Color.RED, Path("a"), 1), without=("at",)) == {"color": "Red", "size": 1}
