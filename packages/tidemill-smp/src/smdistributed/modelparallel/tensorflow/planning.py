"""`smp.plan`: partition a model in one process, without training it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, KerasModel, Tensor, Variable
from smdistributed.modelparallel.tensorflow.config import Config, read_config
from smdistributed.modelparallel.tensorflow.engine.profile import UnitTimes, measure
from smdistributed.modelparallel.tensorflow.engine.real_inputs import inputs_of
from smdistributed.modelparallel.tensorflow.engine.trace import Trace, trace
from smdistributed.modelparallel.tensorflow.engine.units import unit_graph
from smdistributed.modelparallel.tensorflow.partitioning.automatic import cut_options
from smdistributed.modelparallel.tensorflow.partitioning.cut import cut
from smdistributed.modelparallel.tensorflow.partitioning.report import PartitionReport, report
from smdistributed.modelparallel.tensorflow.session import current, is_initialized
from smdistributed.modelparallel.tensorflow.variables import Deferred, tensorflow_variable, variables_of


def plan(
    model: KerasModel,
    *batch: object,
    partitions: int | None = None,
    microbatches: int | None = None,
    optimize: str | None = None,
    loss: Callable[[Any], Any] | None = None,
    measured: bool = False,
    **kwargs: object,
) -> PartitionReport:
    """Return how the library would partition a model, without starting ranks.

    The model is traced forward and backward for one microbatch, and is not run unless `measured` is True. Its variables
    then have no values and take no memory, unless it was built before. If `smp.init()` has not been called, the
    variables that the trace creates never get values: use a new model for training.

    Args:
        model: A `DistributedModel`.
        *batch: The inputs of one whole batch: arrays, tensors, or `tf.TensorSpec`.
        partitions: Number of partitions. Default: that of `smp.init`.
        microbatches: Number of microbatches. Default: that of `smp.init` if it was called, else 1.
        optimize: `memory` or `speed`. Default: that of `smp.init` if it was called, else `memory`.
        loss: Function from the model's outputs to a scalar. Default: the mean of their squares.
        measured: Whether to run each layer on the first microbatch to measure its time instead of estimating it; the
            batch must then consist of values. Layers with stateful ops are estimated.
        **kwargs: Further arguments of the model, such as `training=True`.

    Returns:
        The report; print it to read it.

    Raises:
        SMPUsageError: If `partitions` is missing and `smp.init` has not been called, or if `measured` is True and the
            batch has a `tf.TensorSpec`.
        SMPConfigurationError: If `partitions`, `microbatches` or `optimize` is not allowed.
        SMPPartitionError: If the model cannot be divided into that many partitions.
    """
    config = _config(partitions, microbatches, optimize)
    leaves = _microbatch(batch, config.microbatches) if measured else []
    deferred = _deferred()
    traced = trace_model(model, batch, config.microbatches, loss=loss, deferred=deferred, **kwargs)
    times = measure(traced, inputs_of(traced, leaves, deferred.values())) if measured else _known_times()
    graph = unit_graph(traced, variables_of(traced.tracer.models), times)
    options = cut_options(config)
    return report(graph, cut(graph, options).assignment, options)


def profile(model: KerasModel, *batch: object, loss: Callable[[Any], Any] | None = None, **kwargs: Any) -> None:
    """See `DistributedModel.profile`."""
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    here = engine()
    if here.is_partitioned:
        raise SMPUsageError(f"model.profile: the model {model.name!r} is cut already; call it before the first step")
    session = here.session
    traced = trace_model(model, batch, session.config.microbatches, loss=loss, **kwargs)
    times: dict[str, UnitTimes] = {}
    if session.placement.rank == 0:
        graph = unit_graph(traced, variables_of(traced.tracer.models))
        times = here.decided.measure(traced, graph, _microbatch(batch, session.config.microbatches))
    first = session.world_group.allgather_objects(times, what="profile")[0]
    here.decided.times |= {unit: found.least(here.decided.times.get(unit)) for unit, found in first.items()}


def trace_model(
    model: KerasModel,
    batch: Sequence[object],
    microbatches: int,
    *,
    loss: Callable[[Any], Any] | None = None,
    deferred: Deferred | None = None,
    **kwargs: object,
) -> Trace:
    """Trace a model for one microbatch, forward and backward, with layers as units.

    Args:
        batch: The inputs of a whole batch.
        loss: Function from the model's outputs to a scalar. Default: the mean of their squares.
        deferred: Collects the variables that the trace creates. Default: that of the engine, if there is one.
        **kwargs: Further arguments of the model.
    """
    specs = [_piece(part, microbatches) for part in tf.nest.flatten(list(batch))]

    def body(*parts: Tensor) -> tuple[Tensor, list[Gradient | None]]:
        outputs = model(*tf.nest.pack_sequence_as(list(batch), list(parts)), **kwargs)
        scalar = loss(outputs) if loss is not None else _mean_of_squares(outputs)
        return scalar, tf.gradients(scalar, [_value(variable) for variable in model.trainable_variables])

    def call(converted: Callable[..., Any], leaves: list[Tensor]) -> object:
        return converted(*leaves)

    # `save_model` uses the inputs of the last step; the inputs of this trace must not replace them.
    inputs = model.__dict__.get("_smp_inputs")
    try:
        with (deferred or _deferred()).collecting():
            return trace(body, specs, call=call, automatic=True)
    finally:
        model.__dict__["_smp_inputs"] = inputs


def _known_times() -> dict[str, UnitTimes]:
    if not is_initialized():
        return {}
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    return engine().decided.times


def _config(partitions: int | None, microbatches: int | None, optimize: str | None) -> Config:
    known = current().config if is_initialized() else None
    count = partitions if partitions is not None else known.partitions if known else None
    if count is None:
        raise SMPUsageError("smp.plan: give partitions=, since smp.init() has not been called")
    given = {"partitions": count, "microbatches": microbatches, "optimize": optimize}
    checked = read_config({name: value for name, value in given.items() if value is not None})
    return replace(
        known or checked,
        partitions=checked.partitions,
        microbatches=checked.microbatches if microbatches is not None else (known or checked).microbatches,
        optimize=checked.optimize if optimize is not None else (known or checked).optimize,
    )


def _deferred() -> Deferred:
    if not is_initialized():
        return Deferred()
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    return engine().deferred


def _piece(part: Any, microbatches: int) -> tf.TensorSpec:
    spec = part if isinstance(part, tf.TensorSpec) else tf.type_spec_from_value(tf.convert_to_tensor(part))
    shape = spec.shape.as_list()
    if shape and shape[0] is not None:
        shape[0] = max(1, shape[0] // microbatches)
    return tf.TensorSpec(shape, spec.dtype)


def _microbatch(batch: Sequence[object], microbatches: int) -> list[Any]:
    """Return the values of the first microbatch, in the order of the trace's inputs."""
    leaves = tf.nest.flatten(list(batch))
    if any(isinstance(leaf, tf.TensorSpec) for leaf in leaves):
        raise SMPUsageError(
            "smp.plan(measured=True): layers are measured on the batch, but it has a tf.TensorSpec; give arrays or "
            "tensors, or leave measured=True out"
        )
    tensors = [tf.convert_to_tensor(leaf) for leaf in leaves]
    return [tensor[: max(1, tensor.shape[0] // microbatches)] if tensor.shape.rank else tensor for tensor in tensors]


def _mean_of_squares(outputs: object) -> Tensor:
    parts = [tf.reduce_mean(tf.square(part)) for part in tf.nest.flatten(outputs) if part.dtype.is_floating]
    return tf.add_n([tf.cast(part, tf.float32) for part in parts])


def _value(variable: Variable) -> Tensor:
    return tensorflow_variable(variable).handle
