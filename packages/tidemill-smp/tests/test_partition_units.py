"""The graph of units: errors, and equal bytes for equal graphs."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from partition_graphs import graphs
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning import units as units_module
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, ModelOutput, Unit, UnitGraph

pytestmark = pytest.mark.smp_first

A, B = Unit(name="a", forward_us=1), Unit(name="b", variables=frozenset({"w", "v", "u"}))
GRAPH = UnitGraph((A, B), (Edge("a", "b", 8), Edge("a", "b", 4, "mask")), (ModelOutput("b", 2),), loss_us=3)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"units": (A, A)}, ["'a'", "twice"]),
        ({"edges": (Edge("a", "c", 1),)}, ["'a' -> 'c'", "no unit 'c'"]),
        ({"edges": (Edge("b", "a", 1),)}, ["'b' -> 'a'", "backwards", "topological order"]),
        ({"edges": (Edge("a", "a", 1),)}, ["backwards"]),
        ({"edges": (Edge("a", "b", -1),)}, ["bytes of edge", "-1"]),
        ({"outputs": (ModelOutput("z", 1),)}, ["output", "no unit 'z'"]),
        ({"units": (replace(A, forward_us=float("nan")), B)}, ["forward_us of unit 'a'", "nan"]),
        ({"units": (replace(A, backward_us=float("inf")), B)}, ["backward_us of unit 'a'", "inf"]),
        ({"units": (replace(A, slot_bytes=-5), B)}, ["slot_bytes of unit 'a'", "-5"]),
        ({"loss_us": -1.0}, ["loss_us", "-1.0"]),
    ],
)
def test_an_inconsistent_graph_is_refused_by_name(parts: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SMPPartitionError) as caught:
        UnitGraph(**{"units": (A, B), **parts})
    assert all(word in str(caught.value) for word in words), caught.value


@given(graph=graphs(most=8))
@settings(max_examples=50, deadline=None)
def test_json_contains_the_whole_graph(graph: UnitGraph) -> None:
    copy = UnitGraph.from_json(graph.to_json())
    assert copy.units == graph.units
    assert set(copy.edges) == set(graph.edges)
    assert copy.outputs == graph.outputs
    assert copy.to_json() == graph.to_json()
    assert copy.hash == graph.hash


def test_the_hash_does_not_depend_on_the_order_of_edges_nor_on_int_or_float() -> None:
    for edges in itertools.permutations(GRAPH.edges):
        assert replace(GRAPH, edges=edges).hash == GRAPH.hash
    assert replace(GRAPH, units=(replace(A, forward_us=1.0), B)).hash == GRAPH.hash


def test_the_hash_is_the_same_in_every_process() -> None:
    script = (
        "import sys; from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph;"
        "graph = UnitGraph.from_json(sys.stdin.read()); print(graph.hash, graph.structure_hash)"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            input=GRAPH.to_json(),
            env={"PYTHONHASHSEED": seed, "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [GRAPH.hash, GRAPH.structure_hash]


def test_costs_change_the_hash_but_not_the_structure_and_names_change_both() -> None:
    slower = replace(GRAPH, units=(replace(A, forward_us=2), B), edges=(Edge("a", "b", 80), Edge("a", "b", 4, "mask")))
    assert slower.hash != GRAPH.hash
    assert slower.structure_hash == GRAPH.structure_hash
    renamed = UnitGraph((A, replace(B, name="c")), (Edge("a", "c", 8),), (ModelOutput("c", 2),))
    assert renamed.structure_hash != GRAPH.structure_hash
    assert replace(GRAPH, edges=GRAPH.edges[:1]).structure_hash != GRAPH.structure_hash
    assert replace(GRAPH, units=(A, replace(B, variables=frozenset({"w"})))).structure_hash != GRAPH.structure_hash


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', json.dumps({**json.loads(GRAPH.to_json()), "units": [{"no": 1}]})]
)
def test_text_that_is_not_a_graph_is_refused(text: str) -> None:
    with pytest.raises(SMPPartitionError, match="graph of units"):
        UnitGraph.from_json(text)


def test_the_algorithms_import_neither_tensorflow_nor_keras() -> None:
    room = "smdistributed.modelparallel.tensorflow.partitioning"
    allowed = {"numpy", "smdistributed.modelparallel.backend.exceptions", *sys.stdlib_module_names}
    directory = Path(units_module.__file__).parent
    names = [
        "units",
        "groups",
        "cost",
        "orders",
        "lattice",
        "bound",
        "search",
        "cut",
        "report",
        "file",
        "manual",
    ]
    for name in names:
        tree = ast.parse((directory / f"{name}.py").read_text())
        modules = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        modules += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
        for module in modules:
            inside = module.removeprefix(f"{room}.") in names
            assert inside or module in allowed or module.split(".")[0] in allowed, f"{name} imports {module}"
