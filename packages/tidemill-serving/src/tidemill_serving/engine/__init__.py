"""Engines: ways to load and run SavedModels. `open_engine` takes the fast one wherever it works."""

import sys

from tidemill_serving.engine.base import Array, Engine, LoadedModel, Parallelism, Signature, TensorSpec
from tidemill_serving.errors import StartFailed

__all__ = ["ENGINE_NAMES", "Array", "Engine", "LoadedModel", "Parallelism", "Signature", "TensorSpec", "open_engine"]

ENGINE_NAMES = ("auto", "binding", "session")


def open_engine(name: str = "auto", *, parallelism: Parallelism | None = None) -> Engine:
    """Open an engine; ``auto`` is ``binding``, or ``session`` where this TensorFlow does not allow that.

    Raises:
        StartFailed: No such engine, or TensorFlow is missing or unusable.
    """
    threads = parallelism or Parallelism()
    if name not in ENGINE_NAMES:
        raise StartFailed(f"engine {name!r} is not one of {', '.join(ENGINE_NAMES)}")
    if name != "session":
        from tidemill_serving.engine.binding import BindingEngine

        try:
            return BindingEngine(parallelism=threads)
        except ImportError as error:
            if name == "binding":
                raise StartFailed(f"the binding engine does not work with this TensorFlow: {error}") from error
            print(f"engine.fallback engine=session reason={str(error)!r}", file=sys.stderr, flush=True)  # noqa: T201
    from tidemill_serving.engine.session import SessionEngine

    return SessionEngine(parallelism=threads)
