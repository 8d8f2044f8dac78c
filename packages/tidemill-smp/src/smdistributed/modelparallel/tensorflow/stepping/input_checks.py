"""Checks that the ranks of a replica receive the same batches, by checksums on the first calls of a step.

Each rank reads its own copy of the batch. Ranks that shard or shuffle differently would pair examples with the labels
of other examples, without any error.
"""

import itertools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPInputMismatchError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import GraphOperation, Tensor, Variable
from smdistributed.modelparallel.tensorflow.collectives import model_parallel_group
from smdistributed.modelparallel.tensorflow.session import RankSession

CALLS = 4
"""Number of calls of a step that are checked."""
_numbers = itertools.count()


class InputCheck:
    """The check of one step function."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._number = next(_numbers)
        """Distinguishes steps with the same name; equal on all ranks, which run the same script."""
        self._calls: Variable | None = None

    def emit(self, named: Sequence[tuple[str, Tensor]], session: RankSession) -> list[GraphOperation]:
        """Add ops that compare tensors with those of the replica's other ranks, on the first runs of the graph.

        Args:
            named: Names of arguments with dense tensors, of the same kinds on all ranks.

        Returns:
            The ops that must run before the step.
        """
        named = [(name, tensor) for name, tensor in named if tensor.dtype not in (tf.resource, tf.variant)]
        if session.config.partitions == 1 or not session.config.check_inputs or not named:
            return []
        if self._calls is None:
            with tf.init_scope():
                self._calls = tf.Variable(0, dtype=tf.int64, trainable=False, name="smp_checked_calls")
        calls = self._calls
        names = [name for name, _ in named]

        def compare(call: np.ndarray, *by_rank: np.ndarray) -> np.ndarray:
            self._compare(int(call), names, by_rank, session)
            return call

        def check() -> Tensor:
            call = calls.assign_add(1)
            mine = tf.numpy_function(_checksums, [tensor for _, tensor in named], tf.int64)
            mine.set_shape([len(names)])
            group = model_parallel_group(session)
            by_rank = group.gather([mine], f"checksums of the inputs of {self._step} ({self._number})")[0]
            return tf.numpy_function(compare, [call, *by_rank], tf.int64)

        return [tf.cond(calls < CALLS, check, calls.read_value).op]

    def _compare(self, call: int, names: Sequence[str], by_rank: Sequence[Any], session: RankSession) -> None:
        for name, *checksums in zip(names, *by_rank, strict=True):
            others = [rank for rank, checksum in enumerate(checksums) if checksum != checksums[0]]
            if others:
                first, *rest = (session.world.name_of(session.mp_group.ranks[rank]) for rank in (0, *others))
                raise SMPInputMismatchError(
                    f"call {call} of {self._step}: '{name}' on {' and '.join(rest)} differs from that on {first}. "
                    "All ranks of a replica must read the same examples in the same order: shard by smp.dp_rank() "
                    "and smp.dp_size(), seed shuffles with smp.dp_rank(), and sort lists of files. If the difference "
                    "is intended, set 'check_inputs' to False"
                )


def _checksums(*values: np.ndarray) -> np.ndarray:
    return np.array([_checksum(np.asarray(value)) for value in values], np.int64)


def _checksum(value: np.ndarray) -> int:
    data = repr(value.tolist()).encode() if value.dtype == object else value.tobytes()
    return zlib.crc32(data, zlib.crc32(repr(value.shape).encode()))
