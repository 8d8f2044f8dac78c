"""The module that `horovod.keras` and `horovod.tensorflow.keras` share: all names that do not depend on the Keras."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType

import tensorflow as tf

from horovod.tensorflow import (
    Adasum,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    SyncBatchNormalization,
    add_process_set,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gathers,
    global_process_set,
    gloo_built,
    gloo_enabled,
    gpu_available,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    reductions,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.tensorflow._shared.tensorflow_types import KerasLayer, KerasModel, Optimizer, Tensor, TensorLike
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradients import GradientReduction
from horovod.tensorflow.optimizers import distribute
from horovod.tensorflow.reductions import Average, ReduceOp

__all__ = [
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
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
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
    """Make a Keras optimizer reduce gradients over all ranks before it clips and applies them.

    Args:
        optimizer: An optimizer of Keras 3 or tf_keras.
        name: Without effect: the optimizer keeps its name.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        sparse_as_dense: Whether to convert `tf.IndexedSlices` to dense tensors before the reduction.
        gradient_predivide_factor: With `Average`: divisor before the sum and factor after it.
        op: `Average` (the default), `Sum` or `Adasum`.
        backward_passes_per_step: Number of batches whose gradients are summed on each rank before they are applied.
        average_aggregated_gradients: Whether to divide that sum by `backward_passes_per_step`.
        num_groups: Without effect: gradients that are ready together are sent together.
        groups: Without effect.
        process_set: The ranks that take part. Default: all ranks.
        scale_local_gradients: Whether to divide the gradients of `register_local_var` by the number of ranks.

    Returns:
        `optimizer` itself, changed in place. `register_local_var(variable)` excludes variables that differ between
        ranks from the reduction.

    Raises:
        ValueError: If an argument is not allowed, or the optimizer is already distributed.
    """
    del name, device_dense, device_sparse, num_groups, groups
    reduction = GradientReduction(
        "DistributedOptimizer",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        process_set,
        scale_local_gradients,
    )
    return distribute(optimizer, reduction, backward_passes_per_step, average_aggregated_gradients, ())


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

    Args:
        optimizer: As for `DistributedOptimizer`.
        name: Without effect.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: As for `DistributedOptimizer`.
        sparse_as_dense: As for `DistributedOptimizer`.
        gradient_predivide_factor: As for `DistributedOptimizer`.
        op: As for `DistributedOptimizer`.
        backward_passes_per_step: As for `DistributedOptimizer`.
        average_aggregated_gradients: As for `DistributedOptimizer`.
        groups: Without effect.
        process_set: As for `DistributedOptimizer`.
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
    return distribute(optimizer, reduction, backward_passes_per_step, average_aggregated_gradients, local)


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
        objects = {one.__name__: one for one in custom_optimizers or []} | dict(custom_objects or {})
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
    """Reduce a value over all ranks.

    Args:
        value: A number, an array or a tensor.
        name: Name of the op. Ranks match calls by it.
        average: The older form of `op`: True for `Average`, False for `Sum`.
        prescale_factor: Factor applied before the reduction.
        postscale_factor: Factor applied after the reduction.
        op: As for `horovod.tensorflow.allreduce`.
        compression: `Compression.none` (the default) or `Compression.fp16`.

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
    """Concatenate the values of all ranks along axis 0.

    Args:
        value: A tensor, or a value that TensorFlow converts to one; its rank and dtype are the same on all ranks.
        name: Name of the op. Ranks match calls by it.

    Returns:
        A tensor, equal on all ranks.
    """
    return gathers.allgather(value, name=name)


def broadcast(value: TensorLike, root_rank: int, name: str | None = None) -> Tensor:
    """Return the value of `root_rank` on all ranks.

    Args:
        value: A tensor, or a value that TensorFlow converts to one; its shape and dtype are the same on all ranks.
        root_rank: Rank whose value is sent.
        name: Name of the op. Ranks match calls by it.

    Returns:
        A tensor.
    """
    return gathers.broadcast(value, root_rank, name=name)


def reducescatter(
    value: TensorLike,
    name: str | None = None,
    op: ReduceOp = Average,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Reduce a value over all ranks, and return this rank's rows of the result.

    Args:
        value: A tensor, or a value that TensorFlow converts to one, with at least one axis.
        name: Name of the op. Ranks match calls by it.
        op: `Average` (the default) or `Sum`.
        prescale_factor: Factor applied before the reduction.
        postscale_factor: Factor applied after the reduction.

    Returns:
        A tensor.
    """
    return reductions.reducescatter(
        value, op=op, name=name, prescale_factor=prescale_factor, postscale_factor=postscale_factor
    )
