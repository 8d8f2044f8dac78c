"""The signatures of a SavedModel: those that can be served, and the reasons why others cannot.

A signature names tensors of the graph, and repeats their types and shapes. Some exporters repeat them wrongly, e.g. as
float for a string of serialized examples. So the types and shapes are those of the loaded graph.

A signature is served if all its inputs and outputs are dense tensors of types that NumPy has; if one of them is
complex, only through gRPC. For any other signature, the reason is logged when the model is loaded, and returned to
callers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidemill_serving.engine.base import Signature, TensorSpec
from tidemill_serving.engine.element_types import advice, element_type, short_name
from tidemill_serving.engine.traits import Traits, traits_of
from tidemill_serving.engine.variables import INIT_SIGNATURE, Variables
from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import StartFailed

_RAGGED = (
    "is a ragged tensor; export a signature that {verb} a dense one (RaggedTensor.to_tensor pads it), or its flat"
    " values and row splits as two tensors"
)
_SPARSE = (
    "is a sparse tensor; export a signature that {verb} a dense one (tf.sparse.to_dense), or its indices, values and"
    " dense shape as three tensors"
)
_COMPOSITE = "is a composite tensor ({kind}); export a signature that {verb} its parts as plain tensors"
_UNRESTORED = (
    "the variables {names} have no value after the model is loaded; save a model of Keras 3 by model.export(DIRECTORY)"
    " instead of tf.saved_model.save, and any other one with its variables as attributes of the saved object"
)
_LISTED_VARIABLES = 3
_VERBS = {"input": "takes", "output": "returns"}


@dataclass(frozen=True, slots=True)
class GraphTensor:
    """A tensor of a loaded graph.

    Attributes:
        type_number: Its type's number in DataType.
        shape: Dimensions, -1 for unknown ones; None if the rank is unknown.
    """

    type_number: int
    shape: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a SavedModel.

    Attributes:
        served: Signatures that can be served, by key.
        unusable: Reasons why the remaining signatures cannot be served, by key.
        definitions: All SignatureDef messages, by key. They are copies, so that the parsed file can be freed.
    """

    served: Mapping[str, Signature]
    unusable: Mapping[str, str]
    definitions: Mapping[str, Any]


class _CannotServe(Exception):
    """A signature cannot be served; the message says why."""


class _WithoutValue(_CannotServe):
    """A signature reads variables without a value, so that each call would fail."""


class LoadedGraph(Protocol):
    """The graph of a SavedModel that TensorFlow has loaded."""

    def tensor(self, name: str) -> GraphTensor | None:
        """Return a tensor by its name, or None if there is none.

        Args:
            name: ``OPERATION:INDEX``.
        """

    def definition(self, operation: str) -> Any | None:
        """Return the OpDef of an operation by its name, or None if it is not known.

        Args:
            operation: Name of the kind, e.g. ``MatMul``.
        """


def signatures_of(path: Path, meta_graph: Any, loaded: LoadedGraph, *, wheel: Wheel) -> Signatures:
    """Read the signatures of a graph.

    Args:
        path: Directory of the SavedModel, for errors.
        meta_graph: Its MetaGraphDef.
        loaded: The graph that TensorFlow made of it.
        wheel: The messages of TensorFlow.

    Raises:
        StartFailed: No signature can be served, because of variables without a value.
    """
    variables = Variables(meta_graph)

    def traits(definition: Any, outputs: Sequence[str]) -> Traits:
        without_value = variables.unrestored(definition)
        if without_value:
            raise _WithoutValue(_UNRESTORED.format(names=_listed(without_value)))
        return traits_of(outputs, meta_graph.graph_def, definition=loaded.definition)

    definitions = {key: each for key, each in meta_graph.signature_def.items() if key != INIT_SIGNATURE}
    served: dict[str, Signature] = {}
    unusable: dict[str, str] = {}
    broken = False
    for key in sorted(definitions):
        try:
            served[key] = _signature(key, definitions[key], loaded.tensor, wheel=wheel, traits=traits)
        except _CannotServe as reason:
            unusable[key] = str(reason)
            broken = broken or isinstance(reason, _WithoutValue)
    if broken and not served:
        raise StartFailed(
            f"{path} cannot be served: " + "; ".join(f"{reason} (signature {key})" for key, reason in unusable.items())
        )
    return Signatures(served, unusable, {key: _copy(each) for key, each in meta_graph.signature_def.items()})


def signature_or_reason(
    key: str, definition: Any, tensor: Callable[[str], GraphTensor | None], *, wheel: Wheel, traits: Traits
) -> Signature | str:
    """Return a signature whose runs have known traits, or the reason why it cannot be served.

    Args:
        key: Its name.
        definition: The SignatureDef.
        tensor: Returns a tensor by its name, or None if there is none.
        wheel: The messages of TensorFlow.
        traits: Properties of its runs.
    """
    try:
        return _signature(key, definition, tensor, wheel=wheel, traits=lambda _definition, _outputs: traits)
    except _CannotServe as reason:
        return str(reason)


def _signature(
    key: str,
    definition: Any,
    tensor: Callable[[str], GraphTensor | None],
    *,
    wheel: Wheel,
    traits: Callable[[Any, Sequence[str]], Traits],
) -> Signature:
    inputs = _specs(definition.inputs, role="input", wheel=wheel, tensor=tensor)
    outputs = _specs(definition.outputs, role="output", wheel=wheel, tensor=tensor)
    if not outputs:
        raise _CannotServe("it has no outputs to answer with; export a signature that returns a tensor")
    found = traits(definition, [spec.tensor for spec in outputs.values()])
    fault = _json_fault(inputs, role="input") or _json_fault(outputs, role="output")
    return Signature(key, definition.method_name, inputs, outputs, found, fault)


def _copy(definition: Any) -> Any:
    return type(definition).FromString(definition.SerializeToString())


def _specs(
    tensors: Mapping[str, Any], *, role: str, wheel: Wheel, tensor: Callable[[str], GraphTensor | None]
) -> dict[str, TensorSpec]:
    return {
        alias: _spec(tensors[alias], f"{role} {alias}", role=role, wheel=wheel, find=tensor)
        for alias in sorted(tensors)
    }


def _spec(info: Any, title: str, *, role: str, wheel: Wheel, find: Callable[[str], GraphTensor | None]) -> TensorSpec:
    encoding = info.WhichOneof("encoding")
    if encoding != "name":
        text = _SPARSE if encoding == "coo_sparse" else _composite_text(info)
        raise _CannotServe(f"{title} {text.format(verb=_VERBS[role])}")
    tensor = find(info.name)
    if tensor is None:
        raise _CannotServe(f"{title}: Tensor {info.name}, which the signature names, was not found in the graph")
    name = _type_name(tensor.type_number, wheel=wheel)
    dtype = element_type(name)
    if dtype is None:
        raise _CannotServe(_without_json(short_name(name), title))
    declared = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
    return TensorSpec(info.name, dtype, short_name(name), _known(tensor.shape, declared))


def _known(shape: tuple[int, ...] | None, declared: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Return the shape of a tensor of the graph, with dimensions that only its declaration knows."""
    if shape is None or declared is None or len(shape) != len(declared):
        return declared if shape is None else shape
    return tuple(other if size < 0 else size for size, other in zip(shape, declared, strict=True))


def _json_fault(specs: Mapping[str, TensorSpec], *, role: str) -> str | None:
    """Return why JSON cannot represent one of the tensors; None if it can represent all."""
    for alias, spec in specs.items():
        if spec.dtype.kind == "c":
            return _without_json(spec.type_name, f"{role} {alias}")
    return None


def _without_json(type_name: str, title: str) -> str:
    return f"tensor type: {type_name} of {title} has no JSON form; {advice(type_name)}"


def _type_name(number: int, *, wheel: Wheel) -> str:
    try:
        name: str = wheel.types.DataType.Name(number)
    except ValueError:  # a type that only a later TensorFlow has
        return f"DT_{number}"
    return name.removesuffix("_REF")  # fetching a reference of TensorFlow 1 returns its value


def _composite_text(info: Any) -> str:
    kind = info.composite_tensor.type_spec.type_spec_class_name or "of an unknown kind"
    return _RAGGED if kind == "RaggedTensorSpec" else _COMPOSITE.replace("{kind}", kind)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_LISTED_VARIABLES])
    return f"{shown}, ..." if len(names) > _LISTED_VARIABLES else shown
