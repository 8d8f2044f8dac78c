"""What an assignment costs: time and bytes of each partition, and what travels.

    time of a partition  = forward + backward of its units, + what it sends and receives, + its outputs' broadcast
                           (+ the loss, on the last one)                                          per microbatch
    bytes of a partition = parameters + slots + (activations + tensors received) x microbatches alive there

A tensor is sent once to every other partition that uses it, and its gradient comes back: two messages, paid on both
sides (a rank has one core for layers and sockets). An output goes to all other ranks and brings no gradient back: they
compute it. Alive on partition p are P - p microbatches (`interleaved`) or all B (`simple`); one on the last, which
runs each backward right behind its forward.

All arithmetic is on integers, nanoseconds and bytes: sums do not depend on their order, so ties are ties on every
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.groups import Groups, apart
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

__all__ = ["Costs", "CutOptions", "Evaluation", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class CutOptions:
    """What the decision depends on besides the graph.

    Raises:
        SMPPartitionError: If a value is out of its range.
    """

    partitions: int
    microbatches: int = 1
    optimize: Literal["memory", "speed"] = "memory"
    """What is minimised first: bytes of the largest partition, or time of the slowest."""
    pipeline: Literal["interleaved", "simple"] = "interleaved"
    active_microbatches: int | None = None
    """A cap on the microbatches alive on any partition."""
    contiguous: bool = True
    """Each partition is connected in the graph, its edges taken without direction (if the graph itself is)."""
    memory_slack: float = 0.05
    """`memory`: by how much the largest partition may exceed its minimum where that buys time."""
    time_slack: float = 0.01
    """`speed`: by how much the slowest partition may exceed its minimum where that buys bytes."""
    message_us: float = 50.0
    """A message's cost to each side: the measured order of the native transport on one machine."""
    byte_us: float = 0.0003
    """A byte's cost to each side, i.e. 3.3 GB/s."""

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
        """How far the first measure may be from its minimum."""
        return self.memory_slack if self.optimize == "memory" else self.time_slack

    def alive(self, partition: int) -> int:
        """Microbatches whose activations a partition keeps at the same time, at most."""
        if partition == self.partitions - 1:
            return 1
        alive = self.microbatches
        if self.pipeline == "interleaved":
            alive = min(alive, self.partitions - partition)
        return min(alive, self.active_microbatches or alive)


@dataclass(frozen=True)
class Evaluation:
    """What an assignment costs, per partition."""

    compute_ns: tuple[int, ...]
    """Forward, backward and loss of one microbatch."""
    time_ns: tuple[int, ...]
    """The same with communication."""
    bytes: tuple[int, ...]
    """Parameters, slots, and activations of all microbatches alive."""
    sent_bytes: tuple[int, ...]
    """Per microbatch, tensors and gradients."""
    received_bytes: tuple[int, ...]
    messages: tuple[int, ...]
    """Sent per microbatch."""


class Costs:
    """The integers behind the graph: what the algorithms work on."""

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
        """Cost of one message to each of its two sides."""
        return _ns(self.options.message_us) + _ns(self.options.byte_us * size)

    def _outputs(self) -> None:
        """The owner of an output sends P - 1 messages, all others receive one: a base, and the owner's rest."""
        graph, others = self.groups.graph, self.partitions - 1
        self.outputs = [(self.groups.of[graph.index[output.unit]], output.bytes) for output in graph.outputs]
        received = sum(self.message_ns(size) for _, size in self.outputs) if others else 0
        self.base = [received] * self.partitions
        self.base[-1] += _ns(graph.loss_us)
        self.owner = [0] * len(self.groups)
        for group, size in self.outputs:
            self.owner[group] += max(others - 1, 0) * self.message_ns(size)

    def measures(self, assignment: Sequence[int]) -> tuple[int, int, int]:
        """What is minimised first and second, and the communication that depends on the assignment."""
        result = self.evaluate(assignment)
        time, size = max(result.time_ns), max(result.bytes)
        compute, outputs = sum(self.compute) + sum(self.owner), sum(self.base)
        communication = sum(result.time_ns) - compute - outputs
        return (*((size, time) if self.options.optimize == "memory" else (time, size)), communication)

    def evaluate(self, assignment: Sequence[int]) -> Evaluation:
        """Cost of an assignment of groups, from scratch."""
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
            home = assignment[tensor.producer]
            for part in {assignment[consumer] for consumer in tensor.consumers} - {home}:
                time[home] += transfer
                time[part] += transfer
                kept[part] += tensor.bytes
                for source, target in ((home, part), (part, home))[: self.trips]:
                    sent[source] += tensor.bytes
                    received[target] += tensor.bytes
                    messages[source] += 1
        for group, size in self.outputs:
            home = assignment[group]
            for part in parts:
                if part != home:
                    sent[home] += size
                    received[part] += size
                    messages[home] += 1
        return Evaluation(
            compute_ns=tuple(compute),
            time_ns=tuple(time),
            bytes=tuple(held[p] + kept[p] * self.alive[p] for p in parts),
            sent_bytes=tuple(sent),
            received_bytes=tuple(received),
            messages=tuple(messages),
        )


def evaluate(graph: UnitGraph, assignment: Sequence[int], options: CutOptions) -> Evaluation:
    """Cost of any assignment, also one made by hand.

    Args:
        graph: The units.
        assignment: Partition per unit, in the order of `graph.units`.
        options: Number of partitions, schedule, price of communication.

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
