"""The report, as a table and as bars."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from partition_graphs import chain
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions
from smdistributed.modelparallel.tensorflow.partitioning.cut import cut
from smdistributed.modelparallel.tensorflow.partitioning.report import PartitionReport, bars, report
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, ModelOutput, Unit, UnitGraph

pytestmark = pytest.mark.smp_first

FREE = CutOptions(partitions=2, microbatches=4, optimize="speed", message_us=0.0, byte_us=0.0)


def made(times: list[float], **changes: object) -> PartitionReport:
    graph, chosen = chain(times), replace(FREE, **changes)  # type: ignore[arg-type]
    return report(graph, cut(graph, chosen).assignment, chosen)


@pytest.mark.parametrize("partitions", [1, 2, 3, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 8])
def test_balanced_partitions_with_free_communication_are_predicted_ideal(partitions: int, microbatches: int) -> None:
    found = made([300.0] * 12, partitions=partitions, microbatches=microbatches)
    assert found.time_balance == pytest.approx(1)
    assert found.bubble == pytest.approx((partitions - 1) / (microbatches + partitions - 1))
    assert found.speed_up == pytest.approx(partitions * microbatches / (microbatches + partitions - 1))
    assert (found.ideal_bubble, found.ideal_speed_up) == pytest.approx((found.bubble, found.speed_up))


def test_the_slowest_partition_sets_the_pace() -> None:
    found = report(chain([100, 300]), (0, 1), FREE)
    assert found.step_us == pytest.approx(100 + 300 + 3 * 300)
    assert found.single_us == pytest.approx(4 * 400)
    assert found.speed_up == pytest.approx(1600 / 1300)
    assert found.bubble == pytest.approx(1 - 1600 / 2600)
    assert found.time_balance == pytest.approx(200 / 300)


def test_rows_add_up_to_the_model() -> None:
    units = tuple(
        Unit(name=f"u{i}", forward_us=10, backward_us=20, parameter_bytes=100, slot_bytes=200, activation_bytes=7)
        for i in range(5)
    )
    graph = UnitGraph(
        units, tuple(Edge(f"u{i}", f"u{i + 1}", 50) for i in range(4)), (ModelOutput("u4", 9),), loss_us=5
    )
    found = report(graph, (0, 0, 1, 1, 2), replace(FREE, partitions=3, microbatches=2))
    assert [row.units for row in found.rows] == [("u0", "u1"), ("u2", "u3"), ("u4",)]
    assert [row.compute_us for row in found.rows] == [60, 60, 35]
    assert [(row.parameter_bytes, row.slot_bytes, row.activation_bytes) for row in found.rows] == [
        (200, 400, 14),
        (200, 400, 14),
        (100, 200, 7),
    ]
    assert [row.alive for row in found.rows] == [2, 2, 1]
    assert [row.bytes for row in found.rows] == [600 + 2 * 14, 600 + 2 * (14 + 50), 300 + 7 + 50]
    assert [row.sent_bytes for row in found.rows] == [50, 100, 50 + 18]
    assert [row.received_bytes for row in found.rows] == [50 + 9, 100 + 9, 50]
    assert sum(row.sent_bytes for row in found.rows) == sum(row.received_bytes for row in found.rows)


def test_a_model_that_only_runs_forward_sends_no_gradients() -> None:
    graph = UnitGraph((Unit(name="a", forward_us=1), Unit(name="b", forward_us=1)), (Edge("a", "b", 50),))
    found = report(graph, (0, 1), FREE)
    assert [row.sent_bytes for row in found.rows] == [50, 0]


def test_the_table_has_a_line_per_partition_and_the_predicted_step() -> None:
    lines = made([300.0] * 4, microbatches=3).table().splitlines()
    assert len(lines) == 1 + 2 + 3
    assert re.split(r"  +", lines[0].strip())[:4] == ["part", "units", "time ms", "share"]
    assert re.match(r" *0 +2 +0\.600 +50\.0%", lines[1])
    assert lines[1].split()[-2:] == ["u0", "u1"]
    assert "speed-up 1.50 (ideal 1.50), bubble 25.0% (ideal 25.0%)" in lines[-1]
    assert str(made([300.0] * 4, microbatches=3)) == "\n".join(lines)


def test_an_empty_partition_and_a_model_without_costs_are_shown_too() -> None:
    graph = UnitGraph((Unit(name="a"), Unit(name="b")))
    found = report(graph, (1, 1), FREE)
    assert found.rows[0].units == ()
    assert (found.bubble, found.speed_up, found.time_balance) == (0.0, 1.0, 1.0)
    for text in (found.table(), bars(found)):
        assert text


def test_an_assignment_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SMPPartitionError, match="assignment of 1 units given for a graph of 2"):
        report(chain([1, 2]), (0,), FREE)
    with pytest.raises(SMPPartitionError, match="unit 'u1' is assigned to partition 2: expected 0 to 1"):
        report(chain([1, 2]), (0, 2), FREE)


def test_bars_are_as_long_as_their_share_of_the_largest() -> None:
    lines = bars(report(chain([100, 400]), (0, 1), FREE), width=40).splitlines()
    assert [line.count("█") for line in lines[1:3]] == [10, 40]
    assert "0.100 ms" in lines[1]
    shaded = bars(report(chain([100, 100]), (0, 1), replace(FREE, message_us=50.0)), width=40).splitlines()
    assert shaded[2].count("░") == 24  # two messages of 50 and the output's of 50, beside 100
