"""``python -m tidemill_serving.keras_export FILE DIRECTORY``: convert a Keras file to a SavedModel for serving.

The signature has the inputs and outputs of the Keras model. Files of Keras 2 are read by Keras 2, which is the package
tf_keras beside Keras 3, and else by Keras 3 if it can.
"""

import argparse
import importlib
import importlib.util
import json
import os
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_OWN_CODE = re.compile("Could not locate|Cannot deserialize object of type|Unknown [a-z ]+: '|Lambda|lambda")
_CAUSE = "Exception encountered: "  # before the reason itself, after the whole configuration of the model
_LONGEST_REASON = 300
_EXPORT = "export the model where it was made, by model.export(DIRECTORY), and serve that directory"
_ANOTHER = "serve it by --framework-version {version}, whose TensorFlow has Keras {major}"


class _CannotExport(Exception):
    """A file cannot be exported; the message is for the user."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Export the model and return the exit status. A failure prints one line to standard error.

    Args:
        arguments: Words of the command line. Default: those of the process.

    Returns:
        0, or 1 if Keras cannot export the model.
    """
    parser = argparse.ArgumentParser(prog="python -m tidemill_serving.keras_export", description=__doc__)
    parser.add_argument("file", type=Path, help="a .keras file, or an HDF5 file with a whole model")
    parser.add_argument("directory", type=Path, help="where the SavedModel goes; it must not exist")
    given = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        _export(given.file, given.directory)
    except _CannotExport as reason:
        print(reason, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _export(file: Path, directory: Path) -> None:
    maker = _maker(file)
    keras = importlib.import_module("keras")
    if _major(maker) == 2 and _major(keras.__version__) > 2 and importlib.util.find_spec("tf_keras") is not None:
        keras = importlib.import_module("tf_keras")
    try:
        # compile=False: serving needs no losses and metrics, custom ones included.
        model = keras.models.load_model(file, compile=False)
        if _major(keras.__version__) > 2:
            model.export(directory, verbose=False)
        else:
            model.save(directory, save_format="tf", include_optimizer=False)
    except Exception as error:  # Keras raises anything; the user needs its words, not its frames
        reason = " ".join(str(error).split()).rpartition(_CAUSE)[2]
        raise _CannotExport(
            f"Keras {keras.__version__} cannot export the model of Keras {maker}: {type(error).__name__}:"
            f" {reason[:_LONGEST_REASON]}; {_advice(reason, maker, keras.__version__)}"
        ) from error


def _maker(file: Path) -> str:
    """Return the version of Keras that wrote a file.

    Raises:
        _CannotExport: The file has no model, or is damaged.
    """
    try:
        return _maker_of_archive(file) if zipfile.is_zipfile(file) else _maker_of_hdf5(file)
    except (OSError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        raise _CannotExport(f"the file is damaged: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _maker_of_archive(file: Path) -> str:
    with zipfile.ZipFile(file) as archive:
        return str(json.loads(archive.read("metadata.json"))["keras_version"])


def _maker_of_hdf5(file: Path) -> str:
    h5py: Any = importlib.import_module("h5py")
    with h5py.File(file) as opened:
        if "model_config" not in opened.attrs:
            raise _CannotExport("the file has weights without a model: save the whole model, by model.save(FILE)")
        version = opened.attrs.get("keras_version", "2")
    return version.decode() if isinstance(version, bytes) else str(version)


def _advice(reason: str, maker: str, reader: str) -> str:
    if _major(maker) == 2 and _major(reader) > 2:
        return f"{_ANOTHER.format(version='2.15', major=2)}, or {_EXPORT}"
    if _major(maker) > 2 and _major(reader) == 2:
        return f"{_ANOTHER.format(version='2.21', major=3)}"
    if _OWN_CODE.search(reason):
        return f"code of your own is not in the file: {_EXPORT}"
    return _EXPORT


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdigit() else 0


if __name__ == "__main__":
    sys.exit(main())
