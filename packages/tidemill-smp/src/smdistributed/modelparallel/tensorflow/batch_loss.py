"""Divides the losses of a microbatch by the divisors of the whole batch, as Keras does for a batch in one piece.

The mean of the microbatches' losses is the loss of the batch only if all microbatches have the same divisor. So a loss
whose divisor may differ is computed as numerator of the microbatch / divisor of the whole batch * number of
microbatches; then the means over microbatches and replicas, of losses and of gradients, are those of the whole batch.

| loss | divisor |
|---|---|
| mean over rows | rows: equal in the microbatches; replicas are weighted by their rows |
| mean over the entries that a mask leaves | such entries |
| `mean_with_sample_weight` | sum of the weights |
| `sum`, and losses without a reduction | none |
| unknown, such as a function that returns a scalar | as for a mean over rows; reported once |
"""

import functools
import logging

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from smdistributed.modelparallel.tensorflow.engine.batch_sums import is_known_ahead, sum_over_batch
from smdistributed.modelparallel.tensorflow.marks import Tracer
from smdistributed.modelparallel.tensorflow.session import RankSession

log = logging.getLogger("smdistributed.modelparallel")


class BatchLoss:
    """The loss of the whole batch, while one microbatch is traced."""

    def __init__(self, rows: Tensor, state: Tracer, session: RankSession, reported: set[str]) -> None:
        """Begin a microbatch.

        Args:
            rows: A tensor with one entry per row of the microbatch.
            state: The tracer of the step.
            reported: What has been reported of this model; added to.
        """
        self._rows = tf.shape(rows)[0]
        self._static_rows = rows.shape[0]
        self._state = state
        self._microbatches = session.config.microbatches
        self._replicas = session.dp_group.size if session.config.ddp else 1
        self._is_first_rank = session.placement.rank == 0
        self._reported = reported

    def share(self, numerator: Tensor, divisor: Tensor | None = None) -> Tensor:
        """Return the share of a microbatch in the loss of the whole batch, times the number of microbatches.

        Args:
            numerator: Sum over the microbatch.
            divisor: What the microbatch adds to the divisor, a scalar tensor; None for a sum.
        """
        if divisor is not None and not is_known_ahead(divisor):
            self.report(_scope(), "its mask or weights depend on random numbers or on another state of the model")
            return tf.math.divide_no_nan(numerator, tf.cast(divisor, numerator.dtype))
        scale = self._microbatches_of_rows
        if divisor is not None:
            scale = tf.math.divide_no_nan(scale, sum_over_batch(divisor, self._state))
        return numerator * tf.cast(scale, numerator.dtype)

    def to_differentiate(self, loss: Tensor) -> Tensor:
        """Return a loss whose gradients' mean over microbatches and replicas is the gradient of the whole batch.

        Args:
            loss: Scalar, or a value for each row without a reduction.

        Returns:
            The same shape and dtype.
        """
        if loss.shape.rank:  # no reduction: Keras differentiates the sum
            return loss * tf.cast(self._microbatches * self._replicas, loss.dtype)
        return self.weighted(loss)

    def weighted(self, mean: Tensor) -> Tensor:
        """Weight the mean of a microbatch by the rows of its replica; 1 if all replicas have as many.

        Args:
            mean: Scalar of a float dtype.

        Returns:
            Scalar of the same dtype.
        """
        if self._replicas == 1:
            return mean
        weight = self._replicas * self._microbatches / self._microbatches_of_rows
        return mean * tf.cast(weight, mean.dtype)

    def is_by_row(self, values: Tensor) -> bool:
        """Return whether a tensor has an entry per row, as far as its static shape tells.

        Args:
            values: Any tensor.
        """
        return bool(values.shape.rank) and values.shape[0] == self._static_rows

    def report(self, loss: str, reason: str) -> None:
        """Log once that the divisor of a loss is not known.

        Args:
            reason: Why its divisor is not known, as a clause.
        """
        if self.is_whole or loss in self._reported:
            return
        self._reported.add(loss)
        if self._is_first_rank:
            log.warning(
                "smp: %s: what it is divided by is not known, because %s; its mean over microbatches and replicas is "
                "used, which is its value for the whole batch if it is a mean over rows",
                loss,
                reason,
            )

    def report_scalar(self) -> None:
        """Log once that a loss has returned a scalar."""
        self.report(_scope(), "it returns a scalar instead of one value per row")

    @property
    def is_whole(self) -> bool:
        """Return whether the microbatch is the whole batch."""
        return self._microbatches * self._replicas == 1

    @functools.cached_property
    def _microbatches_of_rows(self) -> Tensor:
        """Rows of the whole batch / rows of the microbatch."""
        if self._replicas == 1:
            return tf.constant(self._microbatches, tf.float64)
        return sum_over_batch(self._rows, self._state) / tf.cast(self._rows, tf.float64)


def _scope() -> str:
    """Describe the loss that is being computed by the name scope that Keras opens for it."""
    return f"the loss {tf.get_current_name_scope().rpartition('/')[2]!r}"
