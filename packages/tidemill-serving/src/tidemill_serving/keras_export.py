"""``python -m tidemill_serving.keras_export FILE DIRECTORY``: convert a Keras file to a SavedModel for serving.

The signature has the inputs and outputs of the Keras model.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path


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
    import keras

    try:
        # compile=False: serving needs no losses and metrics, custom ones included.
        model = keras.saving.load_model(given.file, compile=False)
        model.export(given.directory, verbose=False)
    except Exception as error:  # noqa: BLE001 - Keras raises anything; the user needs its words, not its frames
        reason = " ".join(str(error).split())
        print(f"Keras {keras.__version__} cannot export the model: {type(error).__name__}: {reason}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
