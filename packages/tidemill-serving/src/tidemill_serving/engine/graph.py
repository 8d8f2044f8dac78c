"""What a SavedModel says about itself: its serving graph and signatures, read from ``saved_model.pb``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_serving.engine.base import Signature, TensorSpec
from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import StartFailed

__all__ = ["INIT_SIGNATURE", "has_loops", "read_meta_graph", "signatures_of"]

INIT_SIGNATURE = "__saved_model_init_op"
_SERVE_TAG = "serve"
_LOOP_OPS = frozenset({"While", "StatelessWhile", "Enter", "RefEnter"})
_DTYPES = {
    "DT_FLOAT": ("float", "float32"),
    "DT_DOUBLE": ("double", "float64"),
    "DT_HALF": ("half", "float16"),
    "DT_INT8": ("int8", "int8"),
    "DT_INT16": ("int16", "int16"),
    "DT_INT32": ("int32", "int32"),
    "DT_INT64": ("int64", "int64"),
    "DT_UINT8": ("uint8", "uint8"),
    "DT_UINT16": ("uint16", "uint16"),
    "DT_UINT32": ("uint32", "uint32"),
    "DT_UINT64": ("uint64", "uint64"),
    "DT_BOOL": ("bool", "bool"),
    "DT_STRING": ("string", "object"),
    "DT_COMPLEX64": ("complex64", "complex64"),
    "DT_COMPLEX128": ("complex128", "complex128"),
}


def read_meta_graph(path: Path, *, wheel: Wheel) -> Any:
    """Read the MetaGraphDef tagged ``serve`` of the SavedModel in ``path``.

    Raises:
        StartFailed: The file is damaged, or has no such graph.
    """
    saved = wheel.saved_model.SavedModel()
    file = path / "saved_model.pb"
    try:
        saved.ParseFromString(file.read_bytes())
    except Exception as error:  # protobuf's DecodeError lives in a module that depends on its implementation
        raise StartFailed(f"{file} is not a SavedModel: {error}") from error
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == {_SERVE_TAG}:
            return graph
    tags = [sorted(graph.meta_info_def.tags) for graph in saved.meta_graphs]
    raise StartFailed(f"{file} has no graph tagged ['{_SERVE_TAG}'], only {tags}: export the model for serving")


def signatures_of(meta_graph: Any, *, wheel: Wheel) -> Mapping[str, Signature]:
    """The signatures of dense tensors; those with sparse or composite tensors cannot be fed and are left out."""
    found = {}
    for key in sorted(meta_graph.signature_def):
        definition = meta_graph.signature_def[key]
        inputs = _specs(definition.inputs, wheel=wheel)
        outputs = _specs(definition.outputs, wheel=wheel)
        if key != INIT_SIGNATURE and inputs is not None and outputs is not None:
            found[key] = Signature(key, definition.method_name, inputs, outputs)
    return found


def has_loops(meta_graph: Any) -> bool:
    """Whether a loop stands anywhere in the graph or its functions."""
    graph = meta_graph.graph_def
    return any(
        node.op in _LOOP_OPS for part in (graph.node, *(f.node_def for f in graph.library.function)) for node in part
    )


def _specs(tensors: Mapping[str, Any], *, wheel: Wheel) -> dict[str, TensorSpec] | None:
    specs = {}
    for alias in sorted(tensors):
        info = tensors[alias]
        names = _DTYPES.get(wheel.types.DataType.Name(info.dtype)) or _extension_type(info.dtype, wheel=wheel)
        if names is None or info.WhichOneof("encoding") != "name":
            return None
        shape = None if info.tensor_shape.unknown_rank else tuple(dim.size for dim in info.tensor_shape.dim)
        specs[alias] = TensorSpec(info.name, np.dtype(names[1]), names[0], shape)
    return specs


def _extension_type(number: int, *, wheel: Wheel) -> tuple[str, Any] | None:
    if wheel.types.DataType.Name(number) != "DT_BFLOAT16":
        return None
    # NumPy knows bfloat16 by this package alone, which comes with TensorFlow, and few models have it.
    import ml_dtypes  # pyrefly: ignore[missing-import]

    return "bfloat16", ml_dtypes.bfloat16
