"""A second session of a model, whose operations run on the calling thread alone.

Splitting each operation over all processors makes a single request quick. It wastes time while many requests wait:
threads wake up, wait for the last one, and leave their caches. So many requests run at once instead, one on each
processor. TensorFlow fixes the threads of a session when it is made, so this needs a second session. It is loaded,
beside the requests, when a model is found to have many.
"""

import threading
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

from tidemill_serving.engine.base import Engine, LoadedModel
from tidemill_serving.errors import StartFailed

MAX_BYTES = 268_435_456
"""Size of a model's files, without variables that both sessions share, above which a second copy is not worth it."""


class _TwinState(Enum):
    ABSENT = auto()
    LOADING = auto()
    READY = auto()
    CLOSED = auto()


class Twin:
    """The second session of a model.

    Args:
        load: Loads it; called at most once, on a thread.
        loaded: Called on that thread with the reason if it cannot be loaded, else with None.
    """

    def __init__(self, load: Callable[[], LoadedModel], *, loaded: Callable[[Exception | None], None]) -> None:
        self._load = load
        self._loaded = loaded
        self._lock = threading.Lock()
        self._state = _TwinState.ABSENT
        self._thread: threading.Thread | None = None
        self.model: LoadedModel | None = None
        """The session; None until it is loaded."""

    @property
    def is_expected(self) -> bool:
        """Whether it is not loaded yet, and may be."""
        return self._state in (_TwinState.ABSENT, _TwinState.LOADING)

    def request(self) -> None:
        """Start to load it, unless this has happened."""
        with self._lock:
            if self._state is not _TwinState.ABSENT:
                return
            self._state = _TwinState.LOADING
            self._thread = threading.Thread(target=self._work, name="twin", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Free it. The caller makes sure that no run is in progress, and may have to wait until it is loaded."""
        with self._lock:
            self._state = _TwinState.CLOSED
        if self._thread is not None:
            self._thread.join()
        model, self.model = self.model, None
        if model is not None:
            model.close()

    def _work(self) -> None:
        try:
            model = self._load()
        except Exception as error:  # noqa: BLE001  # the model is served without it
            with self._lock:
                self._state = _TwinState.CLOSED
            self._loaded(error)
            return
        with self._lock:
            is_wanted = self._state is _TwinState.LOADING
            self._state = _TwinState.READY if is_wanted else self._state
            self.model = model
        if is_wanted:
            self._loaded(None)


def new_twin(
    engine: Engine, path: Path, model: LoadedModel, *, loaded: Callable[[Exception | None], None]
) -> Twin | None:
    """Return a second session for a model, not yet loaded; None if it would be of no use.

    No run may change variables: both sessions share them, or each has its own (`Engine.shares_variables`).

    Args:
        path: The SavedModel.
        model: The model loaded from it.
        loaded: See `Twin`.
    """
    has_effects = any(signature.traits.has_effects for signature in model.signatures.values())
    if has_effects or model.unusable or engine.is_narrow(model):
        return None
    files = _files(path)
    shared = path / "variables" if engine.shares_variables(model) else None
    if sum(size for file, size, _ in files if file.parent != shared) > MAX_BYTES:
        return None

    def load() -> LoadedModel:
        if _files(path) != files:
            raise StartFailed(f"the files in {path} are not those that were loaded at first")
        twin = engine.load(path, twin_of=model)
        for signature in twin.signatures.values():
            twin.prepare(signature)
        engine.release_memory()
        return twin

    return Twin(load, loaded=loaded)


def _files(path: Path) -> list[tuple[Path, int, int]]:
    """Return path, size and time of change of each file of a SavedModel."""
    found = [(each, each.stat()) for each in sorted(path.rglob("*")) if each.is_file()]
    return [(file, status.st_size, status.st_mtime_ns) for file, status in found]
