"""The engine: TensorFlow's session binding, used directly.

It does what the loader of TensorFlow 1 does (import the graph, restore variables, run the initialisers) and then makes
one *callable* per signature, the cheapest way into the runtime. Two properties matter. With ``inter_op_thread_pool=-1``
the operations run on the calling thread, which costs 5 us instead of 150 for a small model. And no Python code compares
the feeds with the placeholder's static shape, so that models exported by TensorFlow 1 take what TF Serving would.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_serving.engine.base import Array, LoadedModel, Parallelism, Signature
from tidemill_serving.engine.border import fetched
from tidemill_serving.engine.graph import has_loops, read_meta_graph
from tidemill_serving.engine.signatures import INIT_SIGNATURE, signatures_of
from tidemill_serving.engine.wheel import Wheel, open_wheel
from tidemill_serving.errors import Code, RequestError, StartFailed

__all__ = ["BindingEngine"]

_INLINE = -1
_POOL = 0
_MAIN_OP_KEYS = ("saved_model_main_op", "legacy_init_op")
# What the engine uses of the private module: a wheel that lacks one of these is served by the session engine.
_NEEDED = (
    "ExtendSession",
    "PyGraph",
    "TF_CloseSession",
    "TF_DeleteSession",
    "TF_GraphImportGraphDefWithResults",
    "TF_NewBufferFromString",
    "TF_NewImportGraphDefOptions",
    "TF_NewSession",
    "TF_NewSessionOptions",
    "TF_SessionMakeCallable",
    "TF_SessionRunCallable",
)


class BindingEngine:
    """Loads SavedModels through the binding.

    Raises:
        StartFailed: TensorFlow is not installed.
        ImportError: This TensorFlow does not have the binding in the form that is needed.
    """

    name = "binding"

    def __init__(self, *, parallelism: Parallelism) -> None:
        self._wheel = open_wheel()
        self._parallelism = parallelism
        missing = [name for name in _NEEDED if not hasattr(self._wheel.binding, name)]
        if missing:
            raise ImportError(f"the session binding of this TensorFlow has no {', '.join(missing)}")

    def load(self, path: Path) -> LoadedModel:
        meta_graph = read_meta_graph(path, wheel=self._wheel)
        try:
            session = _Session(meta_graph, wheel=self._wheel, parallelism=self._parallelism)
            session.initialise(path, meta_graph)
        except self._wheel.OpError as error:
            raise StartFailed(f"TensorFlow cannot load {path}: {_text(error)}") from error
        return _Model(session, meta_graph, wheel=self._wheel)


class _Session:
    """A graph with its runtime."""

    def __init__(self, meta_graph: Any, *, wheel: Wheel, parallelism: Parallelism) -> None:
        self._binding = wheel.binding
        self._config = wheel.config
        graph = self._binding.PyGraph()
        buffer = self._binding.TF_NewBufferFromString(meta_graph.graph_def.SerializeToString())
        self._binding.TF_GraphImportGraphDefWithResults(graph, buffer, self._binding.TF_NewImportGraphDefOptions())
        config = wheel.config.ConfigProto(
            allow_soft_placement=True,
            inter_op_parallelism_threads=parallelism.inter_op,
            intra_op_parallelism_threads=parallelism.intra_op,
        )
        self._graph = graph  # the session does not keep it alive
        self._session = self._binding.TF_NewSession(graph, self._binding.TF_NewSessionOptions(None, config))
        self._binding.ExtendSession(self._session)

    def initialise(self, path: Path, meta_graph: Any) -> None:
        """Restore variables, then run what the model asks to be run once (look-up tables and the like)."""
        assets = {
            asset.tensor_info.name: np.array(str(path / "assets" / asset.filename).encode(), dtype=object)
            for asset in meta_graph.asset_file_def
        }
        restore = meta_graph.saver_def.restore_op_name
        prefix = path / "variables" / "variables"
        if restore and prefix.with_name("variables.index").exists():
            file = {meta_graph.saver_def.filename_tensor_name: np.array(str(prefix).encode(), dtype=object)}
            self._run_once(restore, feeds={**file, **assets})
        init = _init_operation(meta_graph)
        if init:
            self._run_once(init, feeds=assets)

    def make_callable(self, feeds: Sequence[str], fetches: Sequence[str], targets: Sequence[str], pool: int) -> int:
        options = self._config.CallableOptions(feed=feeds, fetch=fetches, target=targets)
        options.run_options.inter_op_thread_pool = pool
        buffer = self._binding.TF_NewBufferFromString(options.SerializeToString())
        return int(self._binding.TF_SessionMakeCallable(self._session, buffer))

    def run_callable(self, handle: int, feeds: list[Array]) -> list[Array]:
        result: list[Array] = self._binding.TF_SessionRunCallable(self._session, handle, feeds, None)
        return result

    def close(self) -> None:
        self._binding.TF_CloseSession(self._session)
        self._binding.TF_DeleteSession(self._session)

    def _run_once(self, operation: str, *, feeds: Mapping[str, Array]) -> None:
        self.run_callable(self.make_callable(list(feeds), [], [operation], _POOL), list(feeds.values()))


class _Model:
    """A loaded SavedModel; callables are made at the first run of a signature."""

    def __init__(self, session: _Session, meta_graph: Any, *, wheel: Wheel) -> None:
        self._session = session
        self._op_error = wheel.OpError
        self.signatures, self.unusable = signatures_of(meta_graph, wheel=wheel)
        self.has_loops = has_loops(meta_graph)
        self.signature_defs: dict[str, Any] = dict(meta_graph.signature_def)
        self._handles: dict[tuple[str, bool], int] = {}
        self._lock = threading.Lock()

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        try:
            handle = self._handles.get((signature.key, pooled))
            if handle is None:
                handle = self._make_handle(signature, pooled=pooled)
            results = self._session.run_callable(handle, list(feeds))
        except self._op_error as error:
            raise RequestError(Code.of(error.error_code), _text(error)) from error  # pyrefly: ignore[missing-attribute]
        return fetched(results, signature)

    def close(self) -> None:
        self._session.close()

    def _make_handle(self, signature: Signature, *, pooled: bool) -> int:
        with self._lock:
            feeds = [spec.tensor for spec in signature.inputs.values()]
            fetches = [spec.tensor for spec in signature.outputs.values()]
            handle = self._session.make_callable(feeds, fetches, [], _POOL if pooled else _INLINE)
            self._handles[signature.key, pooled] = handle
            return handle


def _init_operation(meta_graph: Any) -> str:
    """Name of the operation to run after restoring; TensorFlow has kept it in three places over the years."""
    if INIT_SIGNATURE in meta_graph.signature_def:
        tensor = meta_graph.signature_def[INIT_SIGNATURE].outputs[INIT_SIGNATURE].name
        return str(tensor).partition(":")[0]
    for key in _MAIN_OP_KEYS:
        if key in meta_graph.collection_def:
            nodes = meta_graph.collection_def[key].node_list.value
            return str(nodes[0]) if nodes else ""
    return ""


def _text(error: Exception) -> str:
    return str(getattr(error, "message", None) or error)
