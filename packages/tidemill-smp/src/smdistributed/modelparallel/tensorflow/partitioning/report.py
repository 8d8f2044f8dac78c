"""What a decision means, for people: a table, and the figures behind it.

The prediction is that of a pipeline in which the slowest partition sets the pace: one microbatch goes through all of
them, and each of the other B - 1 adds the time of the slowest. With balanced partitions that is the textbook
(P - 1) / (B + P - 1) of idle time. It knows nothing of ranks that share a core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions, evaluate
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

__all__ = ["PartitionReport", "PartitionRow", "report"]

MEGABYTE = 1e6


@dataclass(frozen=True, kw_only=True)
class PartitionRow:
    """One partition. Times and messages are per microbatch."""

    partition: int
    units: tuple[str, ...]
    compute_us: float
    """Forward, backward and, on the last one, the loss."""
    time_us: float
    """The same with communication."""
    parameter_bytes: int
    slot_bytes: int
    activation_bytes: int
    """Of one microbatch."""
    alive: int
    """Microbatches whose activations are kept at the same time."""
    bytes: int
    """Parameters, slots, and activations and received tensors of all microbatches alive."""
    sent_bytes: int
    received_bytes: int
    messages: int


@dataclass(frozen=True)
class PartitionReport:
    """A decision with its consequences."""

    graph: UnitGraph
    options: CutOptions
    assignment: tuple[int, ...]
    """Partition per unit."""
    rows: tuple[PartitionRow, ...]

    @property
    def time_balance(self) -> float:
        """Mean over slowest partition: 1 is perfect."""
        return _balance([row.time_us for row in self.rows])

    @property
    def memory_balance(self) -> float:
        """Mean over largest partition: 1 is perfect."""
        return _balance([row.bytes for row in self.rows])

    @property
    def single_us(self) -> float:
        """A step of all microbatches on one rank."""
        return self.options.microbatches * sum(row.compute_us for row in self.rows)

    @property
    def step_us(self) -> float:
        """A step of all microbatches through the pipeline."""
        times = [row.time_us for row in self.rows]
        return sum(times) + (self.options.microbatches - 1) * max(times)

    @property
    def bubble(self) -> float:
        """Part of the step in which a partition is idle, on average."""
        busy = self.options.microbatches * sum(row.time_us for row in self.rows)
        return 1 - busy / (len(self.rows) * self.step_us) if self.step_us else 0.0

    @property
    def ideal_bubble(self) -> float:
        """The same for perfectly balanced partitions and free communication."""
        others = len(self.rows) - 1
        return others / (self.options.microbatches + others)

    @property
    def speed_up(self) -> float:
        """One rank's step over the pipeline's."""
        return self.single_us / self.step_us if self.step_us else 1.0

    @property
    def ideal_speed_up(self) -> float:
        """The same for perfectly balanced partitions and free communication: P B / (B + P - 1)."""
        return len(self.rows) * (1 - self.ideal_bubble)

    def table(self) -> str:
        """One line per partition, and what they come to."""
        whole = sum(row.compute_us for row in self.rows) or 1.0
        head = ["part", "units", "time ms", "share", "param MB", "slots MB", "act MB", "alive", "total MB"]
        head += ["send MB", "recv MB", "msgs", "first unit", "last unit"]
        lines = [
            [
                f"{row.partition}",
                f"{len(row.units)}",
                f"{row.time_us / 1000:.3f}",
                f"{row.compute_us / whole:.1%}",
                *(_megabytes(size) for size in (row.parameter_bytes, row.slot_bytes, row.activation_bytes)),
                f"x{row.alive}",
                *(_megabytes(size) for size in (row.bytes, row.sent_bytes, row.received_bytes)),
                f"{row.messages}",
                row.units[0] if row.units else "-",
                row.units[-1] if row.units else "-",
            ]
            for row in self.rows
        ]
        return f"{_aligned([head, *lines], left=2)}\n{self.summary()}"

    def summary(self) -> str:
        """The figures for the whole pipeline, in three lines."""
        return (
            f"{len(self.rows)} partitions, {self.options.microbatches} microbatches, optimize={self.options.optimize}, "
            f"pipeline={self.options.pipeline}\n"
            f"balance (mean / largest): time {self.time_balance:.3f}, memory {self.memory_balance:.3f}\n"
            f"predicted step {self.step_us / 1000:.3f} ms against {self.single_us / 1000:.3f} ms on one rank: "
            f"speed-up {self.speed_up:.2f} (ideal {self.ideal_speed_up:.2f}), "
            f"bubble {self.bubble:.1%} (ideal {self.ideal_bubble:.1%})"
        )

    def __str__(self) -> str:
        return self.table()


def report(graph: UnitGraph, assignment: Sequence[int], options: CutOptions) -> PartitionReport:
    """Judge an assignment, whether decided, loaded or made by hand.

    Args:
        graph: The units.
        assignment: Partition per unit, in the order of `graph.units`.
        options: Number of partitions, microbatches, schedule, price of communication.

    Raises:
        SMPPartitionError: If the assignment does not fit the graph or the number of partitions.
    """
    costs = evaluate(graph, assignment, options)
    rows = []
    for part in range(options.partitions):
        units = [unit for unit, home in zip(graph.units, assignment, strict=True) if home == part]
        rows.append(
            PartitionRow(
                partition=part,
                units=tuple(unit.name for unit in units),
                compute_us=costs.compute_ns[part] / 1000,
                time_us=costs.time_ns[part] / 1000,
                parameter_bytes=sum(unit.parameter_bytes for unit in units),
                slot_bytes=sum(unit.slot_bytes for unit in units),
                activation_bytes=sum(unit.activation_bytes for unit in units),
                alive=options.alive(part),
                bytes=costs.bytes[part],
                sent_bytes=costs.sent_bytes[part],
                received_bytes=costs.received_bytes[part],
                messages=costs.messages[part],
            )
        )
    return PartitionReport(graph, options, tuple(assignment), tuple(rows))


def _balance(values: Sequence[float]) -> float:
    return sum(values) / len(values) / max(values) if max(values) else 1.0


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.3f}" if size < MEGABYTE else f"{size / MEGABYTE:,.1f}"


def _aligned(lines: Sequence[Sequence[str]], *, left: int) -> str:
    """Columns padded to their widest entry: figures to the right, the last `left` columns to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first = len(widths) - left
    return "\n".join(
        "  ".join(
            text.rjust(width) if i < first else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
