"""The partition of an op, rule by rule."""

import pytest

from node_graphs import Graph
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, PartitionAssignment, assign
from smdistributed.modelparallel.tensorflow.marks import REPLICATED

pytestmark = pytest.mark.smp_first


def assigned(graph: Graph, units: dict[str, int | str], **options) -> PartitionAssignment:
    names = {name: where if isinstance(where, str) else f"unit{where}" for name, where in units.items()}
    partitions = {f"unit{index}": index for index in range(4)}
    return assign(graph.nodes, units=names, partitions=partitions, gradients=options.pop("gradients", {}), **options)


def owners(graph: Graph, units: dict[str, int | str], **options) -> dict[str, int]:
    found = assigned(graph, units, **options).owners
    return {node.name: found[node.index] for node in graph.nodes}


def test_inputs_from_outside_and_constants_are_replicated():
    graph = Graph()
    graph.given("x")
    graph.constant("two")
    assert owners(graph, {"two": 1, "x": 1}) == {"x": ALL, "two": ALL}


def test_a_mark_has_priority_over_the_owners_of_the_inputs():
    graph = Graph()
    a = graph.add("a", graph.given("x"))
    graph.add("b", a)
    assert owners(graph, {"a": 0, "b": 1}) == {"x": ALL, "a": 0, "b": 1}


def test_without_a_mark_the_owner_of_the_inputs_computes():
    graph = Graph()
    x = graph.given("x")
    a, b = graph.add("a", x), graph.add("b", x)
    graph.add("of_a", a, x)
    graph.add("of_both", a, b)
    graph.add("of_none", x)
    assert owners(graph, {"a": 0, "b": 1}) == {"x": ALL, "a": 0, "b": 1, "of_a": 0, "of_both": ALL, "of_none": ALL}


def test_gradients_that_meet_are_added_in_the_lowest_partition():
    graph = Graph()
    a, b = graph.add("a"), graph.add("b")
    graph.add("sum", b, a, type="AddN")
    assert owners(graph, {"a": 1, "b": 2})["sum"] == 1


def test_a_result_that_every_rank_computes_is_replicated_though_its_inputs_are_not():
    graph = Graph()
    a = graph.add("a")
    output = graph.add("output", a)
    graph.add("loss", output)
    assert owners(graph, {"a": 1, "output": REPLICATED}) == {"a": 1, "output": ALL, "loss": ALL}


def test_a_variable_is_placed_with_its_first_marked_user():
    graph = Graph()
    handle = graph.given("handle")
    graph.add("regularizer", handles=[handle], type="ReadVariableOp")
    graph.add("first", handles=[handle], type="ReadVariableOp")
    graph.add("second", handles=[handle], type="ReadVariableOp")
    found = assigned(graph, {"first": 1, "second": 0})
    assert found.handles == {(handle, 0): 1}
    assert found.owners[1:] == (1, 1, 1)
    assert found.users == {(handle, 0): frozenset({0, 1})}


def test_a_variable_keeps_its_placement_from_an_earlier_step():
    graph = Graph()
    handle = graph.given("handle")
    graph.add("read", handles=[handle], type="ReadVariableOp")
    assert owners(graph, {"read": 1}, placed={(handle, 0): 0})["read"] == 0


def test_a_variable_outside_the_model_is_replicated():
    graph = Graph()
    handle = graph.given("counter")
    graph.add("count", handles=[handle], type="AssignAddVariableOp", stateful=True)
    found = assigned(graph, {})
    assert found.owners[1] == ALL and found.handles == {(handle, 0): ALL}


def test_a_handle_that_is_passed_on_is_still_the_same_variable():
    graph = Graph()
    handle = graph.given("handle")
    passed = graph.add("passed", handles=[handle], type="Identity")
    graph.add("write", handles=[handle], type="AssignVariableOp", stateful=True)
    graph.add("read", handles=[passed], type="ReadVariableOp")
    assert owners(graph, {"read": 1})["write"] == 1


def test_the_gradient_of_a_variable_is_placed_with_the_variable():
    graph = Graph()
    handle = graph.given("handle")
    read = graph.add("read", handles=[handle], type="ReadVariableOp")
    other = graph.add("other", read)
    graph.add("gradient", other, type="Identity")
    found = owners(graph, {"read": 0, "other": 1}, gradients={"gradient": (handle, 0)})
    assert found["gradient"] == 0


def test_an_op_with_variables_of_two_partitions_is_refused():
    graph = Graph()
    one, two = graph.given("one"), graph.given("two")
    graph.add("reads_one", handles=[one], type="ReadVariableOp")
    graph.add("reads_two", handles=[two], type="ReadVariableOp")
    graph.add("loop", handles=[one, two], type="While", stateful=True)
    with pytest.raises(SMPPartitionError, match=r"loop \(While\) uses variables of the partitions \[0, 1\] at once"):
        assigned(graph, {"reads_one": 0, "reads_two": 1, "loop": 0})
