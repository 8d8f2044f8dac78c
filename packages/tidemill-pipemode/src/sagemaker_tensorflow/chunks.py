"""The records of one epoch after the other as a dataset of vectors, some of them empty.

TensorFlow's GeneratorDataset calls three functions: open when an iterator is first asked for an element, read for each
element until that says OUT_OF_RANGE, close when the iterator goes. Here are these three for the native reader and for
the one in Python.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Generator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from sagemaker_tensorflow import verdict_op, waits
from sagemaker_tensorflow.options import ReaderOptions
from sagemaker_tensorflow.python_reader import Chunk, ReadError, read_epoch

__all__ = ["ChunkDataset", "EpochOps", "NativeOps", "PythonOps"]

_PAUSE_S = 0.3
_STOP_TIMEOUT_S = 5.0
_CHUNK = tf.TensorSpec([None], tf.string)
_HANDLE = tf.TensorSpec([], tf.int64)


class _RunningCalls:
    """Calls into Python under way. The interpreter must not go while TensorFlow's threads are inside it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._last_end_s = float("-inf")
        waits.on_stop(self._wait)

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._last_end_s = time.monotonic()

    def _wait(self) -> None:
        # A thread that prefetches comes back at once, and then hears that the epoch is over: after a pause none will.
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        with self._changed:
            while self._count or time.monotonic() - self._last_end_s < _PAUSE_S:
                if time.monotonic() >= deadline_s:
                    return
                self._changed.wait(_PAUSE_S / 4)


_calls = _RunningCalls()


class EpochOps(Protocol):
    """What a reader offers to a graph. A handle is a scalar `tf.int64`."""

    def open(self, unused: tf.Tensor) -> tf.Tensor:
        """A handle of an epoch that is yet to be taken."""

    def read(self, handle: tf.Tensor) -> tf.Tensor:
        """A vector of records, or an empty one when nothing has come for a moment."""

    def close(self, handle: tf.Tensor) -> tf.Tensor:
        """Let the epoch go; returns the handle."""


class ChunkDataset(tf.data.Dataset):
    """Vectors of records; each iteration is an epoch."""

    def __init__(self, ops: EpochOps) -> None:
        # Kept: TensorFlow forgets a function when its Python object goes.
        self._functions = tuple(
            tf.function(function, autograph=False).get_concrete_function(_HANDLE)
            for function in (ops.open, ops.read, ops.close)
        )
        open_epoch, read, close = self._functions
        variant = tf.raw_ops.GeneratorDataset(
            init_func_other_args=[tf.constant(0, tf.int64)],
            next_func_other_args=[],
            finalize_func_other_args=[],
            init_func=open_epoch,
            next_func=read,
            finalize_func=close,
            output_types=[tf.string],
            output_shapes=[_CHUNK.shape],
        )
        super().__init__(variant)

    @property
    def element_spec(self) -> tf.TensorSpec:
        """A vector of `tf.string`."""
        return _CHUNK

    def _inputs(self) -> list[tf.data.Dataset]:
        return []


class NativeOps:
    """The native reader."""

    def __init__(self, library: Any, options: ReaderOptions) -> None:
        self._library = library
        self._options = options

    def open(self, unused: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        options = self._options
        return self._library.tidemill_pipe_open(
            channel=options.channel,
            record_format=options.record_format,
            state_dir=options.state_dir,
            pipe_dir=options.pipe_dir,
            max_record_bytes=options.max_record_bytes,
            max_corrupted_records=options.max_corrupted_records,
            strict_padding=options.strict_padding,
            path_timeout_ms=round(options.path_timeout_s * 1000),
            benchmark=options.benchmark,
            benchmark_records_interval=options.benchmark_records_interval,
        )

    def read(self, handle: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        records = self._library.tidemill_pipe_read(handle=handle)
        records.set_shape(_CHUNK.shape)
        return records

    def close(self, handle: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        return self._library.tidemill_pipe_close(handle=handle)


class PythonOps:
    """The reader in Python, called from the graph."""

    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._handles = itertools.count(1)
        self._epochs: dict[int, Generator[Chunk, None, None]] = {}
        self._errors: dict[int, str] = {}

    def open(self, unused: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        handle = tf.numpy_function(self._open, [], tf.int64)
        handle.set_shape([])
        return handle

    def read(self, handle: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        records, verdict = tf.numpy_function(self._read, [handle], (tf.string, tf.int64))
        records.set_shape(_CHUNK.shape)
        verdict.set_shape([])
        with tf.control_dependencies([verdict_op.raise_verdict(verdict)]):
            return tf.identity(records)

    def close(self, handle: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        closed = tf.numpy_function(self._close, [handle], tf.int64)
        closed.set_shape([])
        return closed

    def _open(self) -> np.int64:
        with _calls:
            handle = next(self._handles)
            self._epochs[handle] = read_epoch(self._options)
            return np.int64(handle)

    def _read(self, handle: np.int64) -> tuple[Any, np.int64]:
        with _calls:
            return self._read_next(int(handle))

    def _read_next(self, number: int) -> tuple[Any, np.int64]:
        verdict = 0
        records: list[bytes] = []
        try:
            if waits.is_stopping():
                return np.array([], dtype=object), np.int64(
                    verdict_op.post_verdict(verdict_op.OUT_OF_RANGE, "The process is ending")
                )
            if number in self._errors:
                raise ReadError(self._errors[number])
            chunk = next(self._epochs[number], None)
            if chunk is None:
                verdict = verdict_op.post_verdict(verdict_op.OUT_OF_RANGE, "End of epoch")
            elif chunk.interrupted:
                verdict = verdict_op.post_verdict(
                    verdict_op.ABORTED, "A signal interrupted the wait for Pipe mode data"
                )
            else:
                records = chunk.records
        except ReadError as error:
            self._errors[number] = str(error)
            verdict = verdict_op.post_verdict(verdict_op.INTERNAL, str(error))
        return np.array(records, dtype=object), np.int64(verdict)

    def _close(self, handle: np.int64) -> np.int64:
        with _calls:
            self._errors.pop(int(handle), None)
            self._epochs.pop(int(handle)).close()
            return handle
