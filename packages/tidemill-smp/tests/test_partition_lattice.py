"""The parts of the dynamic programming, each compared with its definition."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from partition_graphs import graphs, is_whole
from smdistributed.modelparallel.tensorflow.partitioning.cost import Costs, CutOptions
from smdistributed.modelparallel.tensorflow.partitioning.groups import group
from smdistributed.modelparallel.tensorflow.partitioning.lattice import INFINITE, Downsets, Linear, Slices
from smdistributed.modelparallel.tensorflow.partitioning.orders import contraction, orders
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph


@given(graph=graphs(most=12), data=st.data())
@settings(max_examples=200, deadline=None)
def test_the_forest_finds_the_connected_slices(graph: UnitGraph, data: st.DataObject) -> None:
    groups = group(graph)
    order = data.draw(st.permutations(range(len(groups))))
    slices = Slices({each: i for i, each in enumerate(order)}, groups.neighbors)
    for begin in range(len(order)):
        for end in range(begin + 1, len(order) + 1):
            inside = {groups.members[each][0] for each in order[begin:end]}
            assert bool(slices.whole[begin][end - begin - 1]) == is_whole(graph, inside), (order, begin, end)


@given(graph=graphs(most=10))
@settings(max_examples=100, deadline=None)
def test_every_order_is_topological_and_complete(graph: UnitGraph) -> None:
    groups = group(graph)
    for order in orders(groups, few=False):
        place = {each: i for i, each in enumerate(order)}
        assert sorted(order) == list(range(len(groups)))
        assert all(place[p] < place[each] for each in order for p in groups.predecessors[each])


@given(graph=graphs(most=9))
@settings(max_examples=100, deadline=None)
def test_downsets_are_all_sets_closed_under_predecessors(graph: UnitGraph) -> None:
    groups = group(graph)
    found = Downsets(Costs(groups, CutOptions(partitions=2)), connected=False, upper=INFINITE).sets
    needs = [sum(1 << p for p in before) for before in groups.predecessors]
    closed = [s for s in range(1 << len(groups)) if all(need & ~s == 0 for g, need in enumerate(needs) if s >> g & 1)]
    assert sorted(found) == closed
    assert (found[0], found[-1]) == (0, (1 << len(groups)) - 1)


@given(graph=graphs(most=8, shape="skips"))
@settings(max_examples=100, deadline=None)
def test_a_slice_costs_the_same_as_a_row_of_an_order_and_as_a_step_between_sets(graph: UnitGraph) -> None:
    groups = group(graph)
    costs = Costs(groups, CutOptions(partitions=2))
    linear = Linear(costs, range(len(groups)), connected=False)
    sets = Downsets(costs, connected=False, upper=INFINITE)
    for state in range(len(groups)):
        one = linear.row(state, INFINITE)
        two = sets.row(sets.sets.index((1 << state) - 1), INFINITE)
        at = {sets.sets[target]: i for i, target in enumerate(two.targets)}
        for i, target in enumerate(one.targets):
            j = at[(1 << int(target)) - 1]
            for name in ("time", "static", "kept", "communication"):
                assert getattr(one, name)[i] == getattr(two, name)[j], (name, state, target)


@given(graph=graphs(most=9, shape="skips"), partitions=st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_contraction_makes_connected_partitions_in_order(graph: UnitGraph, partitions: int) -> None:
    groups = group(graph)
    partitions = min(partitions, len(groups))
    found = contraction(groups, [1] * len(groups), partitions)
    assert found is not None
    assert set(found) == set(range(partitions))
    spread = groups.spread(found)
    for part in range(partitions):
        assert is_whole(graph, {i for i, p in enumerate(spread) if p == part})
    assert all(found[p] <= found[g] for g in range(len(groups)) for p in groups.predecessors[g])
