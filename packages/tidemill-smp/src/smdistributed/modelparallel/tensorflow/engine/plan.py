"""What one rank runs of a step, and putting it into a graph."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPPartitionError, SMPUsageError
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, Assignment
from smdistributed.modelparallel.tensorflow.engine.extract import Extractor, SegmentFunction
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.schedule import Schedule, Stage, make_schedule
from smdistributed.modelparallel.tensorflow.engine.segments import Cut, Message, cut
from smdistributed.modelparallel.tensorflow.engine.trace import Result, Trace
from smdistributed.modelparallel.tensorflow.transport.base import Transport

__all__ = ["MAX_MICROBATCHES", "Plan", "make_plan"]

MAX_MICROBATCHES = 1 << 16


@dataclass(frozen=True)
class Plan:
    """One rank's part of a step."""

    number: int
    """Which plan of the job it is, counted alike on all ranks of a replica."""
    partition: int
    trace: Trace
    assignment: Assignment
    cut: Cut
    schedule: Schedule
    functions: Mapping[int, SegmentFunction]
    """By level."""
    extractor: Extractor
    homes: Sequence[int]
    """Where each result is: a partition, or `ALL`."""

    def fingerprint(self) -> list[str]:
        """Lines that are equal on all ranks if and only if they made the same plan."""
        nodes, owners = self.trace.nodes, self.assignment.owners
        lines = [f"op {node.name} ({node.type}) on {owners[node.index]}" for node in nodes]
        lines += [
            f"message {self.label(message)} {m.source}->{m.target}" for m in self.cut.messages for message in (m,)
        ]
        return lines + [f"task {task.partition}.{task.level}.{task.microbatch}" for task in self.schedule.tasks]

    def digest(self) -> str:
        """A hash of `fingerprint`."""
        return hashlib.sha256("\n".join(self.fingerprint()).encode()).hexdigest()

    def label(self, message: Message) -> str:
        """The tensor that a message carries, by the name of its op."""
        return f"{self.trace.nodes[message.output[0]].name}:{message.output[1]}"

    def emit(
        self, pieces: Sequence[Sequence[Any]], *, transport: Transport, ranks: Sequence[int]
    ) -> list[list[tuple[Any, ...] | None]]:
        """Add this rank's ops to the graph that is being built.

        Args:
            pieces: For each microbatch its flat tensors.
            transport: How tensors travel.
            ranks: World rank of each partition.

        Returns:
            For each result of the body and each microbatch the components; None where another rank has them.
        """
        return _Emission(self, pieces, transport, ranks).run()


def make_plan(
    trace: Trace,
    assignment: Assignment,
    *,
    number: int,
    partition: int,
    num_partitions: int,
    num_microbatches: int,
    pipeline: str,
    active_microbatches: int | None = None,
    jit_compile: bool = False,
) -> Plan:
    """Plan the step of one rank; every rank comes to the same cut and schedule."""
    homes = _homes(trace, assignment)
    results = [(output, home) for result, home in zip(trace.results, homes, strict=True) for output in result.outputs]
    pieces = cut(trace.nodes, assignment.owners, num_partitions=num_partitions, results=results, effects=trace.effects)
    extractor = Extractor(trace, jit_compile=jit_compile)
    _check_messages(trace, pieces, extractor)
    schedule = make_schedule(
        _stages(pieces),
        num_partitions=num_partitions,
        num_microbatches=num_microbatches,
        pipeline=pipeline,
        active_microbatches=active_microbatches,
    )
    functions = {level: extractor.function(segment) for level, segment in pieces.of(partition).items()}
    return Plan(number, partition, trace, assignment, pieces, schedule, functions, extractor, homes)


def _homes(trace: Trace, assignment: Assignment) -> list[int]:
    """Gradients of variables, and what is made of them, stay where the variable is; all else goes to all ranks."""
    carries = set()
    for node in trace.nodes:
        if node.name in trace.tracer.gradients or any(source in carries for source, _ in node.inputs):
            carries.add(node.index)
    return [_home(result, trace, assignment, carries) for result in trace.results]


def _home(result: Result, trace: Trace, assignment: Assignment, carries: set[int]) -> int:
    owners = {assignment.owners[index] for index, _ in result.outputs}
    if len(owners) != 1 or not any(index in carries for index, _ in result.outputs):
        return ALL
    is_gradient = any(trace.nodes[index].name in trace.tracer.gradients for index, _ in result.outputs)
    is_scalar = isinstance(result.spec, tf.TensorSpec) and result.spec.shape.rank == 0
    return ALL if is_scalar and not is_gradient else owners.pop()


def _stages(pieces: Cut) -> list[Stage]:
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


def _check_messages(trace: Trace, pieces: Cut, extractor: Extractor) -> None:
    for message in pieces.messages:
        tensor = extractor.tensor(message.output)
        if tensor.dtype in (tf.string, tf.variant, tf.resource):
            raise SMPPartitionError(
                f"the {tensor.dtype.name} tensor {tensor.name} is made in partition {message.source} and used in "
                f"partition {message.target}; only numbers and booleans can travel between ranks: put both into one "
                "partition"
            )


class _Emission:
    def __init__(self, plan: Plan, pieces: Sequence[Sequence[Any]], transport: Transport, ranks: Sequence[int]) -> None:
        self.plan = plan
        self.transport = transport
        self.ranks = ranks
        self.values: list[dict[Output, Any]] = [self._given(piece) for piece in pieces]
        self.after: list[Any] = []

    def _given(self, piece: Sequence[Any]) -> dict[Output, Any]:
        trace = self.plan.trace
        given = {output: piece[place] for output, place in trace.inputs.items()}
        return given | {output: tensor for output, tensor in trace.captures.items() if tensor.dtype != tf.resource}

    def run(self) -> list[list[tuple[Any, ...] | None]]:
        plan = self.plan
        segments = plan.cut.of(plan.partition)
        for task in plan.schedule.of(plan.partition):
            segment = segments[task.level]
            for number, message in enumerate(plan.cut.messages):
                if message.target == plan.partition and message.output in segment.inputs:
                    self._receive(number, message, task.microbatch)
            self._call(plan.functions[task.level], task.microbatch)
            for number, message in enumerate(plan.cut.messages):
                if message.source == plan.partition and self._made_in(message) == task.level:
                    self._send(number, message, task.microbatch)
        self._receive_results()
        return self._results()

    def _made_in(self, message: Message) -> int:
        return self.plan.cut.levels[message.source, message.output[0]]

    def _receive(self, number: int, message: Message, microbatch: int) -> None:
        if message.output in self.values[microbatch]:
            return
        traced = self.plan.extractor.tensor(message.output)
        with tf.control_dependencies(self.after):
            tensor = self.transport.receive(
                traced.dtype,
                peer=self.ranks[message.source],
                channel=self._channel(number, microbatch),
                label=self._label(message, microbatch),
            )
        tensor.set_shape(traced.shape)
        self.after = [tensor.op]
        self.values[microbatch][message.output] = tensor

    def _send(self, number: int, message: Message, microbatch: int) -> None:
        with tf.control_dependencies(self.after):
            op = self.transport.send(
                self.values[microbatch][message.output],
                peer=self.ranks[message.target],
                channel=self._channel(number, microbatch),
                label=self._label(message, microbatch),
            )
        self.after = [op]

    def _call(self, function: SegmentFunction, microbatch: int) -> None:
        values = self.values[microbatch]
        with tf.control_dependencies(self.after):
            outputs = function([values[output] for output in function.inputs])
            # A function that returns nothing is there for its effects; the next op must wait for those as well.
            self.after = [tensor.op for tensor in outputs] or [tf.no_op()]
        values.update(zip(function.outputs, outputs, strict=True))

    def _receive_results(self) -> None:
        """Results that this rank takes no part in computing, such as a loss that is made in the last partition."""
        here = self.plan.partition
        for microbatch in range(len(self.values)):
            for number, message in enumerate(self.plan.cut.messages):
                if message.target == here:
                    self._receive(number, message, microbatch)

    def _results(self) -> list[list[tuple[Any, ...] | None]]:
        found = []
        for result, home in zip(self.plan.trace.results, self.plan.homes, strict=True):
            here = home in (ALL, self.plan.partition)
            found.append([tuple(v[o] for o in result.outputs) if here else None for v in self.values])
        return found

    def _channel(self, number: int, microbatch: int) -> int:
        if microbatch >= MAX_MICROBATCHES:
            raise SMPUsageError(f"{microbatch + 1} microbatches are more than the {MAX_MICROBATCHES} allowed")
        return (self.plan.number << 40) | (number << 16) | microbatch

    def _label(self, message: Message, microbatch: int) -> str:
        return f"partition {message.source}, microbatch {microbatch}, op {self.plan.label(message)}"
