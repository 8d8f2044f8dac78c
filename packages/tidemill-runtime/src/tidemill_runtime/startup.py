"""Reports uncaught exceptions of the user's script in a form that the runtime can read.

Every job environment imports this module at interpreter start (``tidemill.pth``), so the import must be cheap: it
imports only modules that the interpreter has already loaded, and does nothing unless ``TIDEMILL_REPORTS`` names a
directory. The traceback that the user sees is printed by the previous hook, unchanged.
"""

# pathlib would take most of the time of an interpreter start:
# ruff: noqa: PTH105, PTH118, PTH120, PTH123
from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    Hook = Callable[[type[BaseException], BaseException, "TracebackType | None"], Any]

MAX_FRAMES = 12
MAX_MESSAGE_CHARACTERS = 8000


def install(directory: str) -> None:
    """Report uncaught exceptions of the main thread as ``directory/PID.json``, then call the previous hook.

    Args:
        directory: Directory of the reports; it exists.
    """
    previous: Hook = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            # An interpreter interrupted by Ctrl-C ends by SIGINT, unless its hook runs code that the imports below run.
            if not issubclass(kind, KeyboardInterrupt):
                _write_report(directory, kind, error, trace)
        finally:
            previous(kind, error, trace)

    sys.excepthook = report


def _write_report(directory: str, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    import json

    report = {
        "type": kind.__qualname__,
        "module": kind.__module__,
        "message": _message(error)[:MAX_MESSAGE_CHARACTERS],
        "frames": _frames(error, trace),
        "keras": _keras_version(),
        "owner": _keras_owner(getattr(error, "obj", None)),
        "attribute": _text(getattr(error, "name", None)),
    }
    path = os.path.join(directory, f"{os.getpid()}.json")
    try:
        with open(path + ".tmp", "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(report, file)
        os.replace(path + ".tmp", path)
    except OSError:
        return  # disk full, or the directory is gone: the runtime then reads the traceback from standard error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the user's own __str__ failed; the report must come out all the same
        return "<the text of this exception cannot be made>"


def _keras_version() -> str:
    """Return the version of Keras that the script has imported; empty for tf_keras, and without Keras."""
    keras = None if "tf_keras" in sys.modules else sys.modules.get("keras")
    return _text(getattr(keras, "__version__", None))


def _keras_owner(value: Any) -> str:
    """Return the module of Keras from which an object is, or a class that it extends; empty for other objects."""
    try:
        names = [value.__name__] if isinstance(value, type(os)) else []
        kind = value if isinstance(value, type) else type(value)
        names += [each.__module__ for each in kind.__mro__]
    except Exception:  # noqa: BLE001 - the user's own class may fail here; the report must come out all the same
        return ""
    return next((name for name in names if isinstance(name, str) and name.split(".")[0] == "keras"), "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _frames(error: BaseException, trace: TracebackType | None) -> list[dict[str, Any]]:
    """Return the last frames of the user's code, or of all code if there are none."""
    import linecache

    frames: list[dict[str, Any]] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        text = linecache.getline(code.co_filename, trace.tb_lineno, trace.tb_frame.f_globals).strip()
        frames.append({"file": code.co_filename, "line": trace.tb_lineno, "function": code.co_name, "text": text})
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").strip()
        frames.append({"file": error.filename, "line": error.lineno or 0, "function": "<module>", "text": text})
    own = [frame for frame in frames if is_users_file(frame["file"])]
    return (own or frames)[-MAX_FRAMES:]


def is_users_file(file: str) -> bool:
    """Return whether a source file belongs neither to the standard library, nor to a package, nor to the runtime.

    Args:
        file: Path as a traceback has it.
    """
    library = os.path.dirname(os.__file__) + os.sep
    installed = file.startswith((library, "<frozen")) or "site-packages" in file or "dist-packages" in file
    return not installed and os.sep + "tidemill_runtime" + os.sep not in file


if os.environ.get("TIDEMILL_REPORTS"):
    install(os.environ["TIDEMILL_REPORTS"])
