"""Units that stay together, and the treatment of cycles."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partition_graphs import chain, graphs
from smdistributed.modelparallel.tensorflow.partitioning.groups import Anchor, group
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, Unit, UnitGraph

pytestmark = pytest.mark.smp_first


def linked(names: str, edges: str, **shared: str) -> UnitGraph:
    """Return a graph of units named by letters; `ab bc` are edges; `w="ac"` means that a and c use w."""
    return UnitGraph(
        tuple(Unit(name=n, variables=frozenset(w for w, users in shared.items() if n in users)) for n in names),
        tuple(Edge(a, b, 10) for a, b in edges.split()),
    )


def members(graph: UnitGraph, anchor: Anchor = Anchor.COLLAPSE) -> list[str]:
    groups = group(graph, anchor=anchor)
    return ["".join(graph.units[i].name for i in each) for each in groups.members]


def test_units_that_share_a_variable_are_one_group() -> None:
    assert members(linked("abcd", "ab bc cd", w="bc")) == ["a", "bc", "d"]


def test_sharing_is_transitive() -> None:
    assert members(linked("abcd", "ab ac ad", v="bc", w="cd")) == ["a", "bcd"]


def test_units_of_one_colocation_group_are_one_group() -> None:
    a, b, c = (Unit(name=n, colocation=frozenset({"loc"} if n != "b" else ())) for n in "abc")
    assert members(UnitGraph((a, b, c), (Edge("a", "b", 1),))) == ["ac", "b"]


def test_a_variable_and_a_colocation_group_of_one_name_are_two_things() -> None:
    a = Unit(name="a", variables=frozenset({"x"}))
    b = Unit(name="b", colocation=frozenset({"x"}))
    assert members(UnitGraph((a, b), (Edge("a", "b", 1),))) == ["a", "b"]


def test_a_cycle_closed_by_sharing_is_collapsed_with_all_its_units() -> None:
    graph = linked("abcde", "ab bc cd de", w="bd")
    assert members(graph) == ["a", "bcd", "e"]
    assert not group(graph).revisits


def test_two_cycles_that_touch_are_one() -> None:
    assert members(linked("abcde", "ab bc cd de", v="ac", w="bd")) == ["abcd", "e"]


def test_with_revisiting_only_the_sharers_are_joined_at_the_position_of_their_anchor() -> None:
    graph = linked("abcde", "ab bc cd de", w="bd")
    assert members(graph, Anchor.FIRST) == ["a", "bd", "c", "e"]
    assert members(graph, Anchor.LAST) == ["a", "c", "bd", "e"]
    first = group(graph, anchor=Anchor.FIRST)
    assert first.revisits
    assert first.predecessors[2] == (1,)
    assert 2 not in first.predecessors[1]
    assert 2 in first.neighbors[1]


def test_edges_of_one_tensor_are_one_message_per_group_and_of_the_largest_size() -> None:
    graph = UnitGraph(
        tuple(Unit(name=n) for n in "abc"),
        (Edge("a", "b", 5), Edge("a", "c", 7), Edge("a", "c", 9, "other"), Edge("b", "c", 1)),
    )
    found = [(t.producer, t.consumers, t.bytes) for t in group(graph).tensors]
    assert found == [(0, (1, 2), 7), (0, (2,), 9), (1, (2,), 1)]


def test_graphs_without_branches_are_chains() -> None:
    assert group(chain([1, 2, 3])).is_chain
    assert group(linked("abcd", "ab bc cd", w="bc")).is_chain
    assert not group(linked("abc", "ab bc ac")).is_chain
    assert not group(linked("abc", "ab")).is_chain
    assert not group(linked("abcd", "ab bc cd", w="bd"), anchor=Anchor.FIRST).is_chain


@given(graph=graphs(most=9), data=st.data())
@settings(max_examples=150, deadline=None)
def test_collapsed_groups_are_acyclic_complete_and_keep_sharers_together(graph: UnitGraph, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.frozensets(st.sampled_from("vwxy")), min_size=9, max_size=9))
    units = tuple(
        Unit(name=u.name, variables=v if len(v) < 2 else frozenset(sorted(v)[:1]))
        for u, v in zip(graph.units, names, strict=False)
    )
    shared = UnitGraph(units, graph.edges)
    groups = group(shared)
    assert sorted(i for each in groups.members for i in each) == list(range(len(units)))
    for edge in shared.edges:
        a, b = (groups.of[shared.index[end]] for end in (edge.source, edge.target))
        assert a <= b, "numbers follow the edges"
    for i, one in enumerate(units):
        for j, other in enumerate(units):
            if one.variables & other.variables:
                assert groups.of[i] == groups.of[j]
