"""Placement by rules."""

from __future__ import annotations

import re

import pytest

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.manual import (
    Rules,
    assign_by_rules,
    match_layers,
)
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, Unit, UnitGraph

pytestmark = pytest.mark.smp_first

LAYERS = ["embedding", "encoder/block_1/dense", "encoder/block_1/norm", "encoder/block_2/dense", "head"]


def matched(rules: Rules, default: int | None = 9) -> list[int]:
    return list(match_layers(LAYERS, rules, partitions=10, default=default).values())


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"embedding": 1}, [1, 9, 9, 9, 9]),
        ({"encoder": 1}, [9, 1, 1, 1, 9]),
        ({"block_1": 1}, [9, 1, 1, 9, 9]),
        ({"dense": 1}, [9, 1, 9, 1, 9]),
        ({"encoder/block_2/dense": 1}, [9, 9, 9, 1, 9]),
        ({"encoder/*": 1}, [9, 1, 1, 1, 9]),
        ({"block_[2-9]": 1}, [9, 9, 9, 1, 9]),
        ({"*": 1, "head": 2}, [1, 1, 1, 1, 2]),
        ({r"re:block_\d": 1}, [9, 1, 1, 1, 9]),
        ({re.compile("(embed|h).*"): 1}, [1, 9, 9, 9, 1]),
        ({"re:.*/norm": 1}, [9, 9, 1, 9, 9]),
        ({"*/*/dense": 1}, [9, 1, 9, 1, 9]),
    ],
)
def test_a_rule_names_layers_by_name_path_glob_or_expression(rules: Rules, expected: list[int]) -> None:
    assert matched(rules) == expected


def test_the_innermost_layer_with_a_rule_decides() -> None:
    assert matched({"norm": 3, "encoder": 1, "block_1": 2}) == [9, 2, 3, 1, 9]
    assert matched({"encoder": 1, "re:nor.": 3, "block_*": 2}) == [9, 2, 3, 2, 9]
    assert matched({"enc*": 1, "encoder/*": 2, "block_2": 3}) == [9, 2, 2, 3, 9]


def test_paths_have_priority_over_names_and_names_over_patterns_in_their_order() -> None:
    assert matched({"dense": 2, "encoder/block_1/dense": 1, "d*": 3})[1::2] == [1, 2]
    assert matched({"d*": 3, "dense": 2})[1] == 2
    assert matched({"d*": 3, "de*": 4})[1] == 3


def test_unknown_layers_are_listed_with_close_matches() -> None:
    with pytest.raises(SMPPartitionError) as caught:
        matched({"embeding": 0, "head": 1, "decoder/*": 2, "re:x+": 3})
    message = str(caught.value)
    assert "'embeding' (did you mean 'embedding'?)" in message
    assert "'decoder/*'" in message
    assert "'re:x+'" in message
    assert "encoder/block_1/dense" in message
    assert "'head'; " not in message


@pytest.mark.parametrize("part", [10, -1, True, "0", 1.0])
def test_a_partition_that_does_not_exist_is_refused_with_its_rule(part: object) -> None:
    with pytest.raises(SMPPartitionError, match=r"rule 'head' gives partition .* 0 to 9"):
        matched({"head": part})  # type: ignore[dict-item]
    with pytest.raises(SMPPartitionError, match="default_partition gives partition"):
        matched({"head": 0}, default=part)  # type: ignore[arg-type]


def test_an_expression_that_does_not_compile_is_refused() -> None:
    with pytest.raises(SMPPartitionError, match=r"rule 're:\(' is not a regular expression"):
        matched({"re:(": 1})


def test_without_default_every_layer_needs_a_rule() -> None:
    with pytest.raises(SMPPartitionError, match=r"no rule names 'embedding', 'head'.*default_partition"):
        matched({"encoder": 1}, default=None)
    assert matched({"encoder": 1, "[eh]*d*": 0, "dense": 1}, default=None) == [0, 1, 1, 1, 0]


def test_many_layers_are_not_all_listed() -> None:
    with pytest.raises(SMPPartitionError, match="and 88 more"):
        match_layers([f"layer{i}" for i in range(100)], {"layer1": 0, "x": 0}, partitions=2, default=0)


GRAPH = UnitGraph(
    (
        Unit(name="glue0"),
        Unit(name="a/call", layer_path="a", variables=frozenset({"w"})),
        Unit(name="b/call", layer_path="b"),
        Unit(name="add"),
        Unit(name="c/call", layer_path="c", variables=frozenset({"w", "v"})),
        Unit(name="a/call_1", layer_path="a", variables=frozenset({"w"})),
        Unit(name="glue1"),
    ),
    (
        Edge("glue0", "a/call", 1),
        Edge("a/call", "b/call", 1),
        Edge("a/call", "add", 1),
        Edge("b/call", "add", 1),
        Edge("add", "c/call", 1),
        Edge("a/call_1", "glue1", 1),
    ),
)


def test_units_follow_their_layers_and_glue_follows_its_inputs() -> None:
    rules: Rules = {"a": 1, "b": 2, "c": 3}
    assert assign_by_rules(GRAPH, rules, partitions=4) == (0, 1, 2, 2, 3, 1, 1)
    assert assign_by_rules(GRAPH, {"b": 2}, partitions=4, default=3) == (3, 3, 2, 3, 3, 3, 3)
