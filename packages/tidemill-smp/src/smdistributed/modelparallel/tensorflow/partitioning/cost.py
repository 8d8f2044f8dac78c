"""Cost of an assignment: time and bytes of each partition, and communication.

    time of a partition  = forward + backward of its units, + what it sends and receives, + its outputs' broadcast
                           (+ the loss, on the last one)                                          per microbatch
    bytes of a partition = parameters + slots + (activations + tensors received) x microbatches alive there

A tensor is sent once to every other partition that uses it, and its gradient is sent back: two messages, each charged
to both sides (a rank uses one core for layers and sockets). An output is sent to all other ranks without a gradient in
return: each rank computes that itself. Partition p keeps P - p microbatches alive (`interleaved`) or all B (`simple`);
the last partition keeps one, because it runs each backward pass directly after its forward pass.

All arithmetic is on integers (nanoseconds and bytes), so that sums do not depend on their order, and equal cuts are
equal on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.groups import Groups, apart
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    """Options of automatic partitioning.

    Raises:
        SMPPartitionError: If a value is out of range.
    """

    partitions: int
    microbatches: int = 1
    optimize: Literal["memory", "speed"] = "memory"
    """First objective to minimize: bytes of the largest partition, or time of the slowest."""
    pipeline: Literal["interleaved", "simple"] = "interleaved"
    active_microbatches: int | None = None
    """Largest number of microbatches alive on any partition; None leaves it to the schedule."""
    contiguous: bool = True
    """Whether each partition must be connected in the undirected graph (if the graph itself is)."""
    memory_slack: float = 0.05
    """`memory`: fraction by which the largest partition may exceed its minimum to save time."""
    time_slack: float = 0.01
    """`speed`: fraction by which the slowest partition may exceed its minimum to save bytes."""
    message_us: float = 50.0
    """Cost of a message to each side: the measured order of magnitude of the native transport on one machine."""
    byte_us: float = 0.0003
    """Cost of a byte to each side, i.e. 3.3 GB/s."""

    def __post_init__(self) -> None:
        for name in ("partitions", "microbatches", "active_microbatches"):
            value = getattr(self, name)
            if not (name == "active_microbatches" and value is None) and (
                isinstance(value, bool) or not isinstance(value, int) or value < 1
            ):
                raise SMPPartitionError(f"{name} is {value!r}: expected an integer, 1 or more")
        for name, allowed in (("optimize", ("memory", "speed")), ("pipeline", ("interleaved", "simple"))):
            if getattr(self, name) not in allowed:
                raise SMPPartitionError(f"{name} is {getattr(self, name)!r}: expected one of {', '.join(allowed)}")
        for name in ("memory_slack", "time_slack", "message_us", "byte_us"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SMPPartitionError(f"{name} is {getattr(self, name)!r}: expected a finite number, 0 or more")

    @property
    def slack(self) -> float:
        """Fraction by which the first objective may exceed its minimum."""
        return self.memory_slack if self.optimize == "memory" else self.time_slack

    def alive(self, partition: int) -> int:
        """Return the largest number of microbatches whose activations a partition keeps at the same time.

        Args:
            partition: From 0.
        """
        if partition == self.partitions - 1:
            return 1
        alive = self.microbatches
        if self.pipeline == "interleaved":
            alive = min(alive, self.partitions - partition)
        return min(alive, self.active_microbatches or alive)


@dataclass(frozen=True)
class Evaluation:
    """Costs of an assignment, per partition."""

    compute_ns: tuple[int, ...]
    """Time of forward pass, backward pass and loss of one microbatch."""
    time_ns: tuple[int, ...]
    """`compute_ns` plus communication."""
    bytes: tuple[int, ...]
    """Parameters, slots, and the activations of all microbatches that are alive."""
    sent_bytes: tuple[int, ...]
    """Bytes of tensors and gradients sent per microbatch."""
    received_bytes: tuple[int, ...]
    messages: tuple[int, ...]
    """Number of messages sent per microbatch."""


class Costs:
    """Integer costs of a graph of groups, on which the algorithms work."""

    def __init__(self, groups: Groups, options: CutOptions) -> None:
        graph = groups.graph
        self.groups = groups
        self.options = options
        self.partitions = options.partitions
        self.trains = any(unit.backward_us for unit in graph.units)
        self.compute = [sum(_ns(graph.units[i].time_us) for i in members) for members in groups.members]
        self.static = [
            sum(graph.units[i].parameter_bytes + graph.units[i].slot_bytes for i in members)
            for members in groups.members
        ]
        self.activation = [sum(graph.units[i].activation_bytes for i in members) for members in groups.members]
        self.trips = 2 if self.trains else 1
        self.transfer = [self.trips * self.message_ns(tensor.bytes) for tensor in groups.tensors]
        self.alive = [options.alive(p) for p in range(self.partitions)]
        self._outputs()

    def message_ns(self, size: int) -> int:
        """Return the cost of one message to each of its two sides.

        Args:
            size: Bytes of the message.

        Returns:
            Nanoseconds.
        """
        return _ns(self.options.message_us) + _ns(self.options.byte_us * size)

    def _outputs(self) -> None:
        """Charge outputs: one message to each partition as a base, and P - 2 more to the owner, which sends P - 1."""
        graph, others = self.groups.graph, self.partitions - 1
        self.outputs = [(self.groups.of[graph.index[output.unit]], output.bytes) for output in graph.outputs]
        received = sum(self.message_ns(size) for _, size in self.outputs) if others else 0
        self.base = [received] * self.partitions
        self.base[-1] += _ns(graph.loss_us)
        self.owner = [0] * len(self.groups)
        for group, size in self.outputs:
            self.owner[group] += max(others - 1, 0) * self.message_ns(size)

    def measures(self, assignment: Sequence[int]) -> tuple[int, int, int]:
        """Return both objectives, and the communication that depends on the assignment.

        Args:
            assignment: Partition of each group.

        Returns:
            Nanoseconds and bytes, in the order of the objectives, and nanoseconds of communication.
        """
        result = self.evaluate(assignment)
        time, size = max(result.time_ns), max(result.bytes)
        compute, outputs = sum(self.compute) + sum(self.owner), sum(self.base)
        communication = sum(result.time_ns) - compute - outputs
        return (*((size, time) if self.options.optimize == "memory" else (time, size)), communication)

    def evaluate(self, assignment: Sequence[int]) -> Evaluation:
        """Compute the costs of an assignment of groups from scratch.

        Args:
            assignment: Partition of each group.

        Returns:
            Times in nanoseconds, memory in bytes, by partition.
        """
        parts = range(self.partitions)
        compute, time, held, kept = [0] * len(parts), list(self.base), [0] * len(parts), [0] * len(parts)
        sent, received, messages = [0] * len(parts), [0] * len(parts), [0] * len(parts)
        compute[-1] += _ns(self.groups.graph.loss_us)
        for group, part in enumerate(assignment):
            compute[part] += self.compute[group]
            time[part] += self.compute[group] + self.owner[group]
            held[part] += self.static[group]
            kept[part] += self.activation[group]
        for tensor, transfer in zip(self.groups.tensors, self.transfer, strict=True):
            placed = assignment[tensor.producer]
            for part in {assignment[consumer] for consumer in tensor.consumers} - {placed}:
                time[placed] += transfer
                time[part] += transfer
                kept[part] += tensor.bytes
                for source, target in ((placed, part), (part, placed))[: self.trips]:
                    sent[source] += tensor.bytes
                    received[target] += tensor.bytes
                    messages[source] += 1
        for group, size in self.outputs:
            placed = assignment[group]
            for part in parts:
                if part != placed:
                    sent[placed] += size
                    received[part] += size
                    messages[placed] += 1
        return Evaluation(
            compute_ns=tuple(compute),
            time_ns=tuple(time),
            bytes=tuple(held[p] + kept[p] * self.alive[p] for p in parts),
            sent_bytes=tuple(sent),
            received_bytes=tuple(received),
            messages=tuple(messages),
        )


def evaluate(graph: UnitGraph, assignment: Sequence[int], options: CutOptions) -> Evaluation:
    """Compute the costs of any assignment, also of one that was made by hand.

    Args:
        graph: The units.
        assignment: Partition per unit, in the order of `graph.units`.
        options: Number of partitions, schedule, cost of communication.

    Raises:
        SMPPartitionError: If the assignment does not fit the graph or the number of partitions.
    """
    if len(assignment) != len(graph.units):
        raise SMPPartitionError(f"assignment of {len(assignment)} units given for a graph of {len(graph.units)}")
    for unit, part in zip(graph.units, assignment, strict=True):
        if not 0 <= part < options.partitions:
            raise SMPPartitionError(
                f"unit {unit.name!r} is assigned to partition {part}: expected 0 to {options.partitions - 1}"
            )
    groups = apart(graph)
    return Costs(groups, options).evaluate([assignment[members[0]] for members in groups.members])


def _ns(microseconds: float) -> int:
    return round(microseconds * 1000)
