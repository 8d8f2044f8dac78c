"""The fallback engine: the loader and Session of TensorFlow 1 in Python's TensorFlow.

It starts and runs more slowly than `c_api`. It is used if the installed wheel lacks functions that `c_api` needs, and
tests compare the two engines.
"""

import contextlib
import importlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_serving.engine.base import Array, LoadedModel, Parallelism, Signature
from tidemill_serving.engine.pages import release_free_memory
from tidemill_serving.engine.saved_model import cannot_load, loadable, read_meta_graph
from tidemill_serving.engine.signatures import GraphTensor, Signatures, signatures_of
from tidemill_serving.engine.wheel import Wheel, open_wheel, remove_hollow_package
from tidemill_serving.errors import Code, RequestError, StartFailed, invalid


class SessionEngine:
    """Loads SavedModels with ``tf.compat.v1``.

    Raises:
        StartFailed: TensorFlow is not installed.
    """

    name = "session"

    def __init__(self, *, parallelism: Parallelism, tags: Sequence[str], session_config: bytes = b"") -> None:
        self._tags = tags
        remove_hollow_package()
        try:
            self._tensorflow: Any = importlib.import_module("tensorflow")
        except ModuleNotFoundError as error:
            raise StartFailed(f"TensorFlow is not installed in this environment: {error}") from error
        self._error: type[Exception] = self._tensorflow.errors.OpError
        self._wheel = open_wheel()
        self._parallelism = parallelism
        self._session_config = session_config

    @property
    def description(self) -> str:
        return f"TensorFlow {self._tensorflow.version.VERSION} by Python's Session"

    @property
    def has_narrow_sessions(self) -> bool:
        return False

    def is_narrow(self, model: LoadedModel) -> bool:
        """Return False: Python's sessions use TensorFlow's threads."""
        return False

    def load_operations(self, library: Path) -> None:
        """Load a library of operations, as `Engine.load_operations`; all models of the process can use it then."""
        try:
            self._tensorflow.load_op_library(str(library))
        except (self._error, OSError) as error:
            raise StartFailed(f"TensorFlow cannot load the operations in {library}: {error}") from error

    def release_memory(self) -> None:
        release_free_memory()

    def shares_variables(self, model: LoadedModel) -> bool:
        """Return False: a session has variables of its own."""
        return False

    def load(self, path: Path, *, twin_of: LoadedModel | None = None) -> LoadedModel:
        """Load a SavedModel into a session of its own, as `Engine.load`, without running it.

        Args:
            path: Directory of the SavedModel.
            twin_of: Makes no difference, since all sessions of Python's TensorFlow share their threads.
        """
        v1 = self._tensorflow.compat.v1
        meta_graph = read_meta_graph(path, wheel=self._wheel, tags=self._tags)
        config = v1.ConfigProto.FromString(self._session_config)
        config.allow_soft_placement = True
        config.inter_op_parallelism_threads = self._parallelism.inter_op
        config.intra_op_parallelism_threads = self._parallelism.intra_op
        session = v1.Session(graph=v1.Graph(), config=config)
        try:
            with loadable(path, meta_graph, wheel=self._wheel) as directory, session.graph.as_default():
                v1.saved_model.loader.load(session, list(self._tags), str(directory))
            signatures = signatures_of(path, meta_graph, _Graph(session.graph), wheel=self._wheel)
        except (self._error, ValueError, OSError) as error:
            session.close()
            raise cannot_load(path, error) from error
        except BaseException:
            session.close()
            raise
        return _SessionModel(session, signatures, wheel=self._wheel, error=self._error)


class _Graph:
    """The graph of a Session."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._registry = importlib.import_module("tensorflow.python.framework.op_def_registry")

    def tensor(self, name: str) -> GraphTensor | None:
        try:
            tensor = self._graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
        except (KeyError, ValueError):
            return None
        rank = tensor.shape.rank
        shape = None if rank is None else tuple(-1 if size is None else size for size in tensor.shape.as_list())
        return GraphTensor(tensor.dtype.as_datatype_enum, shape)

    def definition(self, operation: str) -> Any | None:
        return self._registry.get(operation)


class _SessionModel:
    def __init__(self, session: Any, signatures: Signatures, *, wheel: Wheel, error: type[Exception]) -> None:
        self._session = session
        self._wheel = wheel
        self._error = error
        self.signatures, self.unusable = signatures.served, signatures.unusable
        self.signature_defs = signatures.definitions
        self._callables: dict[str, Callable[..., list[Array]]] = {}
        self._lock = threading.Lock()

    def prepare(self, signature: Signature) -> None:
        with self._lock, contextlib.suppress(self._error, ValueError):  # the requests get the error
            self._make_callable(signature)

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        """Run; ``pooled`` makes no difference, since public callables always use TensorFlow's threads."""
        try:
            with self._lock:
                run = self._callables.get(signature.key) or self._make_callable(signature)
            return [_array(value) for value in run(*feeds)]
        except ValueError as error:  # the public callable compares shapes in Python
            raise invalid(str(error)) from error
        except self._error as error:
            code = Code.of(error.error_code)  # pyrefly: ignore[missing-attribute]
            raise RequestError(code, str(getattr(error, "message", error))) from error

    def close(self) -> None:
        self._session.close()

    def _make_callable(self, signature: Signature) -> Callable[..., list[Array]]:
        feeds = [spec.tensor for spec in signature.inputs.values()]
        fetches = [spec.tensor for spec in signature.outputs.values()]
        from_options = getattr(self._session, "_make_callable_from_options", None)
        made: Callable[..., list[Array]]
        if from_options is not None:  # does not check shapes in Python, as models of TensorFlow 1 require
            made = from_options(self._wheel.config.CallableOptions(feed=feeds, fetch=fetches))
        else:
            made = self._public_callable(feeds, fetches)
        self._callables[signature.key] = made
        return made

    def _public_callable(self, feeds: list[str], fetches: list[str]) -> Callable[..., list[Array]]:
        graph = self._session.graph
        tensors = [graph.get_tensor_by_name(name) for name in feeds]
        with graph.as_default():
            made: Callable[..., list[Array]] = self._session.make_callable(fetches, feed_list=tensors)
        return made


def _array(value: Any) -> Array:
    """Convert a result; a Session returns a scalar as a NumPy scalar if it is a number, and as ``bytes`` otherwise."""
    return np.asarray(value, dtype=object if isinstance(value, bytes | str) else None)
