"""`smp.step`: a function that runs once per microbatch, pipelined over the ranks of the replica."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.engine.marks import tracer
from smdistributed.modelparallel.tensorflow.engine.plan import Plan
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.step.output import StepOutput
from smdistributed.modelparallel.tensorflow.step.split import SplitArguments, Static, split_arguments
from tensorflow.python.eager import record

__all__ = ["StepFunction", "step"]


def step(
    function: Callable[..., Any] | None = None,
    *,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    **options: Any,
) -> Any:
    """Decorate the function that runs the model: forward pass, and for training the gradients.

    The batch is cut into `microbatches` pieces, the function runs once for each, and every tensor it returns comes back
    as a `StepOutput`, which holds one value per microbatch. Clipping and `apply_gradients` belong outside.

    Args:
        function: The function; left out when arguments are given.
        non_split_inputs: Names of the arguments that every microbatch gets whole.
        input_split_axes: The axis to cut on, by name of the argument; 0 for those not named.
        **options: Those of `tf.function`. `input_signature` describes the whole batch.

    Returns:
        A `StepFunction`, or a decorator that makes one.
    """
    if function is None:
        return functools.partial(step, non_split_inputs=non_split_inputs, input_split_axes=input_split_axes, **options)
    return StepFunction(function, non_split_inputs, input_split_axes, options)


@dataclass(frozen=True)
class _Traced:
    """How to make the result of one eager call out of its tensors."""

    plan: Plan


class StepFunction:
    """A function decorated with `smp.step`; called inside a `tf.function`, or eagerly."""

    def __init__(
        self,
        function: Callable[..., Any],
        non_split_inputs: Sequence[str] | None,
        input_split_axes: Mapping[str, int] | None,
        options: Mapping[str, Any],
    ) -> None:
        functools.update_wrapper(self, function)
        self._body = function
        self._signature = inspect.signature(function)
        self._non_split_inputs = non_split_inputs
        self._input_split_axes = input_split_axes
        self._input_signature = options.get("input_signature")
        self._options = {name: value for name, value in options.items() if name in ("reduce_retracing",)}
        self._plans: dict[Any, Plan] = {}
        self._eager_plans: list[Plan] = []
        self._eager: Any = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Make a step function of a method."""
        return self if instance is None else _bound(self, instance)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the step on a whole batch."""
        if tracer() is not None:
            raise SMPUsageError(
                f"{self._name} is decorated with smp.step and was called inside another smp.step: call it outside"
            )
        if tf.executing_eagerly():
            return self._call_eagerly(args, kwargs)
        plan, values = self._emit(args, kwargs)
        return self._pack(plan, values)

    @property
    def _name(self) -> str:
        return getattr(self._body, "__name__", repr(self._body))

    def _emit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Plan, list[list[Any]]]:
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
        plan = self._plan(split)
        pieces = [_flat(split, microbatch) for microbatch in range(split.num_microbatches)]
        with record.stop_recording():  # a tape around the step would only make it slow: gradients belong inside
            return plan, plan.emit(pieces, transport=session.transport, ranks=session.placement.mp_group)

    def _plan(self, split: SplitArguments) -> Plan:
        key = (id(current()), split.piece_key())
        if key in self._plans:
            return self._plans[key]
        specs = [None if isinstance(leaf, Static) else leaf.spec for leaf in split.leaves]
        static = [leaf.value(0) if isinstance(leaf, Static) else None for leaf in split.leaves]

        def call(body: Callable[..., Any], leaves: list[Any]) -> Any:
            given = [known if spec is None else leaf for spec, known, leaf in zip(specs, static, leaves, strict=True)]
            args, kwargs = split.rebuild(given)
            return body(*args, **kwargs)

        plan = engine().plan(self._body, specs, call, num_microbatches=split.num_microbatches)
        if all(tf.is_tensor(t) and hasattr(t, "numpy") for t in plan.trace.captures.values()):
            # A plan that uses tensors of the caller's graph is of no use in another graph.
            self._plans[key] = plan
        return plan

    def _pack(self, plan: Plan, values: Sequence[Sequence[Any]]) -> Any:
        leaves = [
            result.value if result.spec is None else StepOutput([_component(result.spec, v) for v in pieces])
            for result, pieces in zip(plan.trace.results, values, strict=True)
        ]
        return tf.nest.pack_sequence_as(plan.trace.structure, leaves)

    def _call_eagerly(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._eager is None:
            self._eager = tf.function(self._flat_call, autograph=False, **self._options)
        number, values = self._eager(*args, **kwargs)
        return self._pack(self._eager_plans[int(number)], values)

    def _flat_call(self, *args: Any, **kwargs: Any) -> Any:
        plan, values = self._emit(args, kwargs)
        self._eager_plans.append(plan)
        return tf.constant(len(self._eager_plans) - 1), values


def _bound(function: StepFunction, instance: Any) -> Any:
    # One step function per object, kept on it: its plans are those of this object's model.
    kept = instance.__dict__.setdefault("_smp_steps", {})
    if id(function) not in kept:
        kept[id(function)] = StepFunction(
            functools.partial(function._body, instance),
            function._non_split_inputs,
            function._input_split_axes,
            {"input_signature": function._input_signature, **function._options},
        )
    return kept[id(function)]


def _flat(split: SplitArguments, microbatch: int) -> list[Any]:
    values = [leaf.value(microbatch) for leaf in split.leaves if not isinstance(leaf, Static)]
    return tf.nest.flatten(values, expand_composites=True)


def _component(spec: Any, parts: tuple[Any, ...] | None) -> Any:
    if parts is None:
        return None
    return tf.nest.pack_sequence_as(spec, list(parts), expand_composites=True)
