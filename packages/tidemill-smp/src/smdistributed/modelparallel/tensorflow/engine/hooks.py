"""Hooks into TensorFlow's gradient computation that assign backward ops to units.

Name scopes identify most backward ops but not all, and placing the others with their inputs can put a custom gradient
on the wrong rank: results stay correct, but the pipeline gets slow. So three places are hooked while a step is traced:
the gradient function of each op, operations recorded with their own backward function (`tf.custom_gradient`), and the
tape's result. `tf.gradients` needs no hook: its ops refer to their forward op (see `marks.MarkingGraph`).
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Tensor, Variable
from smdistributed.modelparallel.tensorflow.marks import Tracer, tracer
from smdistributed.modelparallel.tensorflow.patch import Patch
from smdistributed.modelparallel.tensorflow.tensorflow_api import record
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import backprop
from tensorflow.python.ops import resource_variable_ops


@contextmanager
def gradient_hooks() -> Generator[None]:
    """Install the hooks during one trace."""
    recording = Patch(record, "record_operation", _marked_recording(record.record_operation))
    tagging = Patch(backprop.GradientTape, "gradient", _tagged_gradient(backprop.GradientTape.gradient))
    pywrap_tfe.TFE_Py_RegisterGradientFunction(_marked_gradient_function)
    try:
        with recording, tagging:
            yield
    finally:
        pywrap_tfe.TFE_Py_RegisterGradientFunction(backprop._gradient_function)


def tag_gradient(gradient: Gradient | None, variable: Variable) -> Gradient | None:
    """Mark `gradient`, a tensor or IndexedSlices, as the gradient of `variable`, to be placed with the variable.

    Args:
        gradient: A tensor, IndexedSlices or None.
        variable: Of Keras or TensorFlow.

    Returns:
        The same value.
    """
    state = tracer()
    if state is None or gradient is None:
        return gradient
    handle = getattr(getattr(variable, "value", variable), "handle", None)
    handle = getattr(variable, "handle", handle)
    if handle is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(*(_tagged(part, handle, state) for part in _components(gradient)))
    tagged = _tagged(gradient, handle, state)
    tagged.set_shape(variable.shape)  # TensorFlow cannot always infer it if the batch size is unknown
    return tagged


def _tagged(gradient: Any, handle: Tensor, state: Tracer) -> Tensor:
    tagged = tf.identity(gradient, name="gradient_of_variable")
    state.units.pop(tagged.op.name, None)
    state.gradients[tagged.op.name] = tf.compat.v1.get_default_graph().capture(handle)
    return tagged


def _components(slices: tf.IndexedSlices) -> tuple[Tensor, ...]:
    return slices.values, slices.indices, slices.dense_shape


def _marked_gradient_function(
    op_name: str,
    attributes: tuple[Any, ...],
    num_inputs: int,
    inputs: list[Any],
    outputs: list[Any],
    out_gradients: list[Any],
    skip_input_indices: tuple[int, ...],
    forward_pass_name_scope: str,
) -> list[Any]:
    arguments = (op_name, attributes, num_inputs, inputs, outputs, out_gradients, skip_input_indices)
    state = tracer()
    if state is None:
        return backprop._gradient_function(*arguments, forward_pass_name_scope)
    with state.marking(_unit_of(state, outputs, forward_pass_name_scope)):
        return backprop._gradient_function(*arguments, forward_pass_name_scope)


def _unit_of(state: Tracer, outputs: list[Any] | None, name_scope: str | None) -> str | None:
    # Outputs are omitted if the gradient does not need them; then the name scope identifies the unit. Never use the
    # unit of the inputs: they may come from another part of the model.
    for output in outputs or ():
        if isinstance(output, tf.Tensor) and not isinstance(output, tf.__internal__.EagerTensor):
            return state.units.get(output.op.name)
    return state.unit_of_scope(name_scope)


def _marked_recording(record_operation: Callable[..., Any]) -> Callable[..., Any]:
    def record_marked(
        op_type: str,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        backward_function: Callable[..., Any] | None,
        forward_function: object = None,
    ) -> object:
        state = tracer()
        if state is not None and backward_function is not None:
            unit, original = state.unit, backward_function

            def backward_function(*gradients: Tensor) -> Any:
                with state.marking(unit):
                    return original(*gradients)

        return record_operation(op_type, output_tensors, input_tensors, backward_function, forward_function)

    return record_marked


def _tagged_gradient(gradient: Callable[..., Any]) -> Callable[..., Any]:
    def gradient_with_tags(
        self: tf.GradientTape, target: object, sources: object, *args: object, **kwargs: object
    ) -> Any:
        gradients = gradient(self, target, sources, *args, **kwargs)
        if tracer() is None:
            return gradients
        flat = [
            tag_gradient(part, source) if _is_variable(source) else part
            for part, source in zip(_flatten(gradients), _flatten(sources), strict=True)
        ]
        return tf.nest.pack_sequence_as(sources, flat)

    return gradient_with_tags


def _flatten(structure: object) -> list[Any]:
    return tf.nest.flatten(structure)


def _is_variable(source: object) -> bool:
    return resource_variable_ops.is_resource_variable(source)
