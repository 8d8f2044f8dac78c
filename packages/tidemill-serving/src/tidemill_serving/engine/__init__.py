"""Engines load and run models. `open_engine` picks the fast one if it works with the installed TensorFlow."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tidemill_serving.engine.base import Array, Engine, Formats, LoadedModel, Parallelism, Signature, TensorSpec
from tidemill_serving.engine.formats import FormatEngine
from tidemill_serving.errors import StartFailed

__all__ = [
    "ENGINE_NAMES",
    "Array",
    "Engine",
    "Formats",
    "LoadedModel",
    "Parallelism",
    "Signature",
    "TensorSpec",
    "open_engine",
]

ENGINE_NAMES = ("auto", "c_api", "session")


def open_engine(
    name: str = "auto",
    *,
    parallelism: Parallelism | None = None,
    op_libraries: Sequence[Path] = (),
    formats: Formats | None = None,
    session_config: bytes = b"",
) -> Engine:
    """Open an engine.

    Args:
        name: ``c_api``, ``session``, or ``auto``: the first of them that works with the installed TensorFlow.
        parallelism: TensorFlow's thread counts. Default: TensorFlow chooses them.
        op_libraries: Shared libraries of custom operations, loaded before any model. Default: none.
        formats: Which model of a directory is loaded. Default: that of a server without options.
        session_config: A ConfigProto for TensorFlow's sessions; its thread counts are ignored. Default: an empty one.

    Raises:
        StartFailed: There is no such engine, TensorFlow is missing or unusable, or a library of operations cannot be
            loaded.
    """
    parallelism, formats = parallelism or Parallelism(), formats or Formats()
    engine = _open(name, parallelism=parallelism, tags=formats.tags, session_config=session_config)
    for library in op_libraries:
        engine.load_operations(library)
    return FormatEngine(engine, formats, threads=parallelism.intra_op or 1)


def _open(name: str, *, parallelism: Parallelism, tags: Sequence[str], session_config: bytes) -> Engine:
    if name not in ENGINE_NAMES:
        raise StartFailed(f"engine {name!r} is not one of {', '.join(ENGINE_NAMES)}")
    if name != "session":
        from tidemill_serving.engine.c_api import CApiEngine

        try:
            return CApiEngine(parallelism=parallelism, tags=tags, session_config=session_config)
        except ImportError as error:
            if name == "c_api":
                raise StartFailed(f"the engine c_api does not work with this TensorFlow: {error}") from error
            print(f"engine.fallback engine=session reason={str(error)!r}", file=sys.stderr, flush=True)  # noqa: T201
    from tidemill_serving.engine.session import SessionEngine

    return SessionEngine(parallelism=parallelism, tags=tags, session_config=session_config)
