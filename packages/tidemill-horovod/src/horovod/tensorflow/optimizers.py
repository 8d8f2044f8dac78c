"""Optimizers of Keras 3, tf_keras and `tf.compat.v1.train` that reduce gradients over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Gradient, Optimizer, Protocol, Tensor, Variable
from horovod.tensorflow.aggregation import Aggregation
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradients import GradientReduction, check_reduction
from horovod.tensorflow.keras_versions import is_keras_3, without_xla
from horovod.tensorflow.process_sets import ProcessSet
from horovod.tensorflow.reductions import Average, ReduceOp
from horovod.tensorflow.variables import tensorflow_variable

_STATE = "_horovod_state"


class _DistributedOptimizer(Optimizer, Protocol):
    """An optimizer whose class `distribute` has made, with members of each Keras."""

    _horovod: Distribution
    _horovod_base: Any
    _trainable_variables: Sequence[Variable]

    def _create_all_weights(self, variables: Sequence[Variable]) -> None: ...


@dataclass
class Distribution:
    """Options of a distributed optimizer, and the gradients that it has summed so far."""

    reduction: GradientReduction
    aggregation: Aggregation | None
    local: list[Variable]
    """Variables whose gradients are not reduced."""

    def reduce(self, gradients: Sequence[Gradient | None], variables: Sequence[Variable]) -> list[Gradient | None]:
        """Return the reduced gradients, in the order of `variables`; those of `local` variables are not reduced.

        Args:
            gradients: Tensors, IndexedSlices or None.
            variables: One for each gradient.
        """
        local = {id(tensorflow_variable(one)) for one in self.local}
        places = {place for place, variable in enumerate(variables) if id(tensorflow_variable(variable)) in local}
        return self.reduction.reduce(gradients, local=frozenset(places))

    def apply(
        self,
        gradients: Sequence[Gradient | None],
        variables: Sequence[Variable],
        apply: Callable[[list[Any]], Any],
        iterations: Variable,
    ) -> Any:
        """Call `apply` with the reduced gradients: immediately, or after every `passes` calls.

        As in Horovod, `iterations`, the optimizer's counter, also counts the calls without an update.

        Args:
            gradients: Tensors, IndexedSlices or None.
            variables: One for each gradient.
            apply: Gets the reduced gradients.
            iterations: The optimizer's counter, a scalar variable.

        Returns:
            What `apply` returned, or the result of a call without an update.
        """
        if self.aggregation is None:
            return apply(self.reduce(gradients, variables))
        return self.aggregation.add(
            gradients, lambda sums: apply(self.reduce(sums, variables)), lambda: iterations.assign_add(1)
        )


def DistributedOptimizer(  # noqa: N802
    optimizer: Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: object = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> Optimizer:
    """Make an optimizer reduce gradients over all ranks before it clips and applies them.

    Args:
        optimizer: An optimizer of Keras 3, tf_keras (also `legacy`), or `tf.compat.v1.train`.
        name: Without effect: the optimizer keeps its name, and so do its variables in checkpoints.
        use_locking: Without effect: it is the optimizer's own argument.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        sparse_as_dense: Whether to convert `tf.IndexedSlices` to dense tensors before the reduction.
        backward_passes_per_step: Number of calls whose gradients are summed on each rank before they are reduced and
            applied; `optimizer.iterations` counts the calls. Refused for `tf.compat.v1.train`.
        op: `Average` (the default), `Sum` or `Adasum`.
        gradient_predivide_factor: With `Average`: divisor before the sum and factor after it.
        average_aggregated_gradients: Whether to divide the sum of `backward_passes_per_step` calls by their number.
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
    del name, use_locking, device_dense, device_sparse, num_groups, groups
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


def distribute(
    optimizer: Optimizer, reduction: GradientReduction, passes: int, average_passes: bool, local: Sequence[Variable]
) -> Optimizer:
    """Change an optimizer in place into a distributed one.

    Args:
        optimizer: An optimizer of Keras, tf_keras or `tf.compat.v1.train`.
        reduction: How gradients are reduced over the ranks.
        passes: Number of batches whose gradients are summed before they are reduced and applied; int >= 1.
        average_passes: Whether these sums are divided by `passes`.
        local: Variables whose gradients are not reduced.

    Returns:
        The same optimizer.

    Raises:
        ValueError: If an option is not allowed, or the optimizer is distributed already.
    """
    function = f"hvd.{reduction.function}"
    check_reduction(reduction)
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(f"{function}: backward_passes_per_step is {passes!r}; allowed is an int >= 1")
    if hasattr(optimizer, "_horovod"):
        raise ValueError(f"{function}: optimizer is {optimizer!r}, which is distributed already: leave one call out")
    is_v1 = isinstance(optimizer, tf.compat.v1.train.Optimizer)
    if passes > 1 and (is_v1 or not tf.compat.v1.executing_eagerly_outside_functions()):
        raise ValueError(
            f"{function}: backward_passes_per_step is {passes} with an optimizer of tf.compat.v1.train, or in a graph "
            "of TensorFlow 1; allowed is 1, or an optimizer of Keras with eager execution"
        )
    methods: dict[str, Any] = {}
    if is_v1:
        methods["compute_gradients"] = _compute_gradients
    elif is_keras_3(optimizer):
        methods["apply"] = _apply
        without_xla()
    elif callable(getattr(optimizer, "apply_gradients", None)):
        methods["apply_gradients"] = _apply_gradients
    elif callable(getattr(optimizer, "get_gradients", None)):
        methods["get_gradients"] = _get_gradients
        methods["get_updates"] = _get_updates
    else:
        raise ValueError(
            f"{function}: optimizer is {optimizer!r}; allowed is an optimizer of Keras, tf_keras or tf.compat.v1.train"
        )
    methods["register_local_var"] = _register_local_var
    base = type(optimizer)

    def distribution(self: object) -> Distribution:
        """Return the state of one optimizer: `from_config` of this class makes others with the same options."""
        if _STATE not in self.__dict__:
            aggregation = Aggregation(passes, average=average_passes) if passes > 1 else None
            self.__dict__[_STATE] = Distribution(reduction, aggregation, list(local))
        state: Distribution = self.__dict__[_STATE]
        return state

    methods.update(_horovod=property(distribution), _horovod_base=base, __module__=base.__module__)
    # Saved models store the name and module of the class: with these they load the plain optimizer.
    optimizer.__class__ = type(base.__name__, (base,), methods)
    return optimizer


# --- methods of distributed optimizers --------------------------------------------------------------------------------


def _register_local_var(self: _DistributedOptimizer, var: Variable) -> None:
    """Do not reduce the gradient of a variable; divide it by the number of ranks (unless `scale_local_gradients` is
    False). Call it before the first step."""
    self._horovod.local.append(var)


def _apply(
    self: _DistributedOptimizer, grads: Iterable[Gradient | None], trainable_variables: Iterable[Variable] | None = None
) -> Any:
    """`apply` of Keras 3."""
    variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
    if not self.built:
        with tf.init_scope():
            self.build(variables)
        self.built = True

    def apply(reduced: list[Gradient | None]) -> Any:
        return self._horovod_base.apply(self, reduced, variables)

    return self._horovod.apply(list(grads), variables, apply, self.iterations)


def _apply_gradients(
    self: _DistributedOptimizer,
    grads_and_vars: Iterable[tuple[Gradient | None, Variable]],
    *args: object,
    **kwargs: object,
) -> Variable:
    """`apply_gradients` of Keras 2."""
    pairs = list(grads_and_vars)
    if not pairs:
        return self._horovod_base.apply_gradients(self, pairs, *args, **kwargs)
    gradients, variables = zip(*pairs)
    with tf.init_scope():
        if hasattr(self, "build"):
            self.build(variables)
        elif hasattr(self, "_create_all_weights"):  # a legacy optimizer; TensorFlow 1.15 creates them in its own call
            self._create_all_weights(variables)

    def apply(reduced: list[Gradient | None]) -> Any:
        given = list(zip(reduced, variables))
        return self._horovod_base.apply_gradients(self, given, *args, **kwargs)

    applied = self._horovod.apply(gradients, variables, apply, self.iterations)
    return self.iterations if applied is None or self._horovod.aggregation is not None else applied


def _get_gradients(self: _DistributedOptimizer, loss: Tensor, params: Sequence[Variable]) -> list[Gradient | None]:
    """`get_gradients` of the package keras before 2.4, whose optimizers only make the ops of a graph."""
    return self._horovod.reduce(self._horovod_base.get_gradients(self, loss, params), params)


def _get_updates(self: _DistributedOptimizer, loss: Tensor, params: Sequence[Variable]) -> list[Any]:
    """`get_updates` of the same optimizers, which count the step before they read the count.

    Keras makes the op that counts first, and does not order it and the ops that read, from which Adam has its step
    size. With many threads of TensorFlow, each rank would read another count.
    """
    handle: Any = getattr(getattr(self, "iterations", None), "handle", None)
    before: list[Any] = [] if handle is None else handle.consumers()
    updates: list[Any] = self._horovod_base.get_updates(self, loss=loss, params=params)
    if handle is None:  # Keras 2.2 has other variables, and an optimizer of a script may count nothing
        return updates
    uses = [use for use in handle.consumers() if use not in before]
    counts = [use for use in uses if use.type.startswith("Assign")]
    for use in uses:
        if use.type == "ReadVariableOp" and not use.control_inputs:
            use._add_control_inputs(counts)
    return updates


def _compute_gradients(
    self: _DistributedOptimizer, *args: object, **kwargs: object
) -> list[tuple[Gradient | None, Variable]]:
    """`compute_gradients` of `tf.compat.v1.train`."""
    pairs = self._horovod_base.compute_gradients(self, *args, **kwargs)
    gradients, variables = zip(*pairs)
    return list(zip(self._horovod.reduce(gradients, variables), variables))
