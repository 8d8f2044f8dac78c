"""Vectors and records on TensorFlow before 2.12, which lacks the APIs that `chunks` and the native reader need.

The Python reader runs through `tf.data.Dataset.from_generator`, available from 1.15 on and in `tf.estimator` graphs.
A stream error raises `tf.errors.UnknownError` there, with the same text.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from sagemaker_tensorflow import waits
from sagemaker_tensorflow.chunks import RUNNING_CALLS
from sagemaker_tensorflow.python_reader import ReadError, read_epoch

if TYPE_CHECKING:
    from collections.abc import Generator

    from sagemaker_tensorflow.options import ReaderOptions

SUPPORTED_BELOW = (2, 12)
"""From this version on TensorFlow has `Dataset.rebatch` and the C API for ops."""


class EarlyRecordDataset(tf.data.Dataset):
    """Dataset of single records, split from vectors."""

    def __init__(self, vectors: tf.data.Dataset) -> None:
        # TensorFlow 1 calls methods for variant and spec; TensorFlow 2 takes the variant as an argument.
        self._records = vectors.unbatch()
        if tf.__version__.startswith("1."):
            super().__init__()
        else:
            super().__init__(self._records._variant_tensor)

    @property
    def element_spec(self) -> tf.TensorSpec:
        """Return the spec of a scalar `tf.string`."""
        return tf.TensorSpec([], tf.string)

    def _as_variant_tensor(self) -> tf.Tensor:
        return self._records._variant_tensor

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._records]


def vectors_of(options: ReaderOptions) -> tf.data.Dataset:
    """Return a dataset of vectors of records; each iteration is an epoch.

    Returns:
        Elements are tf.string of shape [None].
    """
    return tf.data.Dataset.from_generator(lambda: _vectors(options), tf.string, tf.TensorShape([None]))


def without_sharding(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return the dataset with sharding by file turned off: a FIFO cannot be split.

    Args:
        dataset: Any dataset.
    """
    options = tf.data.Options()
    distribute = options.experimental_distribute
    if hasattr(distribute, "auto_shard_policy"):
        distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    else:
        distribute.auto_shard = False
    return dataset.with_options(options)


def _vectors(options: ReaderOptions) -> Generator[Any, None, None]:
    """Yield the non-empty vectors of records.

    Raises:
        ReadError: The stream is invalid; the records before the error have been yielded.
    """
    with contextlib.closing(read_epoch(options)) as epoch:
        while not waits.is_stopping():
            with RUNNING_CALLS:
                chunk = next(epoch, None)
            if chunk is None:
                return
            if chunk.interrupted:
                raise ReadError("A signal interrupted the wait for Pipe mode data")
            if chunk.records:
                yield np.array(chunk.records, dtype=object)
