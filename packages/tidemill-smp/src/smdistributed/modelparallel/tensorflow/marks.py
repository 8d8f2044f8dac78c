"""Which part of the model an op belongs to: remembered while the step is traced.

A *unit* is the smallest thing that is placed: with manual partitioning it is a partition, with automatic partitioning
a layer or a piece of glue between layers. While a step is traced there is one `Tracer`; every op created in its graph
gets the unit that is current then, and so do the ops of the backward pass, by the hooks of `hooks`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import func_graph

__all__ = ["EVERYWHERE", "MarkingGraph", "Tracer", "plain_scope", "tracer", "tracing"]

EVERYWHERE = "everywhere"
"""The unit of ops that every rank computes for itself."""

_SCOPE = re.compile(r"smp_unit_(\d+)_")
_ANY_SCOPE = re.compile(r"smp_unit_\d+_[_\d]*(/|$)")
_LAST_SCOPE = re.compile(r"/?smp_unit_\d+_$")
_local = threading.local()


@dataclass
class Tracer:
    """What is remembered of one trace."""

    unit: str | None = None
    """The unit of the ops that are created now; None outside the model."""
    units: dict[str, str] = field(default_factory=dict)
    """Op name -> unit."""
    gradients: dict[str, Any] = field(default_factory=dict)
    """Name of the op that carries a component of a variable's gradient -> the variable's handle in the graph."""
    models: list[Any] = field(default_factory=list)
    """The distributed models called in this trace, each once."""
    automatic: bool = False
    """Whether layers are units (automatic partitioning) or `smp.partition` says so."""
    layers: list[Any] = field(default_factory=list)
    """The containers being called now, innermost last (automatic partitioning)."""

    paths: dict[int, str] = field(default_factory=dict)
    """id of a layer -> its path, while it is traced."""
    calls: dict[str, int] = field(default_factory=dict)
    """Path of a container -> the number of its next glue, for containers that are called several times."""
    outputs: list[str] = field(default_factory=list)
    """Names of the tensors that the models return."""
    scopes: list[str] = field(default_factory=list)
    """The units by the number that stands in their name scope."""

    @contextmanager
    def marking(self, unit: str | None) -> Iterator[None]:
        """Put the ops created inside into `unit`, under a name scope that tells it too."""
        before = self.unit
        self.unit = unit
        try:
            with nullcontext() if unit is None else tf.name_scope(self._scope(unit)):
                yield
        finally:
            self.unit = before

    def go_on_in(self, unit: str) -> None:
        """Put what is created from here on into `unit`, until the marking around ends."""
        self.unit = unit
        graph = tf.compat.v1.get_default_graph()
        # The scope that tells the unit is replaced, not nested: a model calls hundreds of layers one after the other.
        kept = _LAST_SCOPE.sub("", graph._name_stack)
        graph._name_stack = f"{kept}/{self._scope(unit)}" if kept else self._scope(unit)

    def path_of(self, layer: Any, parent: str) -> str:
        """The name of a layer: the same for each call of it, unlike that of any other layer."""
        if id(layer) not in self.paths:
            name, number = f"{parent}/{layer.name}", 1
            while name in self.paths.values():
                number += 1
                name = f"{parent}/{layer.name}_{number}"
            self.paths[id(layer)] = name
        return self.paths[id(layer)]

    def unit_of_scope(self, name_scope: str | None) -> str | None:
        """The unit that a name scope tells, the innermost one."""
        found = _SCOPE.findall(name_scope or "")
        return self.scopes[int(found[-1])] if found else None

    def _scope(self, unit: str) -> str:
        if unit not in self.scopes:
            self.scopes.append(unit)
        return f"smp_unit_{self.scopes.index(unit)}_"


def plain_scope(name_scope: str) -> str:
    """A name scope as it would be without the library."""
    return _ANY_SCOPE.sub("", name_scope).rstrip("/")


def tracer() -> Tracer | None:
    """The tracer of the step that this thread is tracing, if any."""
    return getattr(_local, "tracer", None)


@contextmanager
def tracing(new: Tracer) -> Iterator[Tracer]:
    """Make `new` the tracer of this thread."""
    _local.tracer = new
    try:
        yield new
    finally:
        _local.tracer = None


class MarkingGraph(func_graph.FuncGraph):
    """A function's graph that tells its tracer the unit of each op.

    Only ops of this very graph count. Bodies of loops and branches are graphs of their own: a loop or a conditional is
    placed whole.
    """

    def __init__(self, name: str, *, tracer: Tracer, **options: Any) -> None:
        super().__init__(name, **options)
        self._tracer = tracer

    def _create_op_internal(self, *args: Any, **kwargs: Any) -> Any:
        op = super()._create_op_internal(*args, **kwargs)
        # tf.gradients says of which forward op the ops it creates are the gradient.
        forward = self._default_original_op
        unit = self._tracer.units.get(forward.name) if forward is not None else self._tracer.unit
        if unit is not None and op.graph is self:
            self._tracer.units.setdefault(op.name, unit)
        return op
