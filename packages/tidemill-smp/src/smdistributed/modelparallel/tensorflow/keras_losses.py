"""Makes the losses of Keras 3 and Keras 2 divide by the divisors of the whole batch; see `batch_loss`."""

import importlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import (
    DType,
    KerasLayer,
    KerasModel,
    Tensor,
    TensorLike,
)
from smdistributed.modelparallel.tensorflow.batch_loss import BatchLoss
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2, Model, keras_2_module, layers_of
from smdistributed.modelparallel.tensorflow.patch import Patch

_MEANS = ("sum_over_batch_size", "mean", "auto")


@contextmanager
def dividing(model: KerasModel, batch: BatchLoss) -> Generator[None]:
    """Make loss objects that are called inside this context divide by the divisors of the whole batch.

    Args:
        model: The model of which one microbatch is traced.
    """
    if batch.is_whole:
        yield
        return
    patching = _patched_keras_2 if IS_KERAS_2 else _patched_keras
    with patching(model, batch):
        yield
    if type(model).compute_loss is not Model.compute_loss:
        batch.report(f"{type(model).__name__}.compute_loss", "it is the script's own")
    for layer in [model, *layers_of(model)]:
        if layer.activity_regularizer is None and not all(map(batch.is_by_row, _added_losses(layer))):
            batch.report(f"what the layer {layer.name!r} passes to add_loss", "it is a scalar")


@contextmanager
def _patched_keras(model: KerasModel, batch: BatchLoss) -> Generator[None]:
    with _patched_reduction(batch), _patched_sums(model, batch), _patched_means(model, batch):
        yield


@contextmanager
def _patched_reduction(batch: BatchLoss) -> Generator[None]:
    module: Any = importlib.import_module("keras.src.losses.loss")
    original = module.reduce_weighted_values

    def divided(
        values: TensorLike,
        sample_weight: TensorLike | None = None,
        mask: Tensor | None = None,
        reduction: str = _MEANS[0],
        dtype: DType | None = None,
    ) -> Tensor:
        dense = tf.convert_to_tensor(values)

        def weighted(reduction: str) -> Tensor:
            return original(dense, sample_weight=sample_weight, mask=mask, reduction=reduction, dtype=dtype)

        if not dense.shape.rank:
            batch.report_scalar()
            return weighted(reduction)
        if reduction == "sum":
            return batch.share(weighted(reduction))
        if reduction == "mean_with_sample_weight" and not (sample_weight is None and mask is None):
            total = weighted("none")
            weights = module.apply_mask(_converted(sample_weight, dtype), mask, total.dtype, reduction)
            return batch.share(tf.reduce_sum(total), tf.reduce_sum(weights))
        if reduction in _MEANS and mask is not None:
            total = weighted("none")
            return batch.share(tf.reduce_sum(total), _num_left(mask, total))
        return weighted(reduction)

    with Patch(module, "reduce_weighted_values", divided):
        yield


@contextmanager
def _patched_sums(model: KerasModel, batch: BatchLoss) -> Generator[None]:
    """Keras 3 adds up the entries of a tensor that is passed to `add_loss`."""
    name = "_aggregate_additional_loss"
    original = getattr(model, name)

    def added(loss: Tensor) -> Tensor:
        total = original(loss)
        return batch.share(total) if batch.is_by_row(loss) else total

    vars(model)[name] = added
    try:
        yield
    finally:
        del vars(model)[name]


@contextmanager
def _patched_means(model: KerasModel, batch: BatchLoss) -> Generator[None]:
    """Keras 3 does not weight the logged losses of single outputs by the rows of batches of unknown size."""
    kind: Any = tf.keras.metrics.Mean
    original = kind.update_state

    def update(metric: Any, values: Tensor, sample_weight: TensorLike | None = None) -> object:
        is_loss = model._compile_loss is not None and any(metric is one for one in model._compile_loss.metrics)
        if is_loss and sample_weight is None and values.shape.rank == 0:
            values = batch.weighted(values)
        return original(metric, values, sample_weight=sample_weight)

    with Patch(kind, "update_state", update):
        yield


@contextmanager
def _patched_keras_2(model: KerasModel, batch: BatchLoss) -> Generator[None]:
    del model
    module = keras_2_module("utils.losses_utils")
    apply_valid_mask, compute_weighted_loss = module.apply_valid_mask, module.compute_weighted_loss
    masks: list[Tensor | None] = []

    def masked(losses: Tensor, weights: TensorLike | None, mask: Tensor | None, reduction: str) -> Tensor:
        # A loss object calls this function and then the next one. With another reduction, weights are not scaled by
        # the share of entries that the mask leaves.
        masks[:] = [mask]
        return apply_valid_mask(losses, weights, mask, "sum" if mask is not None else reduction)

    def divided(
        losses: Tensor, sample_weight: TensorLike | None = None, reduction: str = _MEANS[0], name: str | None = None
    ) -> Tensor:
        def weighted(reduction: str) -> Tensor:
            return compute_weighted_loss(losses, sample_weight, reduction=reduction, name=name)

        mask = masks.pop() if masks else None
        if not losses.shape.rank:
            batch.report_scalar()
            return weighted(reduction)
        if reduction == "sum":
            return batch.share(weighted(reduction))
        if reduction in _MEANS and mask is not None:
            return batch.share(weighted("sum"), _num_left(mask, losses))
        return weighted(reduction)

    with Patch(module, "apply_valid_mask", masked), Patch(module, "compute_weighted_loss", divided):
        yield


def _num_left(mask: Tensor, values: Tensor) -> Tensor:
    """Return the number of entries of a loss that a mask leaves, as Keras counts them."""
    left = tf.reduce_sum(tf.cast(mask, tf.float64))
    if mask.shape.rank == values.shape.rank and mask.shape.is_compatible_with(values.shape):
        return left
    sizes = [tf.cast(tf.size(tensor), tf.float64) for tensor in (values, mask)]
    return left * sizes[0] / sizes[1]


def _converted(weights: TensorLike | None, dtype: DType | None) -> Tensor | None:
    return None if weights is None else tf.cast(weights, dtype)


def _added_losses(layer: KerasLayer) -> Sequence[Any]:
    return [*layer._losses, *(layer._eager_losses if IS_KERAS_2 else ())]
