"""The serving graph of a SavedModel, read from ``saved_model.pb``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill_serving.engine.base import Signature
from tidemill_serving.engine.signatures import signatures_of
from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import StartFailed

__all__ = ["ServingGraph", "read_meta_graph", "read_serving_graph"]

_SERVE_TAG = "serve"
_LOOP_OPS = frozenset({"While", "StatelessWhile", "Enter", "RefEnter"})


@dataclass(frozen=True, slots=True)
class ServingGraph:
    """Facts about the graph tagged ``serve`` that the server needs.

    Attributes:
        signatures: Signatures that can be served, by key.
        unusable: Reasons why the remaining signatures cannot be served, by key.
        signature_defs: All SignatureDef messages, by key. They are copies, so that the parsed file can be freed.
        has_loops: Whether the graph or one of its functions contains a loop.
    """

    signatures: Mapping[str, Signature]
    unusable: Mapping[str, str]
    signature_defs: Mapping[str, Any]
    has_loops: bool


def read_serving_graph(path: Path, *, wheel: Wheel) -> ServingGraph:
    """Read the MetaGraphDef tagged ``serve`` of the SavedModel in ``path``.

    Raises:
        StartFailed: The file cannot be read, is damaged, or has no such graph.
    """
    meta_graph = read_meta_graph(path / "saved_model.pb", wheel=wheel)
    signatures, unusable = signatures_of(meta_graph, wheel=wheel)
    definitions = {
        key: type(definition).FromString(definition.SerializeToString())
        for key, definition in meta_graph.signature_def.items()
    }
    return ServingGraph(signatures, unusable, definitions, _has_loops(meta_graph))


def read_meta_graph(file: Path, *, wheel: Wheel) -> Any:
    """Read the MetaGraphDef tagged ``serve`` of a ``saved_model.pb``.

    Raises:
        StartFailed: The file cannot be read, is damaged, or has no such graph.
    """
    saved = wheel.saved_model.SavedModel()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StartFailed(f"{file} cannot be read: {error}") from error
    try:
        saved.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError lives in a module that depends on its implementation
        raise StartFailed(f"{file} is not a SavedModel: {error}") from error
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == {_SERVE_TAG}:
            return graph
    tags = [sorted(graph.meta_info_def.tags) for graph in saved.meta_graphs]
    raise StartFailed(f"{file} has no graph tagged ['{_SERVE_TAG}'], only {tags}: export the model for serving")


def _has_loops(meta_graph: Any) -> bool:
    graph = meta_graph.graph_def
    return any(
        node.op in _LOOP_OPS for part in (graph.node, *(f.node_def for f in graph.library.function)) for node in part
    )
