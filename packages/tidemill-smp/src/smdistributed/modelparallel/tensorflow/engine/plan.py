"""The plan of a step on one rank: its segments, its messages, and their order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, PartitionAssignment
from smdistributed.modelparallel.tensorflow.engine.extract import Extractor, SegmentFunction
from smdistributed.modelparallel.tensorflow.engine.schedule import Schedule, Stage, make_schedule
from smdistributed.modelparallel.tensorflow.engine.segments import SegmentCut, SegmentMessage, cut
from smdistributed.modelparallel.tensorflow.engine.trace import Result, Trace


@dataclass(frozen=True)
class Plan:
    """One rank's part of a step."""

    number: int
    """Number of the plan, counted alike on all ranks of a replica."""
    partition: int
    trace: Trace
    assignment: PartitionAssignment
    cut: SegmentCut
    schedule: Schedule
    functions: Mapping[tuple[int, int], SegmentFunction]
    """Functions by level and microbatch. Microbatches share a function unless it contains seeded random ops."""
    extractor: Extractor
    placements: Sequence[int]
    """The partition of each result, or `ALL`."""
    ahead: Plan | None = None
    """The plan that computes the summands of sums over the whole batch, if the step uses any."""

    def fingerprint(self) -> list[str]:
        """Return lines that are equal on all ranks if and only if their plans are equal."""
        owners = self.assignment.owners
        lines: list[str] = []
        for node in self.trace.nodes:
            # The name of a captured placeholder may contain a counter of this process.
            name = "that stands for a captured tensor" if (node.index, 0) in self.trace.captures else node.name
            lines.append(f"op {name} ({node.type}) on {owners[node.index]}")
        lines += [
            f"message {self.label(message)} {m.source}->{m.target}" for m in self.cut.messages for message in (m,)
        ]
        return lines + [f"task {task.partition}.{task.level}.{task.microbatch}" for task in self.schedule.tasks]

    def digest(self) -> str:
        """Return a hash of `fingerprint`."""
        return hashlib.sha256("\n".join(self.fingerprint()).encode()).hexdigest()

    def label(self, message: SegmentMessage) -> str:
        """Return the name of the op whose output a message carries.

        Returns:
            ``OP:INDEX``.
        """
        return f"{self.trace.nodes[message.output[0]].name}:{message.output[1]}"


def make_plan(
    trace: Trace,
    assignment: PartitionAssignment,
    *,
    number: int,
    partition: int,
    num_partitions: int,
    num_microbatches: int,
    pipeline: str,
    active_microbatches: int | None = None,
    recompute: Set[int] = frozenset(),
    jit_compile: bool = False,
) -> Plan:
    """Plan the step of one rank; all ranks compute the same segments and schedule."""
    placements = _placements(trace, assignment)
    results = [
        (output, placement)
        for result, placement in zip(trace.results, placements, strict=True)
        for output in result.outputs
    ]
    pieces = cut(
        trace.nodes,
        assignment.owners,
        num_partitions=num_partitions,
        results=results,
        effects=trace.effects,
        recompute=recompute,
    )
    extractor = Extractor(trace, jit_compile=jit_compile)
    _check_messages(trace, pieces, extractor)
    schedule = make_schedule(
        stages_of(pieces),
        num_partitions=num_partitions,
        num_microbatches=num_microbatches,
        pipeline=pipeline,
        active_microbatches=active_microbatches,
    )
    functions = {
        (level, microbatch): function
        for level, segment in pieces.of(partition).items()
        for microbatch, function in enumerate(extractor.functions(segment, num_microbatches))
    }
    return Plan(number, partition, trace, assignment, pieces, schedule, functions, extractor, placements)


def _placements(trace: Trace, assignment: PartitionAssignment) -> list[int]:
    """Return the ranks of each result: gradients and values computed from them are with their variable, others on
    `ALL`."""
    carries = set()
    for node in trace.nodes:
        if node.name in trace.tracer.gradients or any(source in carries for source, _ in node.inputs):
            carries.add(node.index)
    return [_placement(result, trace, assignment, carries) for result in trace.results]


def _placement(result: Result, trace: Trace, assignment: PartitionAssignment, carries: set[int]) -> int:
    owners = {assignment.owners[index] for index, _ in result.outputs}
    if len(owners) != 1 or not any(index in carries for index, _ in result.outputs):
        return ALL
    is_gradient = any(trace.nodes[index].name in trace.tracer.gradients for index, _ in result.outputs)
    is_scalar = isinstance(result.spec, tf.TensorSpec) and result.spec.shape.rank == 0
    return ALL if is_scalar and not is_gradient else owners.pop()


def stages_of(pieces: SegmentCut) -> list[Stage]:
    """Return the segments as inputs of the schedule."""
    needs: dict[tuple[int, int], set[tuple[int, int]]] = {(s.partition, s.level): set() for s in pieces.segments}
    for segment in pieces.segments:
        earlier = [s.level for s in pieces.segments if s.partition == segment.partition and s.level < segment.level]
        needs[segment.partition, segment.level] |= {(segment.partition, level) for level in earlier}
        for message in pieces.messages:
            if message.target == segment.partition and message.output in segment.inputs:
                source = pieces.levels[message.source, message.output[0]]
                needs[segment.partition, segment.level].add((message.source, source))
    return [
        Stage(s.partition, s.level, tuple(sorted(needs[s.partition, s.level])), max(s.work, 0.1))
        for s in pieces.segments
    ]


def _check_messages(trace: Trace, pieces: SegmentCut, extractor: Extractor) -> None:
    for message in pieces.messages:
        tensor = extractor.tensor(message.output)
        if tensor.dtype in (tf.string, tf.variant, tf.resource):
            raise SMPPartitionError(
                f"the {tensor.dtype.name} tensor {tensor.name} is made in partition {message.source} and used in "
                f"partition {message.target}; only numbers and booleans can be sent between ranks: put both into one "
                "partition"
            )
