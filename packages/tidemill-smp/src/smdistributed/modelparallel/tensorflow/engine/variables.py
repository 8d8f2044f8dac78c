"""Variables that take memory on one rank only.

While a step is traced for the first time the model builds its layers; their variables are created without memory and
their initializers kept. When the plan tells who holds what, this rank initializes its own. A variable of another rank
becomes a `ForeignVariable`: it can be traced, and nothing else.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPForeignVariableError
from smdistributed.modelparallel.tensorflow.keras_api import (
    creating_without_memory,
    layers_of,
    seeds_of,
    tensorflow_variable,
    tracked_variables,
    without_memory,
)
from smdistributed.modelparallel.tensorflow.marks import tracer
from tensorflow.python.ops import resource_variable_ops

__all__ = [
    "Deferred",
    "ForeignVariable",
    "StandIn",
    "dropping_foreign_values",
    "is_foreign",
    "is_traced_whole",
    "make_foreign",
    "seeds_among",
    "standing_in",
    "tensorflow_variable",
    "variables_of",
    "without_memory",
]


class ForeignVariable(resource_variable_ops.BaseResourceVariable):
    """A variable that another rank holds: here it has a name, a shape and a dtype, but no value."""

    _smp_owner: str

    def _refuse(self, what: str) -> NoReturn:
        raise SMPForeignVariableError(
            f"cannot {what} {self.name} (shape {self.shape}, {self.dtype.name}) here: it is held by {self._smp_owner}. "
            "smp.local_variables(model) lists what this rank holds; save with smp.CheckpointManager or "
            "model.save_model, which collect from all ranks"
        )

    def _can_be_traced(self) -> bool:
        return tracer() is not None or is_traced_whole()

    def _read_variable_op(self, *args: Any, **kwargs: Any) -> Any:
        if self._can_be_traced():
            return super()._read_variable_op(*args, **kwargs)
        stand_in = _stand_in()
        if stand_in is None:
            self._refuse("read")
        return stand_in.value(self)

    def sparse_read(self, *args: Any, **kwargs: Any) -> Any:
        if not self._can_be_traced():
            self._refuse("read")
        return super().sparse_read(*args, **kwargs)

    def gather_nd(self, *args: Any, **kwargs: Any) -> Any:
        if not self._can_be_traced():
            self._refuse("read")
        return super().gather_nd(*args, **kwargs)

    def _serialize_to_tensors(self) -> Any:
        stand_in = _stand_in()
        if stand_in is None:
            self._refuse("save")
        return stand_in.tensors(self)

    def _restore_from_tensors(self, restored_tensors: Any) -> Any:
        if not _is_dropping():
            self._refuse("restore")
        return tf.no_op()

    def __repr__(self) -> str:
        return f"<ForeignVariable {self.name} shape={self.shape} dtype={self.dtype.name}, held by {self._smp_owner}>"


def _refusing(name: str) -> Callable[..., Any]:
    original = getattr(resource_variable_ops.BaseResourceVariable, name)

    def method(self: ForeignVariable, *args: Any, **kwargs: Any) -> Any:
        if _is_dropping():
            return None
        if not self._can_be_traced():
            self._refuse("assign to")
        return original(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in dir(resource_variable_ops.BaseResourceVariable):
    if _name.startswith(("assign", "scatter_", "batch_scatter_")):
        setattr(ForeignVariable, _name, _refusing(_name))


_local = threading.local()


@contextmanager
def dropping_foreign_values() -> Iterator[None]:
    """Drop what is assigned to foreign variables inside: for loading a whole model's weights on every rank."""
    before = _is_dropping()
    _local.dropping = True
    try:
        yield
    finally:
        _local.dropping = before


def _is_dropping() -> bool:
    return getattr(_local, "dropping", False)


class StandIn(Protocol):
    """What foreign variables answer with where a whole model is saved, instead of refusing."""

    def value(self, variable: ForeignVariable) -> Any:
        """The value, as a tensor."""
        ...

    def tensors(self, variable: ForeignVariable) -> dict[str, Any]:
        """What is written to a checkpoint."""
        ...


@contextmanager
def standing_in(stand_in: StandIn) -> Iterator[None]:
    """Let `stand_in` answer for foreign variables inside; graphs made inside may read them."""
    before = _stand_in()
    _local.stand_in = stand_in
    try:
        yield
    finally:
        _local.stand_in = before


def is_traced_whole() -> bool:
    """Whether a graph of whole models is being made, to be saved."""
    return _stand_in() is not None and not tf.executing_eagerly()


def _stand_in() -> StandIn | None:
    return getattr(_local, "stand_in", None)


def is_foreign(variable: Any) -> bool:
    """Whether another rank holds `variable`, a tf.Variable or a Keras variable."""
    return isinstance(tensorflow_variable(variable), ForeignVariable)


def make_foreign(variable: Any, owner: str) -> None:
    """Let go of the memory of `variable`; from now on it is another rank's.

    Args:
        variable: A tf.Variable or a Keras variable.
        owner: Who holds it, for error messages.
    """
    inner = tensorflow_variable(variable)
    if isinstance(inner, ForeignVariable):
        return
    empty = without_memory(inner.shape, inner.dtype, inner.name.split(":")[0], trainable=inner.trainable)
    inner._handle = empty._handle
    inner._smp_handle_keeper = empty
    inner.__class__ = _foreign_kind(type(inner))
    inner._smp_owner = owner


@functools.cache
def _foreign_kind(kind: type) -> type:
    """The class of foreign variables that stay of a kind: TensorFlow asks, and graphs of all ranks must be alike."""
    return type(ForeignVariable.__name__, (ForeignVariable, kind), {})


@dataclass
class Deferred:
    """Variables created while the model was built, with what will initialize them."""

    waiting: list[tuple[Any, Callable[[], Any]]] = field(default_factory=list)
    """(variable of Keras, what computes its initial value)."""

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Create the weights of layers without memory inside."""
        with creating_without_memory(lambda variable, initial: self.waiting.append((variable, initial))):
            yield

    def initialize(self, is_here: Callable[[Any], bool]) -> None:
        """Give a value to those that are held here, in the order in which they were created."""
        waiting = self.waiting.copy()
        self.waiting.clear()
        with tf.init_scope():
            for variable, initial in waiting:
                if is_here(variable):
                    inner = tensorflow_variable(variable)
                    inner.assign(tf.cast(initial(), inner.dtype))


def variables_of(models: Iterable[Any]) -> list[Any]:
    """All variables that the models track, each once, as tf.Variables."""
    found: dict[int, Any] = {}
    for model in models:
        for variable in tracked_variables(model):
            found.setdefault(id(variable), variable)
    return list(found.values())


def seeds_among(models: Iterable[Any]) -> set[int]:
    """The ids of the tf.Variables from which random layers of the models draw."""
    layers = (layer for model in models for layer in (model, *layers_of(model)))
    return {id(tensorflow_variable(seed)) for layer in layers for seed in seeds_of(layer)}
