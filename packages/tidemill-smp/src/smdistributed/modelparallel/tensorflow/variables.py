"""Variables that take memory on one rank only.

When a step is traced for the first time, the model builds its layers. Their variables are created without memory, and
their initializers are kept. Once the plan assigns variables to ranks, each rank initializes its own. A variable of
another rank becomes a `RemoteVariable`, which supports tracing and nothing else.
"""

import functools
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPRemoteVariableError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import GraphOperation, KerasModel, Tensor, Variable
from smdistributed.modelparallel.tensorflow.keras_api import (
    creating_without_memory,
    layers_of,
    seeds_of,
    tensorflow_variable,
    tracked_variables,
    without_memory,
)
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.patch import Patch
from tensorflow.python.ops import resource_variable_ops

__all__ = [
    "Deferred",
    "RemoteValues",
    "RemoteVariable",
    "dropping_remote_values",
    "is_remote",
    "is_traced_whole",
    "make_remote",
    "owner_of",
    "reading_remote",
    "seeds_among",
    "tensorflow_variable",
    "variables_of",
    "without_memory",
]


class RemoteVariable(resource_variable_ops.BaseResourceVariable):
    """A variable that another rank holds: on this rank it has a name, a shape and a dtype, but no value."""

    _smp_owner: str

    def _refuse(self, what: str) -> NoReturn:
        raise SMPRemoteVariableError(
            f"cannot {what} {self.name} (shape {self.shape}, {self.dtype.name}) here: it is held by {self._smp_owner}. "
            "smp.local_variables(model) lists the variables of this rank; save with smp.CheckpointManager or "
            "model.save_model, which collect from all ranks"
        )

    def _can_be_traced(self) -> bool:
        return tracer() is not None or is_traced_whole()

    def _read_variable_op(self, *args: object, **kwargs: object) -> Tensor:
        if self._can_be_traced():
            return super()._read_variable_op(*args, **kwargs)
        values = _remote_values()
        if values is None:
            self._refuse("read")
        return values.value(self)

    def sparse_read(self, *args: object, **kwargs: object) -> Tensor:
        if not self._can_be_traced():
            self._refuse("read")
        return super().sparse_read(*args, **kwargs)

    def gather_nd(self, *args: object, **kwargs: object) -> Tensor:
        if not self._can_be_traced():
            self._refuse("read")
        return super().gather_nd(*args, **kwargs)

    def _serialize_to_tensors(self) -> dict[str, Tensor]:
        values = _remote_values()
        if values is None:
            self._refuse("save")
        return values.tensors(self)

    def _restore_from_tensors(self, restored_tensors: object) -> GraphOperation:
        if not _is_dropping():
            self._refuse("restore")
        return tf.no_op()

    def __repr__(self) -> str:
        return f"<RemoteVariable {self.name} shape={self.shape} dtype={self.dtype.name}, held by {self._smp_owner}>"


def _refusing(name: str) -> Callable[..., Any]:
    original = getattr(resource_variable_ops.BaseResourceVariable, name)

    def method(self: RemoteVariable, *args: object, **kwargs: object) -> Any:
        if _is_dropping():
            return None
        if not self._can_be_traced():
            self._refuse("assign to")
        return original(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in dir(resource_variable_ops.BaseResourceVariable):
    if _name.startswith(("assign", "scatter_", "batch_scatter_")):
        setattr(RemoteVariable, _name, _refusing(_name))


_local = threading.local()


@contextmanager
def dropping_remote_values() -> Generator[None]:
    """Ignore assignments to remote variables inside, so that every rank can load the weights of a whole model."""
    with Patch(_local, "dropping", True):
        yield


def _is_dropping() -> bool:
    return getattr(_local, "dropping", False)


class RemoteValues(Protocol):
    """Provides values of remote variables while a whole model is saved."""

    def value(self, variable: RemoteVariable) -> Tensor:
        """Return the value as a tensor."""

    def tensors(self, variable: RemoteVariable) -> dict[str, Tensor]:
        """Return the tensors to write to a checkpoint."""


@contextmanager
def reading_remote(values: RemoteValues) -> Generator[None]:
    """Read remote variables through `values` inside this context, also in graphs that are built inside.

    Args:
        values: Where the values come from.
    """
    with Patch(_local, "remote_values", values):
        yield


def is_traced_whole() -> bool:
    """Return whether the graph of a whole model is being traced in order to save it."""
    return _remote_values() is not None and not tf.executing_eagerly()


def _remote_values() -> RemoteValues | None:
    return getattr(_local, "remote_values", None)


def is_remote(variable: object) -> bool:
    """Return whether another rank holds `variable`, a tf.Variable or a Keras variable.

    Args:
        variable: Of Keras or TensorFlow.
    """
    return isinstance(tensorflow_variable(variable), RemoteVariable)


def owner_of(variable: Variable) -> str:
    """Return what messages call the rank that holds a variable of another rank."""
    owner: str = tensorflow_variable(variable)._smp_owner
    return owner


def make_remote(variable: Any, owner: str) -> None:
    """Turn `variable` into a variable of another rank, and free its memory.

    Args:
        variable: A tf.Variable or a Keras variable.
        owner: Name of the rank that holds the variable, for error messages.
    """
    inner = tensorflow_variable(variable)
    if isinstance(inner, RemoteVariable):
        return
    empty = without_memory(inner.shape, inner.dtype, inner.name.split(":")[0], trainable=inner.trainable)
    inner._handle = empty.handle
    inner._smp_handle_keeper = empty
    inner.__class__ = _remote_kind(type(inner))
    inner._smp_owner = owner


@functools.cache
def _remote_kind(kind: type) -> type:
    """Return a remote subclass of `kind`: TensorFlow checks the class, and the graphs of all ranks must be equal."""
    return type(RemoteVariable.__name__, (RemoteVariable, kind), {})


@dataclass
class Deferred:
    """Variables created while the model was built, with their initializers."""

    waiting: list[tuple[Any, Callable[[], Any]]] = field(default_factory=list)
    """(Keras variable, function that computes its initial value)."""

    @contextmanager
    def collecting(self) -> Generator[None]:
        """Create the weights of layers without memory inside this context."""
        with creating_without_memory(lambda variable, initial: self.waiting.append((variable, initial))):
            yield

    def values(self) -> dict[int, Any]:
        """Compute the initial values, once and in the order of creation, and return them by the id of the handle.

        The variables remain without values. An initializer may draw numbers from a state of its own, so that
        `initialize` uses these values.
        """
        found = {}
        with tf.init_scope():
            for place, (variable, initial) in enumerate(self.waiting):
                inner = tensorflow_variable(variable)
                value = tf.cast(initial(), inner.dtype)
                self.waiting[place] = (variable, lambda value=value: value)
                found[id(inner.handle)] = value
        return found

    def initialize(self, is_here: Callable[[Any], bool]) -> None:
        """Initialize the variables for which `is_here` returns True, in the order of their creation.

        Args:
            is_here: Gets a variable; whether this rank holds it.
        """
        waiting = self.waiting.copy()
        self.waiting.clear()
        with tf.init_scope():
            for variable, initial in waiting:
                if is_here(variable):
                    inner = tensorflow_variable(variable)
                    inner.assign(tf.cast(initial(), inner.dtype))


def variables_of(models: Iterable[KerasModel]) -> list[Variable]:
    """Return all variables that the models track, each once, as tf.Variables.

    Args:
        models: Models or layers.
    """
    found: dict[int, Any] = {}
    for model in models:
        for variable in tracked_variables(model):
            found.setdefault(id(variable), variable)
    return list(found.values())


def seeds_among(models: Iterable[KerasModel]) -> set[int]:
    """Return the ids of the generator-state tf.Variables of random layers in the models.

    Args:
        models: Models or layers.
    """
    layers = (layer for model in models for layer in (model, *layers_of(model)))
    return {id(tensorflow_variable(seed)) for layer in layers for seed in seeds_of(layer)}
