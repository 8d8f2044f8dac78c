"""The module that `horovod.keras` and `horovod.tensorflow.keras` share: all names that do not depend on the Keras."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

import tensorflow.compat.v2 as tf

from horovod.tensorflow import gathers, optimizers, process, reductions
from horovod.tensorflow._shared.tensorflow_types import KerasLayer, KerasModel, Optimizer, Tensor, TensorLike
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradients import GradientReduction
from horovod.tensorflow.objects import allgather_object, broadcast_object, broadcast_object_fn
from horovod.tensorflow.process import *  # noqa: F403 - they are listed there
from horovod.tensorflow.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow.reductions import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from horovod.tensorflow.starting import init, shutdown
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.timeline import start_timeline, stop_timeline
from horovod.tensorflow.variables import broadcast_global_variables, broadcast_variables

__all__ = [  # noqa: PLE0604
    *process.__all__,
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "global_process_set",
    "init",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "start_timeline",
    "stop_timeline",
]


def DistributedOptimizer(  # noqa: N802
    optimizer: Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: object = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> Optimizer:
    """Make a Keras optimizer reduce gradients: `horovod.tensorflow.DistributedOptimizer`, with arguments in this order.

    Returns:
        `optimizer` itself, changed in place.
    """
    return optimizers.DistributedOptimizer(**locals())  # the same arguments in another order


def PartialDistributedOptimizer(  # noqa: N802
    optimizer: Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: object = None,
    process_set: ProcessSet | None = None,
    local_layers: KerasLayer | Iterable[KerasLayer] | None = None,
    scale_local_gradients: bool = True,
) -> Optimizer:
    """Return a `DistributedOptimizer` that does not reduce the gradients of some layers.

    The other arguments are those of `DistributedOptimizer`.

    Args:
        local_layers: One or several built layers whose variables differ between ranks.
        scale_local_gradients: Whether to divide the gradients of `local_layers` by the number of ranks.

    Returns:
        `optimizer` itself, changed in place.
    """
    del name, device_dense, device_sparse, groups
    layers = tf.nest.flatten([] if local_layers is None else local_layers)
    reduction = GradientReduction(
        "PartialDistributedOptimizer",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        process_set,
        scale_local_gradients,
    )
    local = [variable for layer in layers for variable in layer.trainable_variables]
    return optimizers.distribute(optimizer, reduction, backward_passes_per_step, average_aggregated_gradients, local)


def load_model_of(keras: ModuleType) -> Callable[..., KerasModel]:
    """Return the function `load_model` for a Keras.

    Args:
        keras: The module `keras`, `tf.keras` or `tf_keras`.
    """

    def load_model(
        filepath: str | os.PathLike[str],
        custom_optimizers: Iterable[type] | None = None,
        custom_objects: Mapping[str, object] | None = None,
        compression: Compressor | type[Compressor] = Compression.none,
        legacy_opts: bool = False,
        **options: object,
    ) -> KerasModel:
        """Load a model that Keras has saved, with its optimizer and the optimizer's state as a distributed optimizer.

        Args:
            filepath: As for `load_model` of Keras.
            custom_optimizers: Optimizer classes of the script.
            custom_objects: Other classes and functions of the script, by name.
            compression: `Compression.none` (the default) or `Compression.fp16`, for gradients.
            legacy_opts: Without effect: the file names the class of its optimizer.
            options: Other arguments of `load_model` of Keras.

        Returns:
            The model. Its optimizer is changed in place, as by `DistributedOptimizer`.
        """
        del legacy_opts
        objects: dict[str, object] = {one.__name__: one for one in custom_optimizers or []}
        objects.update(custom_objects or {})
        model: KerasModel = keras.models.load_model(filepath, custom_objects=objects or None, **options)
        if getattr(model, "optimizer", None) is not None:
            DistributedOptimizer(model.optimizer, compression=compression)
            model.jit_compile = False
        return model

    return load_model


def allreduce(
    value: TensorLike,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: Compressor | type[Compressor] = Compression.none,
) -> Tensor:
    """Reduce a value over all ranks: `horovod.tensorflow.allreduce`, with arguments in this order.

    Returns:
        A tensor, equal on all ranks.
    """
    return reductions.allreduce(
        tf.convert_to_tensor(value),
        average=average,
        compression=compression,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
    )


def allgather(value: TensorLike, name: str | None = None) -> Tensor:
    """Concatenate the values of all ranks along axis 0, as `horovod.tensorflow.allgather`.

    Returns:
        A tensor, equal on all ranks.
    """
    return gathers.allgather(value, name=name)


def broadcast(value: TensorLike, root_rank: int, name: str | None = None) -> Tensor:
    """Return the value of `root_rank` on all ranks, as `horovod.tensorflow.broadcast`."""
    return gathers.broadcast(value, root_rank, name=name)


def reducescatter(
    value: TensorLike,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Reduce a value over all ranks, and return this rank's rows, as `horovod.tensorflow.reducescatter`."""
    return reductions.reducescatter(
        value, op=op, name=name, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    )
