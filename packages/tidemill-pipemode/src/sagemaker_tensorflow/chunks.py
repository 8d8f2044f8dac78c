"""Read epochs as a dataset of record vectors, some of them empty.

TensorFlow's GeneratorDataset calls three functions: open at the first element of an iterator, read for each element
until it returns OUT_OF_RANGE, close when the iterator is destroyed. This module provides the three for the native
reader and for the Python reader.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sagemaker_tensorflow import status_op, waits
from sagemaker_tensorflow.options import ReaderOptions
from sagemaker_tensorflow.python_reader import Chunk, ReadError, read_epoch

if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # missing in Python 3.7, and only needed by type checkers

_PAUSE_S = 0.3
_STOP_TIMEOUT_S = 5.0
_CHUNK = tf.TensorSpec([None], tf.string)
_HANDLE = tf.TensorSpec([], tf.int64)


class RunningCalls:
    """Track running calls into Python: the interpreter must not exit while TensorFlow's threads are inside it."""

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
        # A prefetching thread calls again at once, and learns that the epoch is over. After a pause no thread calls.
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        with self._changed:
            while self._count or time.monotonic() - self._last_end_s < _PAUSE_S:
                if time.monotonic() >= deadline_s:
                    return
                self._changed.wait(_PAUSE_S / 4)


RUNNING_CALLS = RunningCalls()


class EpochOps(Protocol):
    """Graph ops of a reader. A handle is a scalar `tf.int64`."""

    def open(self, unused: tf.Tensor) -> tf.Tensor:
        """Return the handle of an epoch that is opened at the first read.

        Args:
            unused: Scalar of any type; `tf.data` calls the function with one.

        Returns:
            int64, shape [].
        """

    def read(self, handle: tf.Tensor) -> tf.Tensor:
        """Return a vector of records; empty if none arrived within the wait interval.

        Args:
            handle: int64, shape [].

        Returns:
            tf.string, shape [None].
        """

    def close(self, handle: tf.Tensor) -> tf.Tensor:
        """Release the epoch and return its handle.

        Args:
            handle: int64, shape [].

        Returns:
            int64, shape [].
        """


class ChunkDataset(tf.data.Dataset):
    """Dataset of record vectors; each iteration reads one epoch."""

    def __init__(self, ops: EpochOps) -> None:
        # Keep a reference: TensorFlow drops a function when its Python object is collected.
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
        """Return the spec of a `tf.string` vector of unknown length."""
        return _CHUNK

    def _inputs(self) -> list[tf.data.Dataset]:
        return []


class NativeOps:
    """Ops of the native reader."""

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
    """Ops that call the Python reader from the graph."""

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
        records, status = tf.numpy_function(self._read, [handle], (tf.string, tf.int64))
        records.set_shape(_CHUNK.shape)
        status.set_shape([])
        with tf.control_dependencies([status_op.raise_status(status)]):
            return tf.identity(records)

    def close(self, handle: tf.Tensor) -> tf.Tensor:
        """See `EpochOps`."""
        closed = tf.numpy_function(self._close, [handle], tf.int64)
        closed.set_shape([])
        return closed

    def _open(self) -> np.int64:
        with RUNNING_CALLS:
            handle = next(self._handles)
            self._epochs[handle] = read_epoch(self._options)
            return np.int64(handle)

    def _read(self, handle: np.int64) -> tuple[Any, np.int64]:
        with RUNNING_CALLS:
            return self._read_next(int(handle))

    def _read_next(self, number: int) -> tuple[Any, np.int64]:
        status = 0
        records: list[bytes] = []
        try:
            if waits.is_stopping():
                return np.array([], dtype=object), np.int64(
                    status_op.post_status(status_op.OUT_OF_RANGE, "The process is ending")
                )
            if number in self._errors:
                raise ReadError(self._errors[number])
            chunk = next(self._epochs[number], None)
            if chunk is None:
                status = status_op.post_status(status_op.OUT_OF_RANGE, "End of epoch")
            elif chunk.interrupted:
                status = status_op.post_status(status_op.ABORTED, "A signal interrupted the wait for Pipe mode data")
            else:
                records = chunk.records
        except ReadError as error:
            self._errors[number] = str(error)
            status = status_op.post_status(status_op.INTERNAL, str(error))
        return np.array(records, dtype=object), np.int64(status)

    def _close(self, handle: np.int64) -> np.int64:
        with RUNNING_CALLS:
            self._errors.pop(int(handle), None)
            self._epochs.pop(int(handle)).close()
            return handle
