"""Split vectors into single records on TensorFlow 2.12 and later (`early_tensorflow` covers earlier versions)."""

from __future__ import annotations

import tensorflow as tf

_VECTORS_AHEAD = 2  # a vector is about a megabyte, or less if less has arrived


class RecordDataset(tf.data.Dataset):
    """Dataset of single records; batch, prefetch and repeat work on whole vectors, which is faster."""

    def __init__(self, vectors: tf.data.Dataset) -> None:
        self._vectors = vectors
        self._records = vectors.unbatch()
        super().__init__(self._records._variant_tensor)

    def batch(
        self,
        batch_size: int | tf.Tensor,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> tf.data.Dataset:
        """Regroup whole vectors into batches, without a step per record.

        Args:
            batch_size: Number of records per batch, >= 1.
            drop_remainder: Drop a last batch that has fewer records. Default: False.
            num_parallel_calls: No effect: batching a vector only copies pointers.
            deterministic: No effect: the order is always that of the stream.
            name: Name of the operation.

        Returns:
            A dataset of `tf.string` vectors of shape (batch_size,).
        """
        return self._vectors.rebatch(batch_size, drop_remainder=drop_remainder, name=name)

    def prefetch(self, buffer_size: int | tf.Tensor | None, name: str | None = None) -> tf.data.Dataset:
        """Prefetch whole vectors: passing single records between threads would cost more than reading them.

        Args:
            buffer_size: As for `tf.data.Dataset.prefetch`. A vector holds many records, so two vectors are enough.
            name: Name of the operation.

        Returns:
            A data set of the same records.
        """
        if not isinstance(buffer_size, int):
            return super().prefetch(buffer_size, name=name)
        return RecordDataset(self._vectors.prefetch(min(buffer_size, _VECTORS_AHEAD), name=name))

    def repeat(self, count: int | tf.Tensor | None = None, name: str | None = None) -> tf.data.Dataset:
        """Read several epochs one after the other.

        Args:
            count: Number of epochs in all. None (the default) or -1 reads epochs until an empty one.
            name: Name of the operation.

        Returns:
            A dataset of the records of these epochs.
        """
        vectors = self._vectors
        if not isinstance(count, int) or count < 0:
            # TensorFlow's endless repeat ends at an empty epoch; an empty vector would make it look non-empty.
            vectors = vectors.filter(_is_not_empty)
        return RecordDataset(vectors.repeat(count, name=name))

    @property
    def element_spec(self) -> tf.TensorSpec:
        """Return the spec of a scalar `tf.string`."""
        return tf.TensorSpec([], tf.string)

    def _inputs(self) -> list[tf.data.Dataset]:
        return [self._records]


def _is_not_empty(records: tf.Tensor) -> tf.Tensor:
    return tf.size(records) > 0
