"""The serving graph of a SavedModel, read from ``saved_model.pb``."""

from pathlib import Path
from typing import Any

from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import StartFailed

__all__ = ["has_loops", "read_meta_graph"]

_SERVE_TAG = "serve"
_LOOP_OPS = frozenset({"While", "StatelessWhile", "Enter", "RefEnter"})


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


def has_loops(meta_graph: Any) -> bool:
    """Whether a loop stands anywhere in the graph or its functions."""
    graph = meta_graph.graph_def
    return any(
        node.op in _LOOP_OPS for part in (graph.node, *(f.node_def for f in graph.library.function)) for node in part
    )
