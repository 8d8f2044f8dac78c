"""Substitute for ``tensorflow_io`` if that package is not installed.

Executed as the module ``tensorflow_io``. Most scripts import that package for ``s3://`` paths, which tidemill registers
when TensorFlow is imported. Every other attribute of the package is refused with an `AttributeError`. Keras 2, which
tries the import when it is imported itself, finds that the package is not installed.
"""

import sys
from typing import Any


def _imported_by_keras() -> bool:
    frame = sys._getframe()
    while frame is not None and not frame.f_globals.get("__name__", "").endswith("keras.utils.audio_dataset"):
        frame = frame.f_back
    return frame is not None


if _imported_by_keras():
    raise ModuleNotFoundError("No module named 'tensorflow_io'", name="tensorflow_io")

import tensorflow  # noqa: E402, F401 - tensorflow_io imports it, too

sys.stderr.write(
    "tidemill: tensorflow_io is not installed. s3:// paths work without it, so its import passes; nothing else of it"
    " is here. For the rest, name tensorflow-io in requirements.txt\n"
)


def __getattr__(name: str) -> Any:
    """Refuse every attribute of the package.

    Raises:
        AttributeError: Always.
    """
    raise AttributeError(
        f"tensorflow_io.{name} does not exist: tensorflow_io is not installed in this job, and only the s3:// paths for"
        " which it is often imported work without it. Name tensorflow-io in requirements.txt",
    )
