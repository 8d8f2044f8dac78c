"""Load the user's module, and print its errors with the user's stack frames only."""

import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType

_OUR_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_IMPORT_MACHINERY = "<frozen importlib"


class BadScript(Exception):
    """The user's module lacks what its kind of endpoint needs."""


def load_script(file: Path, *, paths: Sequence[str]) -> ModuleType:
    """Import a file as a module with the file's base name.

    Args:
        paths: Directories to put at the front of ``sys.path``, so that the module finds its helper modules.

    Raises:
        BadScript: The name of the file does not end with ``.py``.
        BaseException: Any exception that the module raises.
    """
    sys.path[:0] = [path for path in paths if path not in sys.path]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise BadScript(f"{file} is no Python module: its name must end with .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def print_error(error: BaseException) -> None:
    """Print a traceback that starts at the first frame of the user's code to standard error, in one write."""
    shown = traceback.TracebackException(type(error), error, _users_part(error.__traceback__))
    sys.stderr.write("".join(shown.format()))
    sys.stderr.flush()


def _users_part(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None:
        file = frames.tb_frame.f_code.co_filename
        if not file.startswith((_OUR_PACKAGE, _IMPORT_MACHINERY)):
            return frames
        frames = frames.tb_next
    return None
