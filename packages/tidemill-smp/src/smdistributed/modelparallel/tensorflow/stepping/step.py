"""`smp.step`: runs a function once per microbatch, pipelined over the ranks of the replica."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, TypeSpec
from smdistributed.modelparallel.tensorflow.engine.batch import Batch
from smdistributed.modelparallel.tensorflow.engine.batch_sums import emit_sums
from smdistributed.modelparallel.tensorflow.engine.emission import emit
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.engine.invariance import Feed
from smdistributed.modelparallel.tensorflow.engine.plan import Plan
from smdistributed.modelparallel.tensorflow.engine.timeline import active_timeline
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.progress import doing, preparing
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.stepping.input_checks import InputCheck
from smdistributed.modelparallel.tensorflow.stepping.leaves import Leaf, Sliced, Split, Static, Whole
from smdistributed.modelparallel.tensorflow.stepping.results import StepTensors
from smdistributed.modelparallel.tensorflow.stepping.split import SplitArguments, split_arguments
from smdistributed.modelparallel.tensorflow.tensorflow_api import record
from smdistributed.modelparallel.tensorflow.transport.errors import library_errors

log = logging.getLogger("smdistributed.modelparallel")
_RETRACING = ("reduce_retracing", "experimental_relax_shapes")
"""The current name of the option, and its deprecated alias."""
_HEEDED = ("input_signature", "jit_compile", *_RETRACING)


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    **options: object,
) -> Any:
    """Decorate the function that runs the model: the forward pass and, for training, the gradients.

    The batch is split into `microbatches` pieces, and the function runs once for each. Every tensor that it returns
    becomes a `StepOutput` with one value per microbatch. Clip and apply gradients outside the step. Follows SageMaker's
    "TensorFlow API" of smp.

    Args:
        function: The function; omit it when passing arguments to the decorator.
        non_split_inputs: Names of the arguments that every microbatch receives whole.
        input_split_axes: Split axis by argument name; default 0.
        **options: Options of `tf.function`. `input_signature` describes the whole batch; `reduce_retracing` (formerly
            `experimental_relax_shapes`) applies if the step is called eagerly; the others have no effect and log a
            warning.

    Returns:
        A `StepFunction`, or a decorator that returns one.

    Raises:
        SMPUsageError: If `tf.function` has no such option, or if `jit_compile` is True.
    """
    _check_options(options)
    make = functools.partial(
        StepFunction, non_split_inputs=non_split_inputs, input_split_axes=input_split_axes, options=options
    )
    return make if function is None else make(function)


def _check_options(options: Mapping[str, Any]) -> None:
    allowed = [name for name in inspect.signature(tf.function).parameters if name != "func"]
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise SMPUsageError(
            f"smp.step: unknown options {', '.join(unknown)}; allowed are non_split_inputs, input_split_axes, and "
            f"those of tf.function: {', '.join(allowed)}"
        )
    if options.get("jit_compile"):
        raise SMPUsageError(
            "smp.step: jit_compile=True would compile the parts of all ranks as one function; compile the part of each "
            "rank with tf.config.optimizer.set_jit(True) and TF_XLA_FLAGS=--tf_xla_cpu_global_jit"
        )
    idle = sorted(name for name, value in options.items() if name not in _HEEDED and value is not None)
    if idle:
        log.warning("smp.step: %s: without effect on a step; leave it out", ", ".join(idle))


class StepFunction:
    """A function decorated with `smp.step`; call it inside a `tf.function`, or eagerly."""

    def __init__(
        self,
        function: Callable[..., Any],
        non_split_inputs: Sequence[str] | None,
        input_split_axes: Mapping[str, int] | None,
        options: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        # If a step is an argument of a tf.function, TensorFlow would replace the step by its __wrapped__ function.
        del vars(self)["__wrapped__"]
        self._body = function
        self._signature = self.__signature__ = inspect.signature(function)
        self._non_split_inputs = non_split_inputs
        self._input_split_axes = input_split_axes
        self._input_signature = options.get("input_signature")
        self._options = {"reduce_retracing": any(options.get(name) for name in _RETRACING)}
        self._plans: dict[Any, Plan] = {}
        self._eager_plans: list[Sequence[Plan]] = []
        self._eager: Callable[..., Any] | None = None
        self._check = InputCheck(self._name)

    def __get__(self, instance: object, owner: type | None = None) -> StepFunction:
        """Bind the step to an instance, if it decorates a method."""
        return self if instance is None else _bound(self, instance)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the step on a whole batch, and return its results as `StepOutput` objects."""
        if tracer() is not None:
            raise SMPUsageError(
                f"{self._name} is decorated with smp.step and was called inside another smp.step: call it outside"
            )
        if tf.config.functions_run_eagerly():
            raise SMPUsageError(
                f"{self._name} is decorated with smp.step, which needs graphs: take "
                "tf.config.run_functions_eagerly(True) out. To debug, print by tf.print, or train without smp"
            )
        if tf.executing_eagerly():
            return self._call_eagerly(args, kwargs)
        return self._emit(args, kwargs).pack()

    @property
    def _name(self) -> str:
        # Equal on all ranks, which compare inputs under this name: a repr would contain an address.
        body = self._body
        while isinstance(body, functools.partial):
            body = body.func
        return getattr(body, "__name__", type(body).__name__)

    def _emit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> StepTensors:
        session = current()
        split = split_arguments(
            self._signature,
            args,
            kwargs,
            num_microbatches=session.config.microbatches,
            non_split_inputs=self._non_split_inputs,
            input_split_axes=self._input_split_axes,
            input_signature=self._input_signature,
        )
        pieces = [_flat(split, microbatch) for microbatch in range(split.num_microbatches)]
        # If the microbatches differ in more than tensor values, each is traced and run separately.
        groups = [pieces] if split.is_uniform else [[piece] for piece in pieces]
        with preparing(self._name, is_reported=session.placement.rank == 0):
            plans = [self._plan(split, first, len(group)) for first, group in enumerate(groups)]
            return StepTensors(plans, self._emitted(plans, groups, self._check.emit(_named(split), session)))

    def _emitted(self, plans: Sequence[Plan], groups: Sequence[Any], checked: Sequence[Any]) -> list[Any]:
        """Add the ops of all plans; return the values per result and microbatch."""
        doing("adding the ops of the schedule")
        session = current()
        emitted = []
        # No op may wait for another rank before the check: that would delay its error or, with XLA, the check itself.
        # Recording stops because a tape around the step would only slow it down: gradients are computed inside.
        with tf.control_dependencies(checked), record.stop_recording():
            sums = emit_sums(plans, groups, session)
            for plan, group in zip(plans, groups, strict=True):
                emitted.append(
                    emit(
                        plan,
                        group,
                        transport=session.transport,
                        ranks=session.placement.mp_group,
                        timeline=active_timeline(),
                        sums=sums,
                    )
                )
        return [[part for found in parts for part in found] for parts in zip(*emitted, strict=True)]

    def _plan(self, split: SplitArguments, microbatch: int, num_microbatches: int) -> Plan:
        key = (id(current()), microbatch, split.piece_key())
        if key in self._plans:
            return self._plans[key]
        specs = [_specs(leaf.value(microbatch)) if isinstance(leaf, Sliced) else _spec(leaf) for leaf in split.leaves]
        known = [leaf.value(microbatch) for leaf in split.leaves]

        def call(body: Callable[..., Any], leaves: list[Tensor]) -> object:
            tensors = iter(leaves)
            given = [_fill(spec, value, tensors) for spec, value in zip(specs, known, strict=True)]
            args, kwargs = split.rebuild(given)
            return body(*args, **kwargs)

        flat = [spec for part in specs for spec in part]
        feeds = [_feed(leaf) for leaf, part in zip(split.leaves, specs, strict=True) for _ in part]
        batch = Batch(feeds, split.num_microbatches * current().dp_group.size)
        leaves = _flat(split, microbatch)
        plan = engine().plan(self._body, flat, call, num_microbatches=num_microbatches, batch=batch, leaves=leaves)
        if all(isinstance(tensor, tf.__internal__.EagerTensor) for tensor in plan.trace.captures.values()):
            # A plan that captures tensors of the caller's graph cannot be reused in another graph.
            self._plans[key] = plan
        return plan

    def _call_eagerly(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._eager is None:
            self._eager = tf.function(self._flat_call, autograph=False, **self._options)
        with library_errors():
            number, values = self._eager(*args, **kwargs)
        return StepTensors(self._eager_plans[int(number)], values).pack()

    def _flat_call(self, *args: object, **kwargs: object) -> tuple[Tensor, Sequence[Sequence[Any]]]:
        emitted = self._emit(args, kwargs)
        self._eager_plans.append(emitted.plans)
        return tf.constant(len(self._eager_plans) - 1), emitted.values


def _bound(function: StepFunction, instance: Any) -> StepFunction:
    # One step function per object, stored on it, because its plans belong to this object's model.
    kept = instance.__dict__.setdefault("_smp_steps", {})
    if id(function) not in kept:
        kept[id(function)] = StepFunction(
            functools.partial(function._body, instance),
            function._non_split_inputs,
            function._input_split_axes,
            {"input_signature": function._input_signature, **function._options},
        )
    return kept[id(function)]


def _named(split: SplitArguments) -> list[tuple[str, Any]]:
    """Return the tensors of all microbatches, with the names of their arguments."""
    return [
        (leaf.name, tensor)
        for leaf in split.leaves
        if not isinstance(leaf, Static)
        for microbatch in range(1 if isinstance(leaf, Whole) else split.num_microbatches)
        for tensor in _tensors(leaf.value(microbatch))
    ]


def _tensors(value: object) -> list[Any]:
    return tf.nest.flatten([part for part in tf.nest.flatten(value) if tf.is_tensor(part)], expand_composites=True)


def _flat(split: SplitArguments, microbatch: int) -> list[Any]:
    values = [
        [part for part in tf.nest.flatten(leaf.value(microbatch)) if tf.is_tensor(part)]
        for leaf in split.leaves
        if not isinstance(leaf, Static)
    ]
    return tf.nest.flatten(values, expand_composites=True)


def _spec(leaf: Split | Static | Whole) -> list[Any]:
    return [None] if isinstance(leaf, Static) else [leaf.spec]


def _specs(piece: object) -> list[Any]:
    """Return the specs of the leaves of an `smp_slice` result; None for leaves that are not tensors."""
    return [tf.type_spec_from_value(part) if tf.is_tensor(part) else None for part in tf.nest.flatten(piece)]


def _feed(leaf: Leaf) -> Feed:
    if isinstance(leaf, Split):
        return leaf.axis
    return "varying sizes" if isinstance(leaf, Sliced) else "whole"


def _fill(specs: list[TypeSpec | None], known: object, tensors: Iterator[Tensor]) -> object:
    """Return a leaf with its tensors replaced by placeholders."""
    nested = tf.nest.is_nested(known)
    parts = tf.nest.flatten(known) if nested else [known]
    filled = [_choose(spec, part, next(tensors)) for spec, part in zip(specs, parts, strict=True)]
    return tf.nest.pack_sequence_as(known, filled) if nested else filled[0]


def _choose(spec: TypeSpec | None, part: object, tensor: object) -> object:
    return part if spec is None else tensor
