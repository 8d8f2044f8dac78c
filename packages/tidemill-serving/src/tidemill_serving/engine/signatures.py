"""The signatures of a SavedModel: those that can be served, and the reasons why others cannot.

A signature is served if all its inputs and outputs are dense tensors of types that NumPy has; if one of them is
complex, only through gRPC. For any other signature, the reason is logged when the model is loaded, and returned to
callers.
"""

from collections.abc import Mapping
from typing import Any

from tidemill_serving.engine.base import Signature, TensorSpec
from tidemill_serving.engine.element_types import advice, element_type, short_name
from tidemill_serving.engine.wheel import Wheel

__all__ = ["INIT_SIGNATURE", "signatures_of"]

INIT_SIGNATURE = "__saved_model_init_op"
_RAGGED = (
    "is a ragged tensor; export a signature that {verb} a dense one (RaggedTensor.to_tensor pads it), or its flat"
    " values and row splits as two tensors"
)
_SPARSE = (
    "is a sparse tensor; export a signature that {verb} a dense one (tf.sparse.to_dense), or its indices, values and"
    " dense shape as three tensors"
)
_COMPOSITE = "is a composite tensor ({kind}); export a signature that {verb} its parts as plain tensors"
_VERBS = {"input": "takes", "output": "returns"}


class _CannotServe(Exception):
    """A tensor that cannot be served; the message says why."""


def signatures_of(meta_graph: Any, *, wheel: Wheel) -> tuple[Mapping[str, Signature], Mapping[str, str]]:
    """Read the signatures of a graph.

    Returns:
        The signatures that can be served, by key, and for each other key the reason why it cannot.
    """
    served: dict[str, Signature] = {}
    unusable: dict[str, str] = {}
    for key in sorted(meta_graph.signature_def):
        if key == INIT_SIGNATURE:
            continue
        definition = meta_graph.signature_def[key]
        try:
            inputs = _specs(definition.inputs, role="input", wheel=wheel)
            outputs = _specs(definition.outputs, role="output", wheel=wheel)
            if not outputs:
                raise _CannotServe("it has no outputs to answer with; export a signature that returns a tensor")
            fault = _json_fault(inputs, role="input") or _json_fault(outputs, role="output")
            served[key] = Signature(key, definition.method_name, inputs, outputs, fault)
        except _CannotServe as reason:
            unusable[key] = str(reason)
    return served, unusable


def _specs(tensors: Mapping[str, Any], *, role: str, wheel: Wheel) -> dict[str, TensorSpec]:
    return {alias: _spec(tensors[alias], alias=alias, role=role, wheel=wheel) for alias in sorted(tensors)}


def _spec(info: Any, *, alias: str, role: str, wheel: Wheel) -> TensorSpec:
    encoding = info.WhichOneof("encoding")
    if encoding != "name":
        text = _SPARSE if encoding == "coo_sparse" else _composite_text(info)
        raise _CannotServe(f"{role} {alias} {text.format(verb=_VERBS[role])}")
    name = _type_name(info.dtype, wheel=wheel)
    dtype = element_type(name)
    if dtype is None:
        raise _CannotServe(_without_json(short_name(name), role=role, alias=alias))
    shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
    return TensorSpec(info.name, dtype, short_name(name), shape)


def _json_fault(specs: Mapping[str, TensorSpec], *, role: str) -> str | None:
    """Return why JSON cannot represent one of the tensors; None if it can represent all."""
    for alias, spec in specs.items():
        if spec.dtype.kind == "c":
            return _without_json(spec.type_name, role=role, alias=alias)
    return None


def _without_json(type_name: str, *, role: str, alias: str) -> str:
    return f"tensor type: {type_name} of {role} {alias} has no JSON form; {advice(type_name)}"


def _type_name(number: int, *, wheel: Wheel) -> str:
    try:
        name: str = wheel.types.DataType.Name(number)
    except ValueError:  # a type that only a later TensorFlow has
        return f"DT_{number}"
    return name.removesuffix("_REF")  # fetching a reference of TensorFlow 1 returns its value


def _composite_text(info: Any) -> str:
    kind = info.composite_tensor.type_spec.type_spec_class_name or "of an unknown kind"
    return _RAGGED if kind == "RaggedTensorSpec" else _COMPOSITE.replace("{kind}", kind)
