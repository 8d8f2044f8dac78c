"""Cutting hand-made and random graphs into segments."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_graphs import Graph, owned_graphs, simulate, value_of
from smdistributed.modelparallel.tensorflow.engine.assign import ALL
from smdistributed.modelparallel.tensorflow.engine.plan import stages_of
from smdistributed.modelparallel.tensorflow.engine.schedule import make_schedule
from smdistributed.modelparallel.tensorflow.engine.segments import SegmentCut, SegmentMessage, cut

pytestmark = pytest.mark.smp_first


def cut_of(
    graph: Graph, owners: list[int], wanted: dict[int, int], *, effects=(), partitions=2, recompute=()
) -> SegmentCut:
    results = [((index, 0), where) for index, where in wanted.items()]
    return cut(
        graph.nodes,
        owners,
        num_partitions=partitions,
        results=results,
        effects=effects,
        recompute=frozenset(recompute),
    )


def layout(found: SegmentCut, graph: Graph) -> dict[tuple[int, int], list[str]]:
    return {(s.partition, s.level): [graph.nodes[index].name for index in s.nodes] for s in found.segments}


def test_forward_loss_and_backward_of_the_last_partition_are_one_segment():
    graph = Graph()
    x = graph.given("x")
    a = graph.add("a", x)
    b = graph.add("b", a)
    loss = graph.add("loss", b)
    db = graph.add("gradient_tape/b", loss, a)
    da = graph.add("gradient_tape/a", db, x)
    found = cut_of(graph, [ALL, 0, 1, ALL, 1, 0], {da: 0, db: 1})
    assert layout(found, graph) == {
        (0, 0): ["a"],
        (0, 2): ["gradient_tape/a"],
        (1, 1): ["b", "loss", "gradient_tape/b"],
    }
    assert found.messages == (SegmentMessage((a, 0), 0, 1), SegmentMessage((db, 0), 1, 0))
    kinds = {(s.partition, s.level): s.kind for s in found.segments}
    assert kinds == {(0, 0): "forward", (0, 2): "backward", (1, 1): "forward and backward"}


def test_a_value_may_return_to_an_earlier_partition():
    graph = Graph()
    x = graph.given("x")
    names = ["a", "b", "c", "d"]
    last, owners = x, [ALL]
    for place, name in enumerate(names):
        last = graph.add(name, last)
        owners.append(place % 2)
    found = cut_of(graph, owners, {last: 1})
    assert layout(found, graph) == {(0, 0): ["a"], (1, 1): ["b"], (0, 2): ["c"], (1, 3): ["d"]}


def test_a_replicated_op_runs_on_all_ranks_and_only_its_inputs_are_sent():
    graph = Graph()
    a = graph.add("a", graph.given("x"))
    output = graph.add("output", a)
    loss = graph.add("loss", output)
    found = cut_of(graph, [ALL, 1, ALL, ALL], {loss: ALL}, partitions=3)
    assert layout(found, graph) == {
        (0, 2 - 1): ["output", "loss"],
        (1, 0): ["a", "output", "loss"],
        (2, 1): ["output", "loss"],
    }
    assert found.messages == (SegmentMessage((a, 0), 1, 0), SegmentMessage((a, 0), 1, 2))


def test_unneeded_ops_are_left_out_but_side_effects_are_kept():
    graph = Graph()
    x = graph.given("x")
    wanted = graph.add("wanted", x)
    graph.add("idle", x)
    effect = graph.add("effect", x, stateful=True)
    found = cut_of(graph, [ALL, 0, 0, 1], {wanted: 0}, effects=[effect])
    assert layout(found, graph) == {(0, 0): ["wanted"], (1, 0): ["effect"]}


def test_control_edges_apply_within_a_partition_and_not_between_two():
    graph = Graph()
    x = graph.given("x")
    before = graph.add("before", x, stateful=True)
    elsewhere = graph.add("elsewhere", x, stateful=True)
    after = graph.add("after", x, controls=[before, elsewhere])
    found = cut_of(graph, [ALL, 0, 1, 0], {after: 0})
    assert layout(found, graph) == {(0, 0): ["before", "after"]}
    assert found.messages == ()


def test_a_control_edge_keeps_a_node_from_an_earlier_level():
    graph = Graph()
    x = graph.given("x")
    there = graph.add("there", x)
    late = graph.add("late", there, stateful=True)
    after = graph.add("after", x, controls=[late])
    found = cut_of(graph, [ALL, 1, 0, 0], {after: 0})
    assert layout(found, graph) == {(1, 0): ["there"], (0, 1): ["late", "after"]}


def test_an_op_that_is_used_only_later_is_computed_later():
    graph = Graph()
    x, handle = graph.given("x"), graph.given("handle")
    a = graph.add("a", x)
    read = graph.add("read", handles=[handle], type="ReadVariableOp", stateful=True)
    factor = graph.add("factor", read)
    b = graph.add("b", a)
    c = graph.add("c", b, factor)
    drawn = graph.add("drawn", x, type="RandomUniform", stateful=True)
    d = graph.add("d", c, drawn)
    found = cut_of(graph, [ALL, ALL, 0, 0, 0, 1, 0, 0, 0], {d: 0})
    # A random op is not moved: when it runs must not depend on the cut.
    assert layout(found, graph) == {(0, 0): ["a", "drawn"], (0, 2): ["read", "factor", "c", "d"], (1, 1): ["b"]}


def test_an_op_whose_result_is_sent_is_not_moved_to_a_later_segment():
    graph = Graph()
    x = graph.given("x")
    a = graph.add("a", x)
    b = graph.add("b", a)
    c = graph.add("c", b, a)
    found = cut_of(graph, [ALL, 0, 1, 0], {c: 0})
    assert layout(found, graph) == {(0, 0): ["a"], (0, 2): ["c"], (1, 1): ["b"]}


def test_constants_are_copied_to_where_they_are_used():
    graph = Graph()
    x = graph.given("x")
    two = graph.constant("two")
    four = graph.add("four", two, two)
    a = graph.add("a", x, four)
    b = graph.add("b", a, four)
    c = graph.add("c", b, two)
    found = cut_of(graph, [ALL, ALL, ALL, 0, 1, 0], {c: 0})
    assert layout(found, graph) == {(0, 0): ["two", "four", "a"], (1, 1): ["two", "four", "b"], (0, 2): ["two", "c"]}
    assert [message.output for message in found.messages] == [(a, 0), (b, 0)]
    assert all(two not in {source for source, _ in segment.inputs} for segment in found.segments)


def test_a_constant_can_be_the_result():
    graph = Graph()
    two = graph.constant("two")
    a = graph.add("a", graph.given("x"))
    found = cut_of(graph, [ALL, ALL, 0], {two: ALL, a: 0})
    assert layout(found, graph) == {(0, 0): ["two", "a"], (1, 0): ["two"]}


def _trained() -> tuple[Graph, list[int], dict[str, int]]:
    """Return two layers on partition 0 with a random mask between them, one on partition 1, and the backward pass."""
    graph = Graph()
    place = {}

    def add(name, *inputs, **options):
        place[name] = graph.add(name, *(place[source] for source in inputs), **options)

    add("x", type="Placeholder")
    add("handle", type="Placeholder")
    place["read"] = graph.add("read", handles=[place["handle"]], type="ReadVariableOp", stateful=True)
    add("one", "x", "read")
    add("mask", "one", type="RandomUniform", stateful=True)
    add("masked", "one", "mask")
    add("two", "masked")
    add("head", "two")
    add("gradient_tape/head", "head")
    add("gradient_tape/two", "gradient_tape/head", "two")
    add("gradient_tape/masked", "gradient_tape/two", "mask", "masked")
    add("gradient_tape/one", "gradient_tape/masked", "one", "read")
    owners = [ALL, ALL, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0]
    return graph, owners, place


def test_recomputing_keeps_only_the_inputs_of_the_forward_segment_and_random_draws():
    graph, owners, place = _trained()
    last = place["gradient_tape/one"]
    names = {index: name for name, index in place.items()}
    kept = cut_of(graph, owners, {last: 0}).of(0)[2]
    again = cut_of(graph, owners, {last: 0}, recompute=[0]).of(0)[2]
    received = "gradient_tape/head"
    assert {names[index] for index, _ in kept.inputs} == {received, "two", "mask", "masked", "one", "read"}
    assert {names[index] for index, _ in again.inputs} == {received, "x", "read", "mask"}
    assert {"one", "masked", "two"} < {names[index] for index in again.nodes}
    assert again.is_recomputed and again.kind == "backward" and not kept.is_recomputed
    forward = cut_of(graph, owners, {last: 0}, recompute=[0]).of(0)[0]
    assert {names[index] for index, _ in forward.outputs} == {"two", "mask", "read"}
    assert cut_of(graph, owners, {last: 0}, recompute=[1]).of(0)[2] == kept


def test_a_later_segment_never_reads_a_variable_again_since_the_caller_may_have_written_it():
    graph, owners, place = _trained()
    last, read = place["gradient_tape/one"], place["read"]
    for recompute in ([], [0]):
        forward, backward = (cut_of(graph, owners, {last: 0}, recompute=recompute).of(0)[level] for level in (0, 2))
        assert read in forward.nodes and read not in backward.nodes
        assert (read, 0) in forward.outputs and (read, 0) in backward.inputs


def test_a_value_read_from_a_variable_that_the_step_writes_is_kept():
    graph, owners, place = _trained()
    write = graph.add("write", place["one"], handles=[place["handle"]], type="AssignVariableOp", stateful=True)
    last = place["gradient_tape/one"]
    again = cut_of(graph, [*owners, 0], {last: 0}, recompute=[0], effects=[write]).of(0)[2]
    assert (place["read"], 0) in again.inputs


@settings(max_examples=200, deadline=None)
@given(owned_graphs(), st.integers(1, 4), st.sampled_from(["interleaved", "simple"]), st.booleans())
def test_any_graph_in_any_partitions_computes_the_same(drawn, num_microbatches, pipeline, recompute):
    nodes, owners, num_partitions, results = drawn
    everywhere = frozenset(range(num_partitions)) if recompute else frozenset()
    found = cut(nodes, owners, num_partitions=num_partitions, results=results, effects=[], recompute=everywhere)
    schedule = make_schedule(
        stages_of(found), num_partitions=num_partitions, num_microbatches=num_microbatches, pipeline=pipeline
    )
    held = simulate(nodes, found, schedule, num_partitions)
    values = value_of(nodes)
    for output, where in results:
        for partition in range(num_partitions) if where == ALL else [where]:
            assert held[partition][output] == values[output[0]]
