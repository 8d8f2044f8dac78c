"""Emits one rank's part of a plan into the graph under construction: receives, calls and sends, as scheduled."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from smdistributed.modelparallel.tensorflow.engine.assign import ALL
from smdistributed.modelparallel.tensorflow.engine.extract import SegmentFunction
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.plan import Plan
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward
from smdistributed.modelparallel.tensorflow.engine.segments import SegmentMessage
from smdistributed.modelparallel.tensorflow.engine.timeline import Timeline
from smdistributed.modelparallel.tensorflow.graph_names import TRAINING, mark
from smdistributed.modelparallel.tensorflow.transport.base import Transport

MAX_MICROBATCHES = 1 << 16
_MAX_MESSAGES = 1 << 24
_STAMPS = _MAX_MESSAGES - 1
"""Number of the message with a rank's time stamps."""


def emit(
    plan: Plan,
    pieces: Sequence[Sequence[Tensor]],
    *,
    transport: Transport,
    ranks: Sequence[int],
    timeline: Timeline | None,
    sums: Sequence[Tensor] = (),
) -> list[list[tuple[Any, ...] | None]]:
    """Add this rank's ops to the graph under construction.

    Args:
        plan: This rank's part of the step.
        pieces: The flat tensors of each microbatch.
        transport: Sends and receives tensors.
        ranks: Global rank of each partition.
        timeline: Records the segments, if any.
        sums: The sums over the whole batch that the step uses, in the order of the trace.

    Returns:
        Per result of the body and microbatch, its components; None if another rank holds them.
    """
    return _Emission(plan, pieces, transport, ranks, timeline, sums).run()


class _Emission:
    """One use of a plan in a graph."""

    def __init__(
        self,
        plan: Plan,
        pieces: Sequence[Sequence[Tensor]],
        transport: Transport,
        ranks: Sequence[int],
        timeline: Timeline | None,
        sums: Sequence[Tensor],
    ) -> None:
        self.plan = plan
        self.sums = sums
        self.transport = transport
        self.ranks = ranks
        self.timeline = timeline
        self.values: list[dict[Output, Tensor]] = [self._given(piece) for piece in pieces]
        self.after: list[Any] = []
        """Control inputs of the next op: the last op of this rank's schedule so far."""
        self.finished: list[Any] = []
        """Control inputs that fire when the last segment has finished. Sends of outputs that are ready may run
        earlier."""
        self.stamps: list[Any] = []

    def _given(self, piece: Sequence[Tensor]) -> dict[Output, Any]:
        trace = self.plan.trace
        given = {output: piece[place] for output, place in trace.inputs.items()}
        given |= {total: tensor for (_, total), tensor in zip(trace.sums, self.sums, strict=True)}
        return given | {output: tensor for output, tensor in trace.captures.items() if tensor.dtype != tf.resource}

    def run(self) -> list[list[tuple[Any, ...] | None]]:
        """Add the ops; see `emit`."""
        plan = self.plan
        if any(map(is_backward, plan.trace.nodes)):
            mark(TRAINING)
        segments = plan.cut.of(plan.partition)
        for task in plan.schedule.of(plan.partition):
            self._stamp()
            wanted = set(segments[task.level].inputs)
            for number, message in enumerate(plan.cut.messages):
                if message.target == plan.partition and message.output in wanted:
                    self._receive(number, message, task.microbatch)
            self._stamp()
            self._call(plan.functions[task.level, task.microbatch], task.microbatch)
            self._stamp()
            for number, message in enumerate(plan.cut.messages):
                if message.source == plan.partition and self._made_in(message) == task.level:
                    self._send(number, message, task.microbatch)
        self._stamp()
        self._receive_results()
        self._stamp()
        self._gather_stamps()
        return self._results()

    def _made_in(self, message: SegmentMessage) -> int:
        return self.plan.cut.levels[message.source, message.output[0]]

    def _receive(self, number: int, message: SegmentMessage, microbatch: int) -> None:
        if message.output in self.values[microbatch]:
            return
        # A tensor that is equal for all microbatches is received once, with the first.
        sent_with = 0 if message.output in self.plan.trace.invariance.equal else microbatch
        if message.output in self.values[sent_with]:
            self.values[microbatch][message.output] = self.values[sent_with][message.output]
            return
        traced = self.plan.extractor.tensor(message.output)
        with tf.control_dependencies(self.after):
            tensor = self.transport.receive(
                traced.dtype,
                peer=self.ranks[message.source],
                channel=self._channel(number, sent_with),
                label=self._label(message, sent_with),
            )
        tensor.set_shape(traced.shape)
        self.after = [tensor.op]
        self.values[microbatch][message.output] = self.values[sent_with][message.output] = tensor

    def _send(self, number: int, message: SegmentMessage, microbatch: int) -> None:
        if microbatch > 0 and message.output in self.plan.trace.invariance.equal:
            return
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
        with tf.control_dependencies([*self.after, *self.finished]):
            outputs, finished = function([values[output] for output in function.inputs])
        self.after = [finished.op]
        # An op of its own: after inlining, the call itself only orders what follows its stateful ops.
        self.finished = [tf.identity(finished).op]
        for output, tensor in zip(function.outputs, outputs, strict=True):
            tensor.set_shape(self.plan.extractor.tensor(output).shape)  # the traced shape may be more specific
            values[output] = tensor

    def _receive_results(self) -> None:
        """Receive results that this rank does not compute, such as a loss computed in the last partition."""
        here = self.plan.partition
        for microbatch in range(len(self.values)):
            for number, message in enumerate(self.plan.cut.messages):
                if message.target == here:
                    self._receive(number, message, microbatch)

    def _results(self) -> list[list[tuple[Any, ...] | None]]:
        found = []
        for result, placement in zip(self.plan.trace.results, self.plan.placements, strict=True):
            here = placement in (ALL, self.plan.partition)
            found.append([tuple(v[o] for o in result.outputs) if here else None for v in self.values])
        return found

    def _channel(self, number: int, microbatch: int) -> int:
        if microbatch >= MAX_MICROBATCHES:
            raise SMPUsageError(f"{microbatch + 1} microbatches are more than the {MAX_MICROBATCHES} allowed")
        return (self.plan.number << 40) | (number << 16) | microbatch

    def _label(self, message: SegmentMessage, microbatch: int) -> str:
        return f"partition {message.source}, microbatch {microbatch}, op {self.plan.label(message)}"

    # --- the timeline, if there is one -------------------------------------------------------------------------------

    def _stamp(self) -> None:
        if self.timeline is None:
            return
        with tf.control_dependencies([*self.after, *self.finished]):
            stamp = tf.timestamp()
        self.after = [stamp.op]
        self.stamps.append(stamp)

    def _gather_stamps(self) -> None:
        """Send the time stamps of all ranks of the replica to its first rank, which records them."""
        if self.timeline is None:
            return
        plan = self.plan
        own = tf.stack(self.stamps)
        with tf.control_dependencies(self.after):
            if plan.partition != 0:
                channel = self._channel(_STAMPS, plan.partition)
                self.transport.send(own, peer=self.ranks[0], channel=channel, label="time stamps")
                return
        gathered = [own]
        for partition in range(1, len(self.ranks)):
            with tf.control_dependencies(self.after):
                stamps = self.transport.receive(
                    own.dtype,
                    peer=self.ranks[partition],
                    channel=self._channel(_STAMPS, partition),
                    label=f"partition {partition}, time stamps",
                )
            self.after = [stamps.op]
            gathered.append(stamps)
        self.timeline.record(plan, self.ranks, gathered)
