"""Patches the optimizers of Keras 2, current and legacy, to skip variables of other ranks."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import (
    Gradient,
    Optimizer,
    Tensor,
    TensorShape,
    Variable,
)
from smdistributed.modelparallel.tensorflow.clipping import global_norm_of, scaled_to
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients
from smdistributed.modelparallel.tensorflow.gradients import require_whole
from smdistributed.modelparallel.tensorflow.keras_api import library_modules, without_memory
from smdistributed.modelparallel.tensorflow.optimizers import keras_2_loss_scaling, slots
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.variables import is_remote, tensorflow_variable


class _Keras2Optimizer(Optimizer, Protocol):
    """The members of both families of optimizers that the patches use."""

    ema_momentum: float
    global_clipnorm: float | None
    use_ema: bool
    _index_dict: dict[Any, int]
    _model_variables_moving_average: list[Variable]
    _slot_names: list[str]
    _slots: dict[str, dict[str, Variable]]
    _variables: list[Variable]
    _weights: list[Variable]

    def _create_all_weights(self, variables: Sequence[Variable]) -> None: ...

    def _var_key(self, variable: Variable) -> Any: ...


class _NamedVariable(Variable, Protocol):
    _shared_name: str
    _unique_id: str


def install(is_distributed: Callable[[Any], bool]) -> None:
    """Patch both families of optimizers, once per process.

    Args:
        is_distributed: Returns whether a variable belongs to a partitioned model.
    """
    modern, legacy = tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer
    if hasattr(modern, "_smp_original_apply"):
        return
    slots.install(is_distributed)
    keras_2_loss_scaling.install(_make_slots)
    modern._smp_original_apply = modern.apply_gradients
    modern.apply_gradients = _applying(modern.apply_gradients, _build)
    modern.add_variable_from_reference = _adding_from_reference(modern.add_variable_from_reference)
    overwrite, update = "_overwrite_model_variables_with_average_value", "_update_model_variables_moving_average"
    if hasattr(modern, f"{overwrite}_helper"):  # 2.12 pairs averages and variables by position, others by variable
        setattr(modern, overwrite, _by_variable(getattr(modern, overwrite), _overwrite_with_average))
        setattr(modern, update, _by_variable(getattr(modern, update), _update_average))
    else:
        setattr(modern, overwrite, _passing_over_remote(getattr(modern, overwrite)))
    legacy.apply_gradients = _applying(legacy.apply_gradients, _create_slots)
    legacy.add_slot = _adding_slot(legacy.add_slot)


def _applying(original: Callable[..., Any], prepare: Callable[[Any, Sequence[Any]], None]) -> Callable[..., Any]:
    def apply_gradients(
        self: _Keras2Optimizer,
        grads_and_vars: Iterable[tuple[Gradient | None, Variable]],
        name: str | None = None,
        *args: object,
        **kwargs: object,
    ) -> Any:
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        slots.require_outside_a_step()
        require_whole([grad for grad, _ in pairs], "apply_gradients")
        session = slots.shared_session(variables)
        if session is None:
            return original(self, pairs, name, *args, **kwargs)
        _refuse_nadam_of_a_part(self, session)
        _prepare(self, variables, name, prepare)
        grads, sharding = [grad for grad, _ in pairs], slots.sharding_of(self)
        if sharding is not None:
            _require_shardable_optimizer(self)
            grads = sharding.average_owned(grads, variables)
        elif session.config.ddp:
            grads = average_gradients(grads, session)
        here = [place for place, variable in enumerate(variables) if slots.is_updated_here(variable, sharding)]
        mine = [variables[place] for place in here]
        with _clipping_by_all(self, grads, here, slots.groups_of_others(session, sharding)) as clipped:
            if len(here) == len(pairs) or any(grad is not None for grad in clipped):
                applied = original(self, list(zip(clipped, mine, strict=True)), name, *args, **kwargs)
            else:
                applied = self.iterations.assign_add(1)
        if sharding is not None:
            sharding.all_gather([variable for grad, variable in zip(grads, variables, strict=True) if grad is not None])
        return applied

    return apply_gradients


def _make_slots(optimizer: _Keras2Optimizer, variables: Sequence[Variable]) -> None:
    is_modern = isinstance(optimizer, tf.keras.optimizers.Optimizer)
    _prepare(optimizer, variables, None, _build if is_modern else _create_slots)


def _prepare(
    self: _Keras2Optimizer, variables: Sequence[Variable], name: str | None, make: Callable[[Any, Sequence[Any]], None]
) -> None:
    """Create the slots of all variables, also of those without a gradient here: all ranks have the same list."""
    slots.prepare(self, variables)
    with tf.name_scope(name or getattr(self, "_name", None) or "optimizer"), tf.init_scope():
        make(self, variables)


@contextmanager
def _clipping_by_all(
    optimizer: _Keras2Optimizer,
    gradients: Sequence[Gradient | None],
    here: Sequence[int],
    groups: Sequence[TensorGroup],
) -> Generator[list[Any]]:
    """Clip the gradients of variables updated here by the global norm; the optimizer does not clip again inside."""
    clip_norm = getattr(optimizer, "global_clipnorm", None)
    mine = [gradients[place] for place in here]
    if not groups or not clip_norm:
        yield mine
        return
    held = {place: gradient for place, gradient in zip(here, mine, strict=True) if gradient is not None}
    norm = global_norm_of(list(held.values()), list(held), len(gradients), groups)
    scaled = iter(scaled_to(norm, clip_norm, list(held.values())))
    optimizer.global_clipnorm = None
    try:
        yield [None if gradient is None else next(scaled) for gradient in mine]
    finally:
        optimizer.global_clipnorm = clip_norm


def _refuse_nadam_of_a_part(optimizer: _Keras2Optimizer, session: RankSession) -> None:
    # In a graph, Nadam multiplies its product of rates once per variable it receives, minus one: here not all of them.
    if session.config.partitions > 1 and _is_nadam(optimizer) and hasattr(optimizer, "_index_dict"):
        raise SMPUsageError(
            f"{type(optimizer).__name__} of Keras 2 depends on the number of variables it receives, which are those "
            "of one partition here: use tf.keras.optimizers.legacy.Nadam, another optimizer, or Keras 3"
        )


def _is_nadam(optimizer: _Keras2Optimizer) -> bool:
    return any(base.__name__ == "Nadam" for base in type(optimizer).__mro__)


def _require_shardable_optimizer(optimizer: _Keras2Optimizer) -> None:
    is_nadam = _is_nadam(optimizer)
    if getattr(optimizer, "use_ema", False) or is_nadam:
        what = "the product of rates that Nadam" if is_nadam else "the averages of weights (use_ema) that optimizers"
        raise SMPUsageError(
            f"'shard_optimizer_state' is True, but replicas cannot shard {what} of Keras 2 keep: use Keras 3 or "
            "another optimizer, or set 'shard_optimizer_state' to False"
        )
    if type(optimizer).__module__.split(".")[0] not in library_modules:
        kept = getattr(optimizer, "_variables", None) or getattr(optimizer, "_weights", [])
        common = (optimizer.iterations, getattr(optimizer, "_learning_rate", None))
        slots.require_known(optimizer, [one for one in kept if all(one is not other for other in common)])


def _build(optimizer: _Keras2Optimizer, variables: Sequence[Variable]) -> None:
    optimizer.build(variables)


def _create_slots(optimizer: _Keras2Optimizer, variables: Sequence[Variable]) -> None:
    optimizer._create_all_weights(variables)


def _adding_from_reference(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_variable_from_reference(
        self: _Keras2Optimizer,
        model_variable: _NamedVariable,
        variable_name: str,
        shape: TensorShape | None = None,
        initial_value: Tensor | None = None,
    ) -> Variable:
        if slots.is_kept_here(self, model_variable):
            slot = original(self, model_variable, variable_name, shape, initial_value)
        else:
            slot = _without_memory(model_variable, f"{variable_name}/{model_variable._shared_name}", shape)
            self._variables.append(slot)
        slots.add(self, model_variable, slot)
        return slot

    return add_variable_from_reference


def _adding_slot(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_slot(
        self: _Keras2Optimizer,
        var: _NamedVariable,
        slot_name: str,
        initializer: object = "zeros",
        shape: TensorShape | None = None,
    ) -> Variable:
        if slots.is_kept_here(self, var):
            slot = original(self, var, slot_name, initializer, shape)
            slots.add(self, var, slot)
            return slot
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        known = self._slots.setdefault(var._unique_id, {})
        if slot_name not in known:
            known[slot_name] = _without_memory(var, f"{var._shared_name}/{slot_name}", shape)
            self._weights.append(known[slot_name])
            slots.add(self, var, known[slot_name])
        return known[slot_name]

    return add_slot


def _passing_over_remote(original: Callable[..., Any]) -> Callable[..., Any]:
    def overwrite(self: _Keras2Optimizer, var_list: Sequence[Variable]) -> object:
        return original(self, [variable for variable in var_list if not is_remote(variable)])

    return overwrite


def _by_variable(original: Callable[..., Any], change: Callable[[Any, Variable, Variable], None]) -> Callable[..., Any]:
    """Call `change` for each local variable and its average if the optimizer has variables of other ranks."""

    def change_all(self: _Keras2Optimizer, var_list: Sequence[Variable]) -> object:
        if not self.use_ema or not any(map(is_remote, self._model_variables_moving_average)):
            return original(self, var_list)
        for variable in var_list:
            if not is_remote(variable):
                place = self._index_dict[self._var_key(variable)]
                change(self, variable, self._model_variables_moving_average[place])
        return None

    return change_all


def _update_average(optimizer: _Keras2Optimizer, variable: Variable, average: Variable) -> None:
    momentum = optimizer.ema_momentum
    average.assign(momentum * average + (1 - momentum) * variable)


def _overwrite_with_average(_: _Keras2Optimizer, variable: Variable, average: Variable) -> None:
    variable.assign(average)


def _without_memory(variable: Variable, name: str, shape: TensorShape | None) -> Variable:
    inner = tensorflow_variable(variable)
    return without_memory(inner.shape if shape is None else shape, inner.dtype, name, trainable=False)
