"""One interface to Keras 3 and Keras 2, for everything but their optimizers.

A process uses one Keras, that of `tf.keras`: Keras 3, or Keras 2. Keras 2 is the package `keras` up to TensorFlow 2.15,
and tf_keras with `TF_USE_LEGACY_KERAS=1` from 2.16 on. This module determines which, and never imports the other one.
"""

import functools
import importlib
import itertools
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import (
    DType,
    Gradient,
    KerasLayer,
    KerasModel,
    Logs,
    Tensor,
    TensorShape,
    Variable,
)
from smdistributed.modelparallel.tensorflow.marks import plain_scope
from smdistributed.modelparallel.tensorflow.patch import Patch
from tensorflow.python.eager import lift_to_graph
from tensorflow.python.framework import ops
from tensorflow.python.ops import resource_variable_ops, variable_scope

_KERAS_2_MODEL = ".engine.training"  # below tf_keras.src, keras.src (2.13 to 2.15) or keras (2.12)
IS_KERAS_2 = str(tf.keras.Model.__module__).endswith(_KERAS_2_MODEL)
"""Whether `tf.keras` is Keras 2: the package `keras` up to TensorFlow 2.15, or tf_keras."""
Model: Any = tf.keras.Model
Layer: Any = tf.keras.layers.Layer
library_modules = ("tf_keras", "keras")
"""Top-level modules whose layers are Keras's own."""

_optimizers: tuple[Any, ...] = (
    (tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer)
    if IS_KERAS_2
    else (tf.keras.optimizers.Optimizer,)
)


def keras_2_module(name: str) -> Any:
    """Return a module inside the Keras 2 of `tf.keras`.

    Args:
        name: For example `engine.training`.
    """
    return importlib.import_module(f"{str(tf.keras.Model.__module__).removesuffix(_KERAS_2_MODEL)}.{name}")


def serialized(model: KerasModel) -> dict[str, Any]:
    """Return what a `.keras` file stores of a model, except its weights.

    Raises:
        NotImplementedError, TypeError, ValueError: Keras cannot serialize a part of it.
    """
    saving = keras_2_module("saving.serialization_lib") if IS_KERAS_2 else tf.keras.saving
    config: dict[str, Any] = saving.serialize_keras_object(model)
    return config


def is_keras_variable(variable: object) -> bool:
    """Return whether `variable` is of the class that a layer's `add_weight` returns.

    Args:
        variable: Any object.
    """
    return isinstance(variable, tf.Variable if IS_KERAS_2 else tf.keras.Variable)


def tensorflow_variable(variable: Any) -> Any:
    """Return the tf.Variable inside a Keras variable, or a plain tf.Variable itself.

    Args:
        variable: Of Keras 3, Keras 2 or TensorFlow.
    """
    # A Keras 3 variable contains a tf.Variable; a mixed-precision variable of Keras 2 both contains and is one.
    for name in ("_value", "_variable"):
        inner = vars(variable).get(name) if hasattr(variable, "__dict__") else None
        if isinstance(inner, tf.Variable):
            return inner
    return variable


def layers_of(layer: KerasLayer) -> list[KerasLayer]:
    """Return all sublayers of `layer`, at any depth, without `layer` itself.

    Args:
        layer: A layer or model.
    """
    return list(layer._flatten_layers(include_self=False))


def containers_of(layer: Any) -> dict[str, Any]:
    """Return the lists, tuples, dictionaries and sets in a layer's attributes whose items TensorFlow does not track.

    If Keras 3 tracks a container, its items are not trackable children of the layer. Containers may be nested, and
    their items may be of any type.

    Args:
        layer: A layer or model; others have none.
    """
    if IS_KERAS_2 or not isinstance(layer, Layer):
        return {}
    found = {name: getattr(layer, name, None) for name in layer._tracked}
    found |= {name: value for name, value in vars(layer).items() if isinstance(value, tuple)}
    return {name: value for name, value in found.items() if isinstance(value, (list, tuple, dict, set))}


def seeds_of(layer: Any) -> list[Variable]:
    """Return the generator-state variables of a random layer such as dropout; TensorFlow's checkpoints omit them.

    A Keras 2 layer has one only if `tf.keras.backend.experimental.enable_tf_random_generator()` was called before.
    """
    if not IS_KERAS_2:
        return [generator.state for generator in getattr(layer, "_seed_generators", ())]
    generator = getattr(getattr(layer, "_random_generator", None), "_generator", None)
    return [] if generator is None else [generator.state]


def tracked_variables(model: KerasModel) -> list[Variable]:
    """Return all tf.Variables of a model, each once: its weights in the order of `model.variables`, then the others.

    The others are variables that Keras 3 does not list (in a layer's attributes, in lists and dictionaries, or in a
    `tf.Module` of the script) and the seeds of Keras 2's random layers. Variables of optimizers and metrics are not
    included.
    """
    found: dict[int, Any] = {}
    for variable in model.variables:
        inner = tensorflow_variable(variable)
        found.setdefault(id(inner), inner)
    waiting, seen = [model], {id(model)}
    while waiting:
        tracked = waiting.pop(0)
        held = [_held(container) for container in containers_of(tracked).values()]
        seeds = map(tensorflow_variable, seeds_of(tracked) if isinstance(tracked, Layer) else ())
        for child in itertools.chain(tracked._trackable_children().values(), *held, seeds):
            if id(child) in seen or isinstance(child, (tf.keras.metrics.Metric, *_optimizers)):
                continue
            seen.add(id(child))
            if isinstance(child, tf.Variable):
                inner = tensorflow_variable(child)
                found.setdefault(id(inner), inner)
            elif hasattr(child, "_trackable_children"):
                waiting.append(child)
    return list(found.values())


def _held(container: Any) -> Iterator[Any]:
    """Yield the items of a container and of the containers nested in it."""
    for value in container.values() if isinstance(container, dict) else container:
        if isinstance(value, (list, tuple, dict, set)):
            yield from _held(value)
        else:
            yield value


def hears_training(model: Any) -> bool:
    """Return whether Keras's `fit` passes `training` to the model: Keras 2 always, Keras 3 if `call` accepts it."""
    return IS_KERAS_2 or bool(model._call_has_training_arg)


def set_random_seed(seed: int) -> None:
    """Seed Python, NumPy, TensorFlow and Keras.

    Args:
        seed: From 0 to 2**32 - 1.
    """
    tf.keras.utils.set_random_seed(seed)


def unpack(data: object) -> tuple[object, object, object]:
    """Split the data of a step of `fit` into inputs, targets and sample weights; the latter two may be None.

    Args:
        data: A batch as Keras passes it to a step.
    """
    x, y, sample_weight = tf.keras.utils.unpack_x_y_sample_weight(data)
    return x, y, sample_weight


def loss_of(model: Any, x: object, y: object, y_pred: object, sample_weight: object, *, training: bool) -> Tensor:
    """Return the loss of a microbatch, as the model was compiled or as its `compute_loss` defines it.

    Args:
        x: Inputs of the microbatch.
        y: Targets, or None.
        y_pred: Outputs of the model.
        sample_weight: Shape [rows], or None.
        training: Whether the loss is differentiated.

    Returns:
        Scalar, or a value for each row without a reduction.
    """
    if not IS_KERAS_2:
        return model._compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
    loss = model.compute_loss(x, y, y_pred, sample_weight)  # also updates its own mean over the microbatches
    if training:
        model._validate_target_and_loss(y, loss)
    return loss


def metrics_after(model: Any, loss: Tensor, x: object, y: object, y_pred: object, sample_weight: object) -> Logs:
    """Update the metrics with a whole batch, and return their results.

    Args:
        model: A compiled model.
        loss: Scalar, of the whole batch.
        x: Inputs of the whole batch.
        y: Targets, or None.
        y_pred: Outputs of the model.
        sample_weight: Shape [rows], or None.
    """
    if not IS_KERAS_2:
        size = tf.shape(next(part for part in tf.nest.flatten(x) if part is not None))[0]
        model._loss_tracker.update_state(loss, sample_weight=size)
    return model.compute_metrics(x, y, y_pred, sample_weight=sample_weight)


def in_order_of_metrics(model: Any, logs: dict[str, Any]) -> float | list[float]:
    """Return logs as Keras's `train_on_batch` does by default: a list in the order of the metrics, or a number.

    Args:
        model: A compiled model.
        logs: Results by name.
    """
    if not IS_KERAS_2:
        return model._flatten_metrics_in_order(logs)
    return keras_2_module("engine.training").flatten_metrics_in_order(logs, model.metrics_names)


def scaled_loss(optimizer: Any, loss: Tensor) -> Tensor:
    """Return the loss to differentiate, scaled if the optimizer scales losses for mixed precision.

    Args:
        loss: Scalar.

    Returns:
        Scalar.
    """
    if IS_KERAS_2:
        return optimizer.get_scaled_loss(loss) if hasattr(optimizer, "get_scaled_loss") else loss
    return optimizer.scale_loss(loss)


def unscaled(optimizer: Any, gradients: list[Gradient | None]) -> list[Gradient | None]:
    """Convert the gradients of `scaled_loss` to those that `apply_gradients` expects.

    Args:
        gradients: Tensors, IndexedSlices or None.

    Returns:
        As many gradients.
    """
    if IS_KERAS_2 and hasattr(optimizer, "get_unscaled_gradients"):
        return list(optimizer.get_unscaled_gradients(gradients))
    return gradients  # Keras 3 unscales in apply_gradients


def without_memory(shape: TensorShape, dtype: DType, name: str, *, trainable: bool, **options: Any) -> Variable:
    """Create a variable without a value, which takes no memory.

    Args:
        shape: Static shape.
        dtype: Any dtype of TensorFlow.
        trainable: Whether tapes watch it.
        **options: Further arguments of TensorFlow's constructor.

    Returns:
        A tf.Variable whose reads fail until it is assigned.
    """
    with tf.init_scope():
        return resource_variable_ops.UninitializedVariable(
            shape=shape, dtype=dtype, trainable=trainable, name=name, **options
        )


@contextmanager
def creating_without_memory(created: Callable[[Any, Callable[[], Any]], None]) -> Generator[None]:
    """Create the weights of layers without memory inside this context.

    A tf.Variable that a layer creates directly gets its value immediately, also inside a graph.

    Args:
        created: Called with each weight and a function that computes its initial value.
    """
    patching = _patched_make_variable if IS_KERAS_2 else _patched_initialization
    with tf.variable_creator_scope(_created_eagerly), patching(created):
        yield


@contextmanager
def _patched_initialization(created: Callable[[Any, Callable[[], Any]], None]) -> Generator[None]:
    kind = tf.keras.Variable

    def later(variable: Any, initializer: Callable[..., Any]) -> None:
        value = without_memory(
            variable._shape,
            variable._dtype,
            variable.name,
            trainable=bool(variable.trainable),
            # Replicas add up the states of metrics by it.
            aggregation=variable._map_aggregation(variable.aggregation),
            synchronization=variable._map_synchronization(variable.synchronization),
        )
        variable._initialize(value)
        created(variable, functools.partial(initializer, variable._shape, dtype=variable._dtype))

    with Patch(kind, "_initialize_with_initializer", later):
        yield


@contextmanager
def _patched_make_variable(created: Callable[[Any, Callable[[], Any]], None]) -> Generator[None]:
    module = keras_2_module("engine.base_layer_utils")
    original = module.make_variable

    def make(
        name: str, shape: Any = None, dtype: Any = tf.float32, initializer: Any = None, **options: Any
    ) -> Variable:
        initializer = initializer() if isinstance(initializer, type) else initializer
        if not callable(initializer) or not tf.TensorShape(shape).is_fully_defined() or options.get("layout"):
            return original(name, shape, dtype, initializer, **options)
        # An initializer without a seed draws one at its first call. Draw it now, in the order of creation, which is
        # the same on every rank.
        generator = getattr(initializer, "_random_generator", None)
        if generator is not None:
            generator._maybe_init()
        kept = {key: options.get(key) for key in ("constraint", "synchronization", "aggregation")}
        kind = tf.as_dtype(dtype).base_dtype
        trainable = options.get("trainable")
        trained = trainable is None or bool(trainable)
        with tf.init_scope(), tf.name_scope(f"{plain_scope(ops.get_name_scope())}/"):
            variable = without_memory(tf.TensorShape(shape), kind, name, trainable=trained, **kept)
        created(variable, functools.partial(initializer, tf.TensorShape(shape).as_list(), dtype=kind))
        return variable

    with Patch(module, "make_variable", make):
        yield


def _created_eagerly(_: Callable[..., Any], **options: Any) -> Variable:
    initial = options.pop("initial_value", None)
    value = _lifted(initial) if isinstance(initial, tf.Tensor) and not hasattr(initial, "numpy") else initial
    on_2_12 = hasattr(variable_scope, "default_variable_creator_v2")
    module = variable_scope if on_2_12 else resource_variable_ops
    with tf.init_scope():
        return module.default_variable_creator_v2(None, initial_value=value, **options)


def _lifted(tensor: Tensor) -> Tensor:
    """Return the value of a tensor of the graph under construction; it must not depend on the graph's inputs."""

    @tf.function(autograph=False)
    def value() -> Tensor:
        return lift_to_graph.lift_to_graph([tensor], ops.get_default_graph())[tensor]

    with tf.init_scope():
        return value()
