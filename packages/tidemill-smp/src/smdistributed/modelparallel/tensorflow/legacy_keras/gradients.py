"""`optimizer.get_gradients` and `optimizer.compute_gradients`: gradients in a graph, without a tape.

They use `tf.gradients`, which differentiates the graph under construction; a step function always builds one. Inside a
step each gradient is also marked for placement with its variable.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Tensor, Variable
from smdistributed.modelparallel.tensorflow.engine.hooks import tag_gradient
from smdistributed.modelparallel.tensorflow.patch import Patch


def get_gradients(optimizer: object, loss: Any, params: object) -> list[Any]:
    """Return the gradients of `loss`, as in the optimizers of Keras 2.

    Args:
        optimizer: Used in error messages only: its clipping and loss scale are not applied.
        loss: A tensor of the graph under construction.
        params: Variables of TensorFlow or Keras, in any nest.

    Returns:
        One gradient per variable, in the order of `tf.nest.flatten`: tensors, or `tf.IndexedSlices` for embeddings.

    Raises:
        ValueError: If `loss` does not depend on some variables, which the message names.
        SMPUsageError: If called eagerly.
    """
    variables = tf.nest.flatten(params)
    gradients = symbolic_gradients(loss, variables, caller=f"{type(optimizer).__name__}.get_gradients")
    missing = [_name(variable) for variable, found in zip(variables, gradients, strict=True) if found is None]
    if missing:
        raise ValueError(
            f"the loss has no gradient with respect to {', '.join(missing)}: it does not depend on "
            f"{'it' if len(missing) == 1 else 'them'}, or only through operations without a gradient (such as argmax "
            "or round). Leave what the loss does not use out of the list of variables"
        )
    return gradients


def compute_gradients(
    optimizer: object,
    loss: Any,
    var_list: object = None,
    grad_loss: Tensor | None = None,
    tape: tf.GradientTape | None = None,
) -> list[tuple[Any, Any]]:
    """Return pairs of gradient and variable for `apply_gradients`.

    Args:
        optimizer: The optimizer, whose variables are the default of `var_list`.
        loss: A tensor, or a callable that returns one.
        var_list: Variables, or a callable that returns them. Default: those that the optimizer was built with.
        grad_loss: The upstream gradient with respect to `loss`. Default: one.
        tape: A tape that has recorded `loss`, to use instead of the graph.

    Returns:
        `(gradient, variable)` in the order of `var_list`; the gradient is None if `loss` does not depend on the

    Raises:
        ValueError: If there is no list of variables.
        SMPUsageError: If called eagerly without a tape or a callable.
    """
    if callable(loss):
        tape = tape or tf.GradientTape()
        with tape:
            loss = loss()
    variables = tf.nest.flatten(var_list() if callable(var_list) else _variables_of(optimizer, var_list))
    if tape is None:
        caller = f"{type(optimizer).__name__}.compute_gradients"
        found = symbolic_gradients(loss, variables, grad_loss, caller=caller)
    else:
        sources = [_tf_variable(variable) for variable in variables]
        found = tape.gradient(loss, sources, grad_loss)
    return list(zip(found, variables, strict=True))


def symbolic_gradients(
    loss: Any, variables: Sequence[Variable], grad_loss: Tensor | None = None, *, caller: str
) -> list[Any]:
    """Differentiate in the graph under construction.

    Args:
        loss: A tensor of that graph.
        variables: Variables of TensorFlow or Keras.
        grad_loss: As for `compute_gradients`.
        caller: Name of the caller for error messages.

    Returns:
        One gradient per variable; None if `loss` does not depend on it.
    """
    if tf.executing_eagerly():
        raise SMPUsageError(
            f"{caller} works on a graph: call it inside a function decorated with @smp.step (or @tf.function), "
            "or record the loss with tf.GradientTape"
        )
    sources = [_tf_variable(variable) for variable in variables]
    grads = tf.gradients(loss, sources, None if grad_loss is None else [grad_loss])
    return [tag_gradient(gradient, source) for gradient, source in zip(grads, sources, strict=True)]


def patches(keras: ModuleType) -> list[Patch]:
    """Return the patches for Keras 3."""
    optimizer = keras.optimizers.Optimizer
    return [Patch(optimizer, "get_gradients", get_gradients), Patch(optimizer, "compute_gradients", compute_gradients)]


def patches_of_keras_2(keras: ModuleType) -> list[Patch]:
    """Return the patches for Keras 2, whose two families of optimizers each have one of the methods."""
    optimizer, legacy = keras.optimizers.Optimizer, keras.optimizers.legacy.Optimizer
    return [
        Patch(optimizer, "get_gradients", get_gradients),
        Patch(optimizer, "compute_gradients", _or_original(optimizer.compute_gradients)),
        Patch(legacy, "get_gradients", get_gradients),
        Patch(legacy, "compute_gradients", compute_gradients),
    ]


def _or_original(original: Callable[..., Any]) -> Callable[..., Any]:
    # The method of Keras 2 does not clip either, but requires a tape if the loss is a tensor. It still serves the
    # other cases, on which subclasses such as the one for loss scaling rely.
    def compute_gradients_of_tensor(
        self: object, loss: Any, var_list: object = None, *args: object, **kwargs: Any
    ) -> list[tuple[Gradient | None, Variable]]:
        if callable(loss) or args or kwargs.get("tape") is not None:
            return original(self, loss, var_list, *args, **kwargs)
        return compute_gradients(self, loss, var_list, kwargs.get("grad_loss"))

    return compute_gradients_of_tensor


def _variables_of(optimizer: object, var_list: object) -> object:
    if var_list is not None:
        return var_list
    known = getattr(optimizer, "_trainable_variables", None)
    if not known:
        raise ValueError(
            "compute_gradients: var_list is missing, and the optimizer has not been built with any variables yet: "
            "pass var_list=model.trainable_variables"
        )
    return known


def _tf_variable(variable: Any) -> Variable:
    # A Keras 3 variable is not a tf.Variable, but contains one.
    return variable if isinstance(variable, tf.Variable) else getattr(variable, "value", variable)


def _name(variable: object) -> str:
    return repr(getattr(variable, "path", None) or getattr(variable, "name", variable))
