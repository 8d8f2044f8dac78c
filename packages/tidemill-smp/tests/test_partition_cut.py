"""The cut compared with all cuts of small graphs, and on known difficult graphs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings

from partition_graphs import all_cuts, best, chain, graphs, is_legal, measures, options
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.cost import Costs, CutOptions
from smdistributed.modelparallel.tensorflow.partitioning.cut import cut
from smdistributed.modelparallel.tensorflow.partitioning.groups import group
from smdistributed.modelparallel.tensorflow.partitioning.search import SearchPosition, first_key, refine
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, ModelOutput, Unit, UnitGraph

SPEED = CutOptions(partitions=2, microbatches=4, optimize="speed")
MEMORY = CutOptions(partitions=2, microbatches=4)


# --- against all cuts ---------------------------------------------------------------------------------------------


@given(graph=graphs(most=9, shape="chain"), chosen=options())
@settings(max_examples=200, deadline=None)
def test_a_chain_is_cut_exactly(graph: UnitGraph, chosen: CutOptions) -> None:
    found = cut(graph, chosen)
    first, second, third = best(graph, chosen)
    assert found.exact
    assert is_legal(graph, found.assignment, chosen)
    mine = measures(graph, found.assignment, chosen)
    assert mine[0] <= first + int(first * chosen.slack)
    assert mine[1:] == (second, third)


@given(graph=graphs(most=9, shape="skips"), chosen=options())
@settings(max_examples=200, deadline=None)
def test_a_chain_with_skips_is_cut_exactly(graph: UnitGraph, chosen: CutOptions) -> None:
    found = cut(graph, chosen)
    assert is_legal(graph, found.assignment, chosen)
    assert found.exact
    first, second, third = best(graph, chosen)
    mine = measures(graph, found.assignment, chosen)
    assert mine[0] <= first + int(first * chosen.slack)
    assert mine[1:] == (second, third)


@given(graph=graphs(most=7), chosen=options())
@settings(max_examples=200, deadline=None)
def test_any_small_graph_is_cut_within_three_per_cent_or_the_slack(graph: UnitGraph, chosen: CutOptions) -> None:
    found = cut(graph, chosen)
    assert is_legal(graph, found.assignment, chosen)
    first = best(graph, chosen)[0]
    assert measures(graph, found.assignment, chosen)[0] <= first * (1 + max(chosen.slack, 0.03))


@given(graph=graphs(most=8, shape="skips"), chosen=options())
@settings(max_examples=200, deadline=None)
def test_local_search_alone_ends_legal_and_no_worse_than_it_began(graph: UnitGraph, chosen: CutOptions) -> None:
    groups = group(graph)
    costs = Costs(groups, chosen)
    connected = chosen.contiguous
    every = list(all_cuts(graph, chosen))
    for start in (every[0], every[len(every) // 2]):
        # Groups of single units may be numbered differently from the units.
        parts = [start[members[0]] for members in groups.members]
        position = SearchPosition(costs, parts, connected=connected)
        before = first_key(position)
        refine(position, first_key)
        assert first_key(position) <= before
        assert is_legal(graph, groups.spread(position.parts), chosen)
        evaluation = costs.evaluate(position.parts)
        assert (tuple(position.time), tuple(position.bytes)) == (evaluation.time_ns, evaluation.bytes)


@pytest.mark.parametrize(("connected", "expected"), [(True, [0, 0, 0, 1]), (False, [0, 0, 1, 1])])
def test_local_search_keeps_partitions_connected(connected: bool, expected: list[int]) -> None:
    # Two inputs are connected only by their sum, which would better be placed with its successors.
    times = {"a": 100, "b": 100, "sum": 150, "end": 10}
    units = tuple(Unit(name=name, forward_us=us) for name, us in times.items())
    graph = UnitGraph(units, (Edge("a", "sum", 1), Edge("b", "sum", 1), Edge("sum", "end", 1)))
    costs = Costs(group(graph), replace(SPEED, message_us=0.0))
    position = SearchPosition(costs, [0, 0, 0, 1], connected=connected)
    refine(position, first_key)
    assert position.parts == expected


@pytest.mark.parametrize("partitions", [2, 3, 4])
def test_longest_stage_is_within_three_per_cent_of_the_best_manual_cut(partitions: int) -> None:
    skewed = chain([5, 900, 20, 30, 1500, 40, 40, 700, 10, 350, 60, 5, 5, 800])
    skip = replace(skewed, edges=(*skewed.edges, Edge("u1", "u12", 400_000, "skip"), Edge("u0", "u9", 4_000)))
    disagreeing = chain(
        [30, 2000, 2000, 1500, 40, 900, 900, 20], [80_000_000, 10, 10, 10, 9_000_000, 10, 10, 40_000_000]
    )
    chosen = replace(SPEED, partitions=partitions, microbatches=8)
    for graph in (skewed, skip, disagreeing):
        found = cut(graph, chosen)
        assert measures(graph, found.assignment, chosen)[0] <= 1.03 * best(graph, chosen)[0]


# --- time against bytes -------------------------------------------------------------------------------------------


def embedding_and_convolutions() -> UnitGraph:
    """Return a graph with all bytes at one end, and all time at the other."""
    return chain([10, 10, 800, 800, 800, 800], [60_000_000, 60_000_000, 400_000, 400_000, 400_000, 400_000])


def test_speed_and_memory_cut_a_model_where_time_and_bytes_disagree_each_to_its_own_end() -> None:
    graph = embedding_and_convolutions()
    assert cut(graph, SPEED).assignment == (0, 0, 0, 0, 1, 1)
    assert cut(graph, replace(MEMORY, memory_slack=0.0)).assignment == (0, 1, 1, 1, 1, 1)


def test_within_the_slack_of_the_first_measure_the_second_decides() -> None:
    graph = chain([100, 100, 100, 100], [1000, 1, 1, 1003])
    tight, loose = replace(MEMORY, memory_slack=0.0), replace(MEMORY, memory_slack=0.05)
    assert {cut(graph, tight).assignment, cut(graph, loose).assignment} == {(0, 0, 0, 1), (0, 0, 1, 1)}
    assert cut(graph, loose).assignment == (0, 0, 1, 1)


@pytest.mark.parametrize("partitions", [2, 4])
def test_memory_balances_the_weights_of_the_partitions(partitions: int) -> None:
    generator = random.Random(7)
    graph = chain([100] * 24, [generator.randrange(1_000_000, 9_000_000) for _ in range(24)])
    chosen = CutOptions(partitions=partitions, microbatches=4)
    whole = sum(unit.parameter_bytes for unit in graph.units)
    assert max(cut(graph, chosen).evaluation.bytes) <= (1 / partitions + 0.10) * whole


def test_activations_count_once_per_live_microbatch() -> None:
    units = tuple(Unit(name=f"u{i}", activation_bytes=1000) for i in range(9))
    graph = UnitGraph(units, tuple(Edge(f"u{i}", f"u{i + 1}", 1) for i in range(8)))
    chosen = CutOptions(partitions=2, microbatches=8, pipeline="simple", memory_slack=0.0)
    assert [chosen.alive(p) for p in (0, 1)] == [8, 1]
    assert cut(graph, chosen).assignment.count(0) == 1
    assert cut(graph, replace(chosen, pipeline="interleaved")).assignment.count(0) == 3
    assert cut(graph, replace(chosen, active_microbatches=1)).assignment.count(0) in (4, 5)


def test_alive_follows_the_schedule() -> None:
    four = CutOptions(partitions=4, microbatches=3)
    assert [four.alive(p) for p in range(4)] == [3, 3, 2, 1]
    assert [replace(four, active_microbatches=2).alive(p) for p in range(4)] == [2, 2, 2, 1]
    assert [replace(four, pipeline="simple").alive(p) for p in range(4)] == [3, 3, 3, 1]


# --- communication ------------------------------------------------------------------------------------------------


def test_a_cut_avoids_the_wide_tensor() -> None:
    graph = chain([100, 100, 100, 100, 100, 100])
    wide = replace(graph, edges=tuple(replace(e, bytes=10_000_000) if e.source == "u2" else e for e in graph.edges))
    assert cut(graph, SPEED).assignment == (0, 0, 0, 1, 1, 1)
    assert cut(wide, SPEED).assignment in [(0, 0, 1, 1, 1, 1), (0, 0, 0, 0, 1, 1)]


def test_the_last_partition_has_less_work_because_of_the_loss() -> None:
    graph = replace(chain([100] * 8), loss_us=200)
    assert cut(graph, replace(SPEED, time_slack=0.0)).assignment == (0, 0, 0, 0, 0, 1, 1, 1)


def test_an_output_costs_its_owner_a_message_to_every_other_rank() -> None:
    units = tuple(Unit(name=f"u{i}", forward_us=10) for i in range(3))
    graph = UnitGraph(units, (Edge("u0", "u1", 0), Edge("u1", "u2", 0)), (ModelOutput("u1", 1000),))
    chosen = CutOptions(partitions=3, message_us=1.0, byte_us=0.01)
    found = cut(graph, chosen).evaluation
    assert found.messages == (1, 3, 0)
    assert found.sent_bytes == (0, 2000, 0)
    assert found.received_bytes == (1000, 0, 1000)
    # 10 of compute, 1 per message to or from a neighbor, 11 per copy of the output.
    assert found.time_ns == (22_000, 34_000, 22_000)


def test_a_gradient_comes_back_for_every_tensor_sent() -> None:
    found = cut(chain([300, 300]), replace(SPEED, message_us=2.0, byte_us=0.001)).evaluation
    assert found.sent_bytes == (1000, 1000 + 40)
    assert found.messages == (1, 2)
    assert found.time_ns == (300_000 + 2 * 3_000 + 2_040,) * 2


# --- constraints --------------------------------------------------------------------------------------------------


def branches(count: int, length: int) -> UnitGraph:
    """Return a unit, `count` branches of `length`, and a unit that joins them, traced breadth-first."""
    names = ["in", *(f"b{b}_{i}" for i in range(length) for b in range(count)), "out"]
    edges = [Edge("in", f"b{b}_0", 100) for b in range(count)]
    edges += [Edge(f"b{b}_{i}", f"b{b}_{i + 1}", 100) for i in range(length - 1) for b in range(count)]
    edges += [Edge(f"b{b}_{length - 1}", "out", 100) for b in range(count)]
    return UnitGraph(tuple(Unit(name=n, forward_us=50, backward_us=100) for n in names), tuple(edges))


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("partitions", [2, 3, 4, 5])
def test_branches_are_cut_legally_for_every_order_of_the_trace(partitions: int, contiguous: bool) -> None:
    graph = branches(4, 4)
    chosen = CutOptions(partitions=partitions, microbatches=8, optimize="speed", contiguous=contiguous, message_us=1.0)
    found = cut(graph, chosen)
    assert is_legal(graph, found.assignment, chosen)
    assert max(found.evaluation.time_ns) <= 1.35 * sum(found.evaluation.time_ns) / partitions


def test_contiguity_is_waived_for_a_graph_that_is_not_connected() -> None:
    graph = UnitGraph(tuple(Unit(name=f"u{i}", forward_us=10) for i in range(4)))
    assert sorted(cut(graph, replace(SPEED, contiguous=True)).assignment) == [0, 0, 1, 1]


def test_a_graph_whose_orders_cannot_be_cut_is_still_cut() -> None:
    # Many inputs into hubs: slices of most orders are not connected.
    names = [f"in{i}" for i in range(9)] + ["hub0", "hub1", "hub2", "end"]
    edges = [Edge(f"in{i}", f"hub{i % 3}", 10) for i in range(9)] + [Edge(f"hub{i}", "end", 10) for i in range(3)]
    graph = UnitGraph(tuple(Unit(name=n, forward_us=10) for n in names), tuple(edges))
    for partitions in range(2, 13):
        chosen = CutOptions(partitions=partitions, optimize="speed", message_us=0.0)
        assert is_legal(graph, cut(graph, chosen).assignment, chosen)


def test_units_that_share_a_variable_come_out_together() -> None:
    graph = chain([100] * 8)
    tied = replace(
        graph, units=tuple(replace(u, variables=frozenset({"w"})) if u.name in ("u3", "u4") else u for u in graph.units)
    )
    assert cut(graph, SPEED).assignment == (0, 0, 0, 0, 1, 1, 1, 1)
    found = cut(tied, SPEED)
    assert found.partitions["u3"] == found.partitions["u4"]
    assert not found.revisits


def tied_language_model(blocks: int) -> UnitGraph:
    """Return an embedding that is also the output projection, with blocks in between."""
    weight = frozenset({"embedding"})
    units = [Unit(name="embed", forward_us=20, backward_us=40, parameter_bytes=4_000_000, variables=weight)]
    units += [Unit(name=f"block{i}", forward_us=300, backward_us=600, parameter_bytes=1_000_000) for i in range(blocks)]
    units += [Unit(name="logits", forward_us=100, backward_us=200, variables=weight)]
    edges = tuple(Edge(a.name, b.name, 50_000) for a, b in pairwise(units))
    return UnitGraph(tuple(units), edges, (ModelOutput("logits", 100_000),))


@pytest.mark.parametrize("optimize", ["memory", "speed"])
def test_a_tied_embedding_does_not_swallow_the_model(optimize: str) -> None:
    graph = tied_language_model(8)
    found = cut(graph, CutOptions(partitions=2, microbatches=8, optimize=optimize))  # type: ignore[arg-type]
    assert found.revisits
    assert found.partitions["embed"] == found.partitions["logits"]
    assert set(found.assignment) == {0, 1}
    if optimize == "speed":
        assert max(found.evaluation.time_ns) <= 0.6 * sum(found.evaluation.time_ns)


def test_a_pipeline_without_revisits_is_preferred_if_it_is_nearly_as_good() -> None:
    # The tied weight spans the second half, which one partition can also hold.
    graph = chain([100] * 8)
    tied = replace(
        graph, units=tuple(replace(u, variables=frozenset({"w"})) if u.name in ("u4", "u7") else u for u in graph.units)
    )
    found = cut(tied, SPEED)
    assert not found.revisits
    assert found.assignment == (0, 0, 0, 0, 1, 1, 1, 1)


def test_too_few_units_are_refused_with_both_numbers() -> None:
    with pytest.raises(SMPPartitionError, match=r"4 partitions.*3 units.*lower `partitions` to 3"):
        cut(chain([1, 2, 3]), replace(SPEED, partitions=4))


def test_too_few_separable_units_are_refused_with_what_ties_them() -> None:
    units = tuple(Unit(name=n, variables=frozenset({"shared/kernel"})) for n in "abc")
    with pytest.raises(SMPPartitionError, match=r"2 partitions.*3 units.*only 1 can be separated.*shared/kernel"):
        cut(UnitGraph(units), SPEED)


def test_as_many_partitions_as_units_get_one_each() -> None:
    assert cut(chain([5, 1, 3]), replace(SPEED, partitions=3)).assignment == (0, 1, 2)
    assert cut(chain([5]), replace(SPEED, partitions=1)).assignment == (0,)


def test_one_partition_holds_all() -> None:
    assert cut(branches(3, 3), replace(SPEED, partitions=1)).assignment == (0,) * 11


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partitions", 0),
        ("partitions", True),
        ("microbatches", 1.5),
        ("active_microbatches", 0),
        ("optimize", "cost"),
        ("pipeline", "1f1b"),
        ("memory_slack", -0.1),
        ("byte_us", float("nan")),
    ],
)
def test_options_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(SMPPartitionError, match=rf"{field} is .*expected"):
        CutOptions(**{"partitions": 2, field: value})  # type: ignore[arg-type]


# --- always the same ----------------------------------------------------------------------------------------------


def test_the_decision_is_the_same_in_every_process_and_for_every_order_of_edges() -> None:
    generator = random.Random(3)
    graph = random_network(60, generator)
    script = (
        "import sys, json\n"
        "from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions\n"
        "from smdistributed.modelparallel.tensorflow.partitioning.cut import cut\n"
        "from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph\n"
        "graph = UnitGraph.from_json(sys.stdin.read())\n"
        "print(json.dumps([cut(graph, CutOptions(partitions=4, microbatches=4, optimize=o)).assignment\n"
        "                  for o in ('memory', 'speed')]))\n"
    )
    mine = [
        list(cut(graph, CutOptions(partitions=4, microbatches=4, optimize=o)).assignment) for o in ("memory", "speed")
    ]
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=graph.to_json(),
            env={"PYTHONHASHSEED": seed, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == mine
    edges = list(graph.edges)
    generator.shuffle(edges)
    again = cut(replace(graph, edges=tuple(edges)), CutOptions(partitions=4, microbatches=4))
    assert list(again.assignment) == mine[0]


def random_network(count: int, generator: random.Random) -> UnitGraph:
    """Return a long chain with residual connections of random length."""
    units = tuple(
        Unit(
            name=f"u{i}",
            forward_us=generator.uniform(1, 100),
            backward_us=generator.uniform(1, 200),
            parameter_bytes=generator.randrange(1_000_000),
            activation_bytes=generator.randrange(100_000),
        )
        for i in range(count)
    )
    edges = [Edge(f"u{i}", f"u{i + 1}", generator.randrange(100_000)) for i in range(count - 1)]
    edges += [Edge(f"u{i}", f"u{i + 2 + generator.randrange(20)}", 1000, "skip") for i in range(0, count - 22, 3)]
    return UnitGraph(units, tuple(edges), (ModelOutput(f"u{count - 1}", 1000),), 30)


@pytest.mark.parametrize("optimize", ["memory", "speed"])
def test_two_thousand_units_are_cut_into_eight_well_balanced_partitions(optimize: str) -> None:
    graph = random_network(2000, random.Random(0))
    chosen = CutOptions(partitions=8, microbatches=8, optimize=optimize)  # type: ignore[arg-type]
    found = cut(graph, chosen)
    values = found.evaluation.bytes if optimize == "memory" else found.evaluation.time_ns
    assert max(values) <= 1.10 * sum(values) / 8
