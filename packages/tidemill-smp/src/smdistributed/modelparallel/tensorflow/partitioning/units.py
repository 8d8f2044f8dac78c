"""The graph to partition: the units of a model, their costs, and the tensors between them.

A *unit* is the smallest piece that is placed: one leaf layer, or the ops between two layer calls (glue). The engine
builds the graph of units from one traced step; this package does not import TensorFlow. Everything derived from a graph
(cut, report, file) is a pure function of it, so ranks with equal graphs compute equal results. Measured times differ
between ranks: measure on one rank, and send its graph to the others.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError

FORMAT = 1
_AMOUNTS = ("forward_us", "backward_us", "parameter_bytes", "slot_bytes", "activation_bytes", "op_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One leaf layer, or one piece of glue. Costs are per microbatch, bytes of variables are per model."""

    name: str
    """Unique in its graph, and the same in every trace of the same model."""
    layer_path: str = ""
    """Path of the layer, such as `encoder/block_1/dense`; empty for glue."""
    forward_us: float = 0.0
    backward_us: float = 0.0
    parameter_bytes: int = 0
    """Bytes of the variables charged to this unit. A variable that several units use is charged to the first."""
    slot_bytes: int = 0
    """Bytes of optimizer slots and accumulated gradients of those variables."""
    activation_bytes: int = 0
    """Bytes that one microbatch keeps from its forward to its backward pass."""
    op_count: int = 0
    variable_count: int = 0
    variables: frozenset[str] = frozenset()
    """Names of all variables that the unit uses; units that share a variable are placed together."""
    colocation: frozenset[str] = frozenset()
    """Names of colocation groups; units that share a group are placed together."""

    @property
    def time_us(self) -> float:
        """Time of forward and backward pass, in microseconds."""
        return self.forward_us + self.backward_us


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor that one unit produces and another consumes; its gradient flows back and has the same size."""

    source: str
    target: str
    bytes: int
    """Size of the tensor for one microbatch."""
    tensor: str = ""
    """Name of the result of the source. Edges of equal source and tensor cost one message per receiving partition."""


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """A result of the model, broadcast to all ranks: each rank computes the loss and its gradient."""

    unit: str
    bytes: int


@dataclass(frozen=True)
class UnitGraph:
    """Units in a topological order, the tensors between them, and the model's outputs.

    Raises:
        SMPPartitionError: If names repeat or are unknown, an edge points backwards, or a cost is negative or infinite.
    """

    units: tuple[Unit, ...]
    edges: tuple[Edge, ...] = ()
    outputs: tuple[ModelOutput, ...] = ()
    loss_us: float = 0.0
    """Time of loss and metrics of one microbatch, charged to the last partition, for whose end the step waits."""

    def __post_init__(self) -> None:
        index = {unit.name: i for i, unit in enumerate(self.units)}
        if len(index) != len(self.units):
            repeated = next(unit.name for i, unit in enumerate(self.units) if index[unit.name] != i)
            raise SMPPartitionError(f"unit {repeated!r} is in the graph twice: names of units must be unique")
        for unit in self.units:
            for field in _AMOUNTS:
                _check_amount(getattr(unit, field), f"{field} of unit {unit.name!r}")
        _check_amount(self.loss_us, "loss_us")
        for edge in self.edges:
            where = f"edge {edge.source!r} -> {edge.target!r}"
            for end in (edge.source, edge.target):
                if end not in index:
                    raise SMPPartitionError(f"{where}: there is no unit {end!r}")
            if index[edge.source] >= index[edge.target]:
                raise SMPPartitionError(f"{where} points backwards: give the units in a topological order")
            _check_amount(edge.bytes, f"bytes of {where}")
        for output in self.outputs:
            if output.unit not in index:
                raise SMPPartitionError(f"output: there is no unit {output.unit!r}")
            _check_amount(output.bytes, f"bytes of output {output.unit!r}")

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each unit in `units`, by name."""
        return {unit.name: i for i, unit in enumerate(self.units)}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON with costs; graphs with equal hashes are cut equally."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @cached_property
    def structure_hash(self) -> str:
        """SHA-256 of names, variables and edges without costs: unchanged if only times or sizes change."""
        return hashlib.sha256(_canonical([shape for _, shape in self.structure()]).encode()).hexdigest()

    def structure(self) -> Iterator[tuple[Unit, dict[str, Any]]]:
        """Yield each unit with a record of its name, its variables and the sources of its inputs."""
        inputs: dict[str, set[tuple[str, str]]] = {unit.name: set() for unit in self.units}
        for edge in self.edges:
            inputs[edge.target].add((edge.source, edge.tensor))
        for unit in self.units:
            yield (
                unit,
                {
                    "name": unit.name,
                    "inputs": [list(source) for source in sorted(inputs[unit.name])],
                    "variables": sorted(unit.variables),
                },
            )

    def to_json(self) -> str:
        """Return canonical JSON: byte-equal for equal graphs, regardless of the order of edges and sets."""
        return _canonical(
            {
                "format": FORMAT,
                "units": [_unit_record(unit) for unit in self.units],
                "edges": sorted([e.source, e.target, e.tensor, e.bytes] for e in self.edges),
                "outputs": sorted([o.unit, o.bytes] for o in self.outputs),
                "loss_us": float(self.loss_us),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> UnitGraph:
        """Return the graph that `to_json` serialized.

        Raises:
            SMPPartitionError: If the text is not such a graph.
        """
        try:
            record = json.loads(text)
            if record["format"] != FORMAT:
                raise SMPPartitionError(f"graph of units: format {record['format']!r} is unknown, expected {FORMAT}")
            return cls(
                units=tuple(_unit(fields) for fields in record["units"]),
                edges=tuple(Edge(source, target, size, tensor) for source, target, tensor, size in record["edges"]),
                outputs=tuple(ModelOutput(unit, size) for unit, size in record["outputs"]),
                loss_us=record["loss_us"],
            )
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise SMPPartitionError(f"graph of units: not readable ({type(error).__name__}: {error})") from error
        except ValueError as error:
            if isinstance(error, SMPPartitionError):
                raise
            raise SMPPartitionError(f"graph of units: not readable ({error})") from error


def _check_amount(value: float, what: str) -> None:
    if not math.isfinite(value) or value < 0:
        raise SMPPartitionError(f"{what} is {value!r}: expected a finite number, 0 or more")


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _unit_record(unit: Unit) -> dict[str, Any]:
    return {
        "name": unit.name,
        "layer_path": unit.layer_path,
        "forward_us": float(unit.forward_us),
        "backward_us": float(unit.backward_us),
        "parameter_bytes": unit.parameter_bytes,
        "slot_bytes": unit.slot_bytes,
        "activation_bytes": unit.activation_bytes,
        "op_count": unit.op_count,
        "variable_count": unit.variable_count,
        "variables": _sorted(unit.variables),
        "colocation": _sorted(unit.colocation),
    }


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names)


def _unit(fields: dict[str, Any]) -> Unit:
    names: dict[str, Any] = {field: frozenset(fields[field]) for field in ("variables", "colocation")}
    return Unit(**{**fields, **names})
