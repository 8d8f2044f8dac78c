"""Patches Keras 3 optimizers to update the variables of this rank, and to take global decisions with all ranks.

| feature of an optimizer | patched behavior |
|---|---|
| slots, averages (`use_ema`), gradient accumulators | take no memory for variables of other ranks |
| `apply` | skips variables of other ranks without a warning; counts steps on ranks with nothing to update |
| `global_clipnorm` | clips by the norm over all partitions |
| `LossScaleOptimizer` | skips a step on all ranks if a gradient on any rank is not finite |
| `"ddp"` | averages the gradients over the replicas first |
| `"shard_optimizer_state"` | each replica keeps the slots of its shard, updates it, and sends it to the others |

`clipnorm`, `clipvalue` and weight decay act on single variables and are unchanged.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import keras
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers import base_optimizer

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Optimizer, Tensor, Variable
from smdistributed.modelparallel.tensorflow.clipping import global_norm_of, scaled_to
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients
from smdistributed.modelparallel.tensorflow.gradients import require_whole
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.optimizers import slots
from smdistributed.modelparallel.tensorflow.patch import Patch
from smdistributed.modelparallel.tensorflow.session import RankSession, current
from smdistributed.modelparallel.tensorflow.variables import (
    Deferred,
    dropping_remote_values,
    is_remote,
)

_originals: dict[str, Callable[..., Any]] = {}
_local = threading.local()
_LISTS = ("_model_variables_moving_average", "_accumulated_gradients")
"""Lists with one entry per trainable variable over which an optimizer iterates."""
_PLACES = "_smp_places"
"""Attribute of an optimizer during `apply`: the indices of its gradients among all gradients, and their number."""


class _KerasOptimizer(Optimizer, Protocol):
    """The members of Keras 3's optimizers that the patches use."""

    use_ema: bool
    ema_overwrite_frequency: int | None
    gradient_accumulation_steps: int | None
    clipnorm: float | None
    global_clipnorm: float | None
    _iterations: Variable
    _learning_rate: object
    _trainable_variables: Sequence[Variable]
    _variables: Sequence[Variable]

    @property
    def name(self) -> str: ...
    def _backend_apply_gradients(self, grads: Sequence[Gradient], trainable_variables: Sequence[Variable]) -> None: ...


class _LossScaleOptimizer(_KerasOptimizer, Protocol):
    dynamic_scale: Variable
    initial_scale: float
    inner_optimizer: _KerasOptimizer
    step_counter: Variable

    def add_variable(self, **options: object) -> Variable: ...


def install(is_distributed: Callable[[Any], bool]) -> None:
    """Patch Keras's optimizers, once per process.

    Args:
        is_distributed: Returns whether a variable belongs to a partitioned model. Optimizers of other variables, such
            as those of a model that only one rank trains, do not communicate.
    """
    if _originals:
        return
    slots.install(is_distributed)
    base, scaling = base_optimizer.BaseOptimizer, keras.optimizers.LossScaleOptimizer
    _patch(base, "build", _prepare_and_build)
    _patch(base, "apply", _apply)
    _patch(base, "add_variable_from_reference", _add_variable_from_reference)
    _patch(base, "_clip_gradients", _clip_gradients)
    _patch(TFOptimizer, "_overwrite_model_variables_with_average_value", _overwrite_with_averages)
    _patch(keras.optimizers.Adafactor, "build", _build_adafactor, name="build_adafactor")
    if hasattr(keras.optimizers, "ScheduleFreeAdamW"):
        _patch(keras.optimizers.ScheduleFreeAdamW, "build", _build_schedule_free, name="build_schedule_free")
    _patch(scaling, "apply", _apply_scaled, name="apply_scaled")
    _patch(scaling, "build", _build_scaled, name="build_scaled")
    _patch(scaling, "check_finite", _check_finite)
    _patch(scaling, "scale_loss", _scale_loss)


def _patch(kind: type, attribute: str, new: Callable[..., Any], *, name: str | None = None) -> None:
    _originals[name or attribute] = getattr(kind, attribute)
    setattr(kind, attribute, new)


# --- apply ------------------------------------------------------------------------------------------------------------


def _apply(
    self: _KerasOptimizer, grads: Iterable[Gradient | None], trainable_variables: Iterable[Variable] | None = None
) -> None:
    original = _originals["apply"]
    grads = list(grads)
    variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
    slots.require_outside_a_step()
    require_whole(grads, "apply_gradients")
    session = slots.shared_session(variables)
    if session is None or not grads or len(grads) != len(variables):
        original(self, grads, trainable_variables)
        return
    _build(self, variables)
    sharding = slots.sharding_of(self)
    if sharding is not None:
        _require_shardable(self)
    grads = _averaged(grads, variables, sharding, session)
    here = [place for place, variable in enumerate(variables) if slots.is_updated_here(variable, sharding)]
    with _with_places(self, grads, variables, here), _without_remote_entries(self):
        has_others = sharding is not None or session.config.partitions > 1
        if has_others and all(grads[place] is None for place in here):
            _apply_nothing(self)
        else:
            original(self, [grads[place] for place in here], [variables[place] for place in here])
    if sharding is not None:
        _all_gather_updates(self, grads, variables, sharding)


def _build(self: _KerasOptimizer, variables: list[Variable]) -> None:
    if not self.built:
        with base_optimizer.backend.name_scope(self.name, caller=self):
            self.build(variables)
        self.built = True


def _require_shardable(self: _KerasOptimizer) -> None:
    if type(self).__module__.startswith("keras."):
        return  # their variables other than slots are equal in all replicas
    common = (self._iterations, self._learning_rate)
    slots.require_known(self, [one for one in self._variables if all(one is not other for other in common)])


def _apply_nothing(self: _KerasOptimizer) -> None:
    """Join the collective decisions of all ranks and update the step counter."""
    with base_optimizer.backend.name_scope(self.name, caller=self):
        self._backend_apply_gradients([], [])
    self._iterations.assign_add(1)


def _averaged(
    grads: list[Gradient | None], variables: list[Variable], sharding: slots.Sharding | None, session: RankSession
) -> list[Gradient | None]:
    if not session.config.ddp or getattr(_local, "averaged", False):
        return grads
    if sharding is None:
        return average_gradients(grads, session)
    return sharding.average_owned(grads, variables)


def _all_gather_updates(
    self: _KerasOptimizer, grads: Sequence[Gradient | None], variables: Sequence[Variable], sharding: slots.Sharding
) -> None:
    """Send the variables that this replica updated to the other replicas, and receive theirs."""
    is_overwriting = self.use_ema and self.ema_overwrite_frequency  # also variables without gradients
    updated = [variable for grad, variable in zip(grads, variables, strict=True) if grad is not None or is_overwriting]
    steps = None if is_overwriting else self.gradient_accumulation_steps

    def send() -> Tensor:
        sharding.all_gather(updated)
        return tf.constant(True)

    if steps:
        tf.cond(tf.equal(tf.convert_to_tensor(self._iterations) % steps, 0), send, lambda: tf.constant(False))
    else:
        send()


@contextmanager
def _with_places(
    self: _KerasOptimizer, grads: Sequence[Gradient | None], variables: Sequence[Variable], here: Sequence[int]
) -> Generator[None]:
    places = [
        place
        for place in here
        if grads[place] is not None and not getattr(variables[place], "overwrite_with_gradient", False)
    ]
    vars(self)[_PLACES] = (places, len(variables))  # bypasses Keras's __setattr__, which would track the value
    try:
        yield
    finally:
        del vars(self)[_PLACES]


@contextmanager
def _without_remote_entries(self: _KerasOptimizer) -> Generator[None]:
    """Replace remote variables by None in the optimizer's lists: the optimizer skips None."""
    before = {name: vars(self)[name] for name in _LISTS if vars(self).get(name)}
    for name, entries in before.items():
        vars(self)[name] = [None if entry is not None and is_remote(entry) else entry for entry in entries]
    try:
        yield
    finally:
        vars(self).update(before)


def _overwrite_with_averages(self: _KerasOptimizer, trainable_variables: Sequence[Variable]) -> None:
    averages = vars(self)["_model_variables_moving_average"]
    pairs = [
        (variable, average)
        for variable, average in zip(trainable_variables, averages, strict=True)
        if average is not None and not is_remote(average)
    ]
    vars(self)["_model_variables_moving_average"] = [average for _, average in pairs]
    try:
        _originals["_overwrite_model_variables_with_average_value"](self, [variable for variable, _ in pairs])
    finally:
        vars(self)["_model_variables_moving_average"] = averages
    sharding = slots.sharding_of(self)
    if sharding is not None and _PLACES not in vars(self):  # during `apply` they are sent at its end
        sharding.all_gather(trainable_variables)


# --- clipping ---------------------------------------------------------------------------------------------------------


def _clip_gradients(self: _KerasOptimizer, grads: Sequence[Gradient]) -> Sequence[Gradient]:
    clip_norm = self.global_clipnorm
    if _PLACES not in vars(self) or clip_norm is None or not _clips_by_global_norm(self):
        return _originals["_clip_gradients"](self, grads)
    # As in Keras, sparse gradients become dense here, which sums repeated rows.
    return [tf.convert_to_tensor(grad) for grad in scaled_to(_global_norm(self, grads), clip_norm, grads)]


def _clips_by_global_norm(self: _KerasOptimizer) -> bool:
    if (current().config.partitions == 1 and slots.sharding_of(self) is None) or (self.clipnorm and self.clipnorm > 0):
        return False
    return bool(self.global_clipnorm and self.global_clipnorm > 0)


def _global_norm(self: _KerasOptimizer, grads: Sequence[Gradient]) -> Tensor:
    places, total = vars(self)[_PLACES]
    return global_norm_of(grads, places, total, slots.groups_of_others(current(), slots.sharding_of(self)))


# --- loss scaling -----------------------------------------------------------------------------------------------------


def _apply_scaled(
    self: _LossScaleOptimizer, grads: Iterable[Gradient | None], trainable_variables: Iterable[Variable] | None = None
) -> None:
    grads = list(grads)
    variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
    session = slots.shared_session(variables)
    require_whole(grads, "apply_gradients")
    if session is not None and len(grads) == len(variables):
        _build(self, variables)
        grads = _averaged(grads, variables, slots.sharding_of(self.inner_optimizer), session)
    with Patch(_local, "averaged", True):  # the inner optimizer receives averaged gradients
        _originals["apply_scaled"](self, grads, trainable_variables)


def _check_finite(self: _LossScaleOptimizer, grads: Sequence[Gradient | None]) -> Tensor:
    some = any(grad is not None for grad in grads)
    finite = _originals["check_finite"](self, grads) if some else tf.constant(True)
    session = slots.shared_session(self._trainable_variables)
    for group in [] if session is None else slots.groups_of_others(session, slots.sharding_of(self.inner_optimizer)):
        gathered = group.gather([finite], "whether gradients are finite")[0]
        finite = tf.reduce_all(tf.stack(gathered))
    return finite


def _scale_loss(self: _LossScaleOptimizer, loss: Tensor) -> Tensor:
    # A step is traced once, maybe before the optimizer is built: it must read a variable, not capture the first scale.
    if tracer() is not None and not self.built:
        if not hasattr(self, "dynamic_scale"):
            _add_scale(self)
        return keras.ops.multiply(loss, self.dynamic_scale)
    return _originals["scale_loss"](self, loss)


def _add_scale(self: _LossScaleOptimizer) -> None:
    with tf.init_scope():
        self.step_counter = self.add_variable(
            shape=(), dtype="int", initializer="zeros", aggregation="none", name="step_counter"
        )
        self.dynamic_scale = self.add_variable(
            shape=(),
            dtype="float32",
            initializer=keras.initializers.Constant(self.initial_scale),
            aggregation="none",
            name="dynamic_scale",
        )


def _build_scaled(self: _LossScaleOptimizer, var_list: Sequence[Variable]) -> None:
    if hasattr(self, "dynamic_scale"):
        self.inner_optimizer.build(var_list)
        base_optimizer.BaseOptimizer.build(self, var_list)
    else:
        _originals["build_scaled"](self, var_list)


# --- slots ------------------------------------------------------------------------------------------------------------


def _prepare_and_build(self: _KerasOptimizer, variables: Sequence[Variable]) -> None:
    slots.prepare(self, variables)
    _originals["build"](self, variables)


def _add_variable_from_reference(
    self: _KerasOptimizer, reference_variable: Variable, *args: object, **kwargs: object
) -> Variable:
    original = _originals["add_variable_from_reference"]
    if slots.is_kept_here(self, reference_variable):
        slot = original(self, reference_variable, *args, **kwargs)
    else:
        with Deferred().collecting():
            slot = original(self, reference_variable, *args, **kwargs)
    slots.add(self, reference_variable, slot)
    return slot


def _build_adafactor(self: Any, var_list: Sequence[Variable]) -> None:
    if self.built:
        return
    deferred = Deferred()
    with deferred.collecting():
        _originals["build_adafactor"](self, var_list)
    for factors in (self._r, self._c):  # Keras creates them without a reference to their variable
        for variable, factor in zip(var_list, factors, strict=True):
            if factor is not None and factor.shape:
                slots.add(self, variable, factor)
    deferred.initialize(lambda slot: not is_remote(slot))


def _build_schedule_free(self: _KerasOptimizer, var_list: Sequence[Variable]) -> None:
    with dropping_remote_values():  # each slot is initialized with the value of its variable
        _originals["build_schedule_free"](self, var_list)
