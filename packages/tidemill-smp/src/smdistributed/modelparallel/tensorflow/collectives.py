"""Collective operations on tensors (gather, exchange, sum) over a group of ranks, in graphs or eagerly.

All ranks of the group make the same calls in the same order. Messages use the transport of the pipeline on separate
channels: the plans of steps use channels below 2**60.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import DType, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.transport.base import Transport

_CHANNELS = 1 << 61
_SMALL_BYTES = 64 << 10
"""Vectors up to this size are gathered on all ranks, which takes one exchange instead of the ring's 2 (n - 1)."""


@dataclass(frozen=True)
class TensorGroup:
    """A group of ranks, and the transport between them."""

    transport: Transport
    ranks: tuple[int, ...]
    """The members, as global ranks."""
    rank: int
    """The rank of this process in the group."""
    name: str

    @property
    def size(self) -> int:
        """The number of ranks in the group."""
        return len(self.ranks)

    def gather(self, tensors: Sequence[Tensor], what: str, *, same_shapes: bool = True) -> list[list[Tensor]]:
        """Return the tensors of all members.

        Args:
            tensors: The tensors of this rank; all members pass as many, of the same dtypes.
            what: Name of the exchange, the same on all members; selects the channel and appears in error messages.
            same_shapes: Whether the shapes are also equal on all members.

        Returns:
            For each tensor, a list of the members' tensors by rank.
        """
        after: list[GraphOperation | None] = []
        for number, tensor in enumerate(tensors):
            for peer in self._others():
                after.append(self._send(tensor, peer, f"{what} {number}", after))
        gathered: list[list[Any]] = [[None] * self.size for _ in tensors]
        for number, tensor in enumerate(tensors):
            for peer in range(self.size):
                if peer == self.rank:
                    gathered[number][peer] = tensor
                    continue
                received = self._receive(tensor.dtype, peer, f"{what} {number}", after)
                if same_shapes:
                    received.set_shape(tensor.shape)
                gathered[number][peer] = received
                after.append(_op(received))
        return gathered

    def exchange(self, tensors: Sequence[Tensor | None], dtypes: Sequence[DType | None], what: str) -> list[Any]:
        """Send a different tensor to each member, and receive one from each (all-to-all).

        Args:
            tensors: By member: the tensor to send, or None for none. The entry of this rank is ignored.
            dtypes: By member: the dtype of the tensor to receive, or None for none.
            what: Name of the exchange, the same on all members; selects the channel and appears in error messages.

        Returns:
            By member: the received tensor, or None.
        """
        after: list[GraphOperation | None] = []
        for peer in self._others():
            tensor = tensors[peer]
            if tensor is not None:
                after.append(self._send(tensor, peer, what, []))
        received: list[Any] = [None] * self.size
        for peer, dtype in enumerate(dtypes):
            if peer != self.rank and dtype is not None:
                received[peer] = self._receive(dtype, peer, what, after)
                after.append(_op(received[peer]))
        return received

    def sum(self, vectors: Sequence[Tensor], what: str) -> list[Tensor]:
        """Return the sums over the group of vectors of static size, bit-equal on all members (all-reduce).

        Args:
            vectors: Shape [n] each, n static; any number dtype.
            what: What is summed, for errors.

        Returns:
            The same shapes and dtypes.
        """
        if self.size == 1:
            return list(vectors)
        whole = [vector for vector in vectors if self._sends_whole(vector)]
        sums = iter([reduce(tf.add, parts) for parts in self.gather(whole, what)])
        return [
            next(sums) if self._sends_whole(vector) else self._ring_sum(vector, f"{what} {number}")
            for number, vector in enumerate(vectors)
        ]

    def _sends_whole(self, vector: Tensor) -> bool:
        # Between two ranks, the ring sends half of the vector twice: as many bytes as the whole vector once.
        return self.size == 2 or vector.shape[0] * vector.dtype.size <= _SMALL_BYTES

    def _ring_sum(self, vector: Tensor, what: str) -> Tensor:
        """Reduce-scatter, then all-gather: each chunk is summed round the ring, then sent round once more."""
        share, rest = divmod(vector.shape[0], self.size)
        chunks = tf.split(vector, [share + (part < rest) for part in range(self.size)])
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        after: list[GraphOperation | None] = []
        for turn in range(2 * (self.size - 1)):
            out, into = (self.rank - turn) % self.size, (self.rank - turn - 1) % self.size
            after = [self._send(chunks[out], right, what, after)]
            came = self._receive(vector.dtype, left, what, after)
            came.set_shape(chunks[into].shape)
            after = [_op(came)]
            chunks[into] = chunks[into] + came if turn < self.size - 1 else came
        return tf.concat(chunks, 0)

    def _others(self) -> list[int]:
        # Each rank starts with its successor, so that they do not all send to the same rank first.
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    def _send(self, tensor: Tensor, peer: int, what: str, after: Sequence[GraphOperation | None]) -> GraphOperation:
        with tf.control_dependencies(_in_graph(after)):
            return self.transport.send(
                tensor, peer=self.ranks[peer], channel=self._channel(what), label=f"{what}, {self.name} group"
            )

    def _receive(self, dtype: DType, peer: int, what: str, after: Sequence[GraphOperation | None]) -> Tensor:
        with tf.control_dependencies(_in_graph(after)):
            return self.transport.receive(
                dtype, peer=self.ranks[peer], channel=self._channel(what), label=f"{what}, {self.name} group"
            )

    def _channel(self, what: str) -> int:
        # The channel depends on the name: mismatched calls then time out with an error, instead of mixing up tensors.
        return _CHANNELS | zlib.crc32(f"{self.name} {what}".encode())


def model_parallel_group(session: RankSession) -> TensorGroup:
    """Return the group of this replica's ranks, ordered by partition.

    Args:
        session: The session of this process.
    """
    group = session.mp_group
    return TensorGroup(session.transport, group.ranks, group.rank, "model-parallel")


def data_parallel_group(session: RankSession) -> TensorGroup:
    """Return the group of the ranks that hold this partition, ordered by replica.

    Args:
        session: The session of this process.
    """
    group = session.dp_group
    return TensorGroup(session.transport, group.ranks, group.rank, "data-parallel")


def _op(tensor: Tensor) -> GraphOperation | None:
    return None if tf.executing_eagerly() else tensor.op


def _in_graph(ops: Sequence[GraphOperation | None]) -> list[GraphOperation]:
    return [] if tf.executing_eagerly() else [op for op in ops if op is not None]
