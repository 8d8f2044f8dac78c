"""Reports on an assignment: a table, bars, and predicted times and memory.

The prediction assumes that the slowest partition sets the pace of the pipeline: one microbatch passes through all P
partitions, and each of the other B - 1 adds the time of the slowest partition. For balanced partitions the idle share
is then (P - 1) / (B + P - 1). Ranks that share a core are not modeled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions, evaluate
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

MEGABYTE = 1e6
_BLOCK, _SHADE = "█", "░"


@dataclass(frozen=True, kw_only=True)
class PartitionRow:
    """One partition. Times and messages are per microbatch."""

    partition: int
    units: tuple[str, ...]
    compute_us: float
    """Time of forward and backward pass and, on the last partition, the loss."""
    time_us: float
    """`compute_us` plus communication."""
    parameter_bytes: int
    slot_bytes: int
    activation_bytes: int
    """Activations of one microbatch."""
    alive: int
    """Number of microbatches whose activations are kept at the same time."""
    bytes: int
    """Parameters, slots, and the activations and received tensors of all microbatches that are alive."""
    sent_bytes: int
    received_bytes: int
    messages: int


@dataclass(frozen=True)
class PartitionReport:
    """An assignment with its predicted times and memory; `print` it for a table, figures and bars."""

    graph: UnitGraph
    options: CutOptions
    assignment: tuple[int, ...]
    """Partition per unit."""
    rows: tuple[PartitionRow, ...]

    @property
    def time_balance(self) -> float:
        """Mean time of the partitions / time of the slowest; 1 is balanced."""
        return _balance([row.time_us for row in self.rows])

    @property
    def memory_balance(self) -> float:
        """Mean bytes of the partitions / bytes of the largest; 1 is balanced."""
        return _balance([row.bytes for row in self.rows])

    @property
    def single_us(self) -> float:
        """Predicted time of a step of all microbatches on one rank, in microseconds."""
        return self.options.microbatches * sum(row.compute_us for row in self.rows)

    @property
    def step_us(self) -> float:
        """Predicted time of a step of all microbatches through the pipeline, in microseconds."""
        times = [row.time_us for row in self.rows]
        return sum(times) + (self.options.microbatches - 1) * max(times)

    @property
    def bubble(self) -> float:
        """Fraction of the step in which a partition is idle, averaged over the partitions."""
        busy = self.options.microbatches * sum(row.time_us for row in self.rows)
        return 1 - busy / (len(self.rows) * self.step_us) if self.step_us else 0.0

    @property
    def ideal_bubble(self) -> float:
        """`bubble` for balanced partitions and free communication: (P - 1) / (B + P - 1)."""
        others = len(self.rows) - 1
        return others / (self.options.microbatches + others)

    @property
    def speed_up(self) -> float:
        """`single_us` / `step_us`."""
        return self.single_us / self.step_us if self.step_us else 1.0

    @property
    def ideal_speed_up(self) -> float:
        """`speed_up` for balanced partitions and free communication: P B / (B + P - 1)."""
        return len(self.rows) * (1 - self.ideal_bubble)

    def table(self) -> str:
        """Return a table with one line per partition, and the totals."""
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
        """Return the figures for the whole pipeline, in three lines."""
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
    """Report on any assignment: automatic, loaded from a file, or made by hand.

    Args:
        assignment: Partition per unit, in the order of `graph.units`.
        options: Number of partitions, microbatches, schedule, cost of communication.

    Raises:
        SMPPartitionError: If the assignment does not fit the graph or the number of partitions.
    """
    costs = evaluate(graph, assignment, options)
    rows = []
    for part in range(options.partitions):
        units = [unit for unit, placed in zip(graph.units, assignment, strict=True) if placed == part]
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


def bars(report: PartitionReport, *, width: int = 48) -> str:
    """Draw bars of time and memory per partition; communication and activations are shaded.

    Args:
        width: Characters of the longest bar.
    """
    rows = report.rows
    times = [(row.compute_us, row.time_us - row.compute_us) for row in rows]
    sizes = [(row.parameter_bytes + row.slot_bytes, _beyond_weights(row)) for row in rows]
    lines = [f"time per microbatch ({_BLOCK} compute, {_SHADE} communication)"]
    lines += _bar_lines(rows, times, [f"{row.time_us / 1000:.3f} ms" for row in rows], width)
    lines.append(f"memory ({_BLOCK} parameters and slots, {_SHADE} activations)")
    lines += _bar_lines(rows, sizes, [f"{row.bytes / 1e6:,.3f} MB" for row in rows], width)
    return "\n".join(lines)


def _balance(values: Sequence[float]) -> float:
    return sum(values) / len(values) / max(values) if max(values) else 1.0


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.3f}" if size < MEGABYTE else f"{size / MEGABYTE:,.1f}"


def _aligned(lines: Sequence[Sequence[str]], *, left: int) -> str:
    """Pad columns to their widest entry: right-aligned, but for the last `left` columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    first = len(widths) - left
    return "\n".join(
        "  ".join(
            text.rjust(width) if i < first else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _bar_lines(
    rows: Sequence[PartitionRow], values: Sequence[tuple[float, float]], labels: Sequence[str], width: int
) -> list[str]:
    largest = max(a + b for a, b in values) or 1
    lines = []
    for row, (a, b), label in zip(rows, values, labels, strict=True):
        whole, solid = round(width * (a + b) / largest), round(width * a / largest)
        lines.append(f"  {row.partition:>2} {_BLOCK * solid}{_SHADE * (whole - solid)} {label}")
    return lines


def _beyond_weights(row: PartitionRow) -> int:
    return row.bytes - row.parameter_bytes - row.slot_bytes
