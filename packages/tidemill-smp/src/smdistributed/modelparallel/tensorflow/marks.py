"""Records during tracing to which unit of the model each op belongs.

A *unit* is the smallest piece that is placed: with manual placement a partition, with automatic partitioning a layer or
the glue between layers. While a step is traced there is one `Tracer`; every op created in its graph is assigned to the
current unit. The hooks of `hooks` do the same for the ops of the backward pass.
"""

import re
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import (
    GraphOperation,
    KerasLayer,
    KerasModel,
    Tensor,
)
from tensorflow.python.framework import func_graph

REPLICATED = "replicated"
"""The unit of replicated ops, which every rank computes."""

_SCOPE = re.compile(r"smp_unit_(\d+)_")
_ANY_SCOPE = re.compile(r"smp_unit_\d+_[_\d]*(/|$)")
_LAST_SCOPE = re.compile(r"/?smp_unit_\d+_$")
_local = threading.local()


class SmpModel(KerasModel, Protocol):
    """A distributed model: what the layers below `model` use of `DistributedModel`."""

    _smp_rules: Mapping[Any, int] | None

    def _smp_plain(self) -> KerasModel: ...


@dataclass
class Tracer:
    """State of one trace."""

    unit: str | None = None
    """Unit of ops that are created now; None outside the model."""
    units: dict[str, str] = field(default_factory=dict)
    """Op name -> unit."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Name of the op that outputs a component of a variable's gradient -> the variable's handle in the graph."""
    models: list[SmpModel] = field(default_factory=list)
    """The distributed models called in this trace, each once."""
    automatic: bool = False
    """Whether layers are the units (automatic partitioning), and not the partitions of `smp.partition`."""
    layers: list[Any] = field(default_factory=list)
    """Containers whose calls are in progress, innermost last (automatic partitioning)."""

    paths: dict[int, str] = field(default_factory=dict)
    """id of a layer -> its path in this trace."""
    calls: dict[str, int] = field(default_factory=dict)
    """Path of a container -> the number of its next glue, for containers that are called several times."""
    outputs: list[str] = field(default_factory=list)
    """Names of the tensors that the models return."""
    scopes: list[str] = field(default_factory=list)
    """Units, indexed by the number in their name scope."""
    sums: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """A number of this microbatch, and the placeholder of its sum over the whole batch (see `batch_sums`)."""

    @contextmanager
    def marking(self, unit: str | None) -> Generator[None]:
        """Assign the ops created inside this context to `unit`, under a name scope that identifies the unit.

        Args:
            unit: Name of the unit; None for the ops outside of all.
        """
        before = self.unit
        self.unit = unit
        try:
            with nullcontext() if unit is None else tf.name_scope(self._scope(unit)):
                yield
        finally:
            self.unit = before

    def go_on_in(self, unit: str) -> None:
        """Assign the ops created from now on to `unit`, until the enclosing marking ends.

        Args:
            unit: Name of the unit.
        """
        self.unit = unit
        graph = tf.compat.v1.get_default_graph()
        # The scope of the unit is replaced, not nested: a model calls hundreds of layers one after the other.
        kept = _LAST_SCOPE.sub("", graph._name_stack)
        graph._name_stack = f"{kept}/{self._scope(unit)}" if kept else self._scope(unit)

    def path_of(self, layer: KerasLayer, parent: str) -> str:
        """Return the path of a layer, unique in this trace and the same for each call of the layer."""
        if id(layer) not in self.paths:
            name, number = f"{parent}/{layer.name}", 1
            while name in self.paths.values():
                number += 1
                name = f"{parent}/{layer.name}_{number}"
            self.paths[id(layer)] = name
        return self.paths[id(layer)]

    def unit_of_scope(self, name_scope: str | None) -> str | None:
        """Return the innermost unit that a name scope identifies, if any.

        Args:
            name_scope: A name scope, or None.
        """
        found = _SCOPE.findall(name_scope or "")
        return self.scopes[int(found[-1])] if found else None

    def _scope(self, unit: str) -> str:
        if unit not in self.scopes:
            self.scopes.append(unit)
        return f"smp_unit_{self.scopes.index(unit)}_"


def plain_scope(name_scope: str) -> str:
    """Return a name scope without the parts that this library added.

    Args:
        name_scope: For example of an op's name.
    """
    return _ANY_SCOPE.sub("", name_scope).rstrip("/")


def tracer() -> Tracer | None:
    """Return the tracer of the step that this thread is tracing, if any."""
    return getattr(_local, "tracer", None)


@contextmanager
def tracing(new: Tracer) -> Generator[Tracer]:
    """Make `new` the tracer of this thread inside this context."""
    _local.tracer = new
    try:
        yield new
    finally:
        _local.tracer = None


class MarkingGraph(func_graph.FuncGraph):
    """A function's graph that reports each new op to its tracer.

    Only ops of this graph are reported. Bodies of loops and branches are separate graphs: a loop or conditional is
    placed as a whole.
    """

    def __init__(self, name: str, *, tracer: Tracer, **options: object) -> None:
        super().__init__(name, **options)
        self._tracer = tracer

    def _create_op_internal(self, *args: object, **kwargs: Any) -> GraphOperation:
        op = super()._create_op_internal(*args, **kwargs)
        # tf.gradients sets `_default_original_op` to the forward op whose gradient it is creating.
        forward = self._default_original_op
        unit = self._tracer.units.get(forward.name) if forward is not None else self._tracer.unit
        if unit is not None and op.graph is self:
            self._tracer.units.setdefault(op.name, unit)
        return op
