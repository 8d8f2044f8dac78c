"""Partition files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from partition_graphs import chain
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.file import load_partition, save_partition
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, Unit, UnitGraph

pytestmark = pytest.mark.smp_first

GRAPH = chain([1, 2, 3, 4])
ASSIGNMENT = (0, 0, 1, 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "partition.json"
    save_partition(path, GRAPH, ASSIGNMENT, partitions=2)
    return path


def refused(path: Path, graph: UnitGraph = GRAPH, partitions: int = 2) -> str:
    with pytest.raises(SMPPartitionError) as caught:
        load_partition(path, graph, partitions=partitions)
    assert str(path) in str(caught.value)
    return str(caught.value)


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_a_saved_cut_is_loaded(file: Path) -> None:
    assert load_partition(file, GRAPH, partitions=2) == ASSIGNMENT


def test_other_costs_and_another_order_of_edges_do_not_matter(file: Path) -> None:
    other = chain([9, 9, 9, 9], [5, 5, 5, 5], size=77)
    other = replace(other, edges=other.edges[::-1], outputs=())
    assert other.hash != GRAPH.hash
    assert load_partition(file, other, partitions=2) == ASSIGNMENT


def test_units_are_matched_by_name_in_an_edited_file(file: Path) -> None:
    edit(file, lambda record: record["units"][1].update(partition=1))
    assert load_partition(file, GRAPH, partitions=2) == (0, 1, 1, 1)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (chain([1, 2, 3]), "unit 'u3' of the file is not in the model"),
        (chain([1, 2, 3, 4, 5]), "unit 'u4' of the model is not in the file"),
        (UnitGraph((GRAPH.units[0], Unit(name="new"), *GRAPH.units[2:])), "unit 1 is 'u1' in the file and 'new' in"),
        (replace(GRAPH, edges=(*GRAPH.edges, Edge("u0", "u2", 1))), "unit 'u2' has inputs [['u1', '']] in the file"),
        (
            replace(GRAPH, units=(*GRAPH.units[:3], replace(GRAPH.units[3], variables=frozenset("w")))),
            "unit 'u3' has variables [] in the file and ['w'] in the model",
        ),
    ],
)
def test_another_model_is_refused_by_its_first_unit_that_differs(file: Path, graph: UnitGraph, words: str) -> None:
    assert words in refused(file, graph)


def test_another_number_of_partitions_is_refused_with_both(file: Path) -> None:
    message = refused(file, partitions=4)
    assert "made for 2 partitions, but there are 4" in message


@pytest.mark.parametrize("part", [2, -1, "1", None, True, 0.0])
def test_a_partition_that_does_not_exist_is_refused_with_its_unit(file: Path, part: object) -> None:
    edit(file, lambda record: record["units"][2].update(partition=part))
    message = refused(file)
    assert "'u2'" in message
    assert repr(part) in message


def test_a_file_that_is_missing_broken_of_another_kind_or_version_is_refused(file: Path) -> None:
    assert "does not exist" in refused(file.with_name("none.json"))
    edit(file, lambda record: record.update(version=2))
    assert "version 2, but this library reads 1" in refused(file)
    edit(file, lambda record: record.update(version=1, units=[3]))
    assert "damaged" in refused(file)
    edit(file, lambda record: record.pop("units"))
    assert "damaged: units missing" in refused(file)
    edit(file, lambda record: record.pop("kind"))
    assert "not a partition file" in refused(file)
    for text in ("{", "[]", "\xff"):
        file.write_text(text, encoding="latin-1")
        refused(file)


def test_a_unit_without_name_or_partition_is_damage(file: Path) -> None:
    edit(file, lambda record: record["units"][2].pop("partition"))
    assert "damaged" in refused(file)


def test_a_failed_write_leaves_only_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        save_partition(file, GRAPH, (1, 1, 1, 1), partitions=2)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


def test_an_assignment_of_another_length_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        save_partition(tmp_path / "p.json", GRAPH, (0, 1), partitions=2)
    assert not list(tmp_path.iterdir())
