"""The script of a step that packs inference code into a model which does not exist before the pipeline is executed.

It runs in a training job, with the standard library alone: the model's archive is the channel ``training``, the code is
``code.tar.gz`` beside this file. The entry point becomes ``code/inference.py``, the name that servers look for.
"""

import argparse
import os
import shutil
import tarfile
from pathlib import Path


def main() -> None:
    """Write the model with its code to the directory of the job's model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inference_script", required=True, help="Name of the entry point in the code.")
    entry_point = parser.parse_known_args()[0].inference_script
    target = Path(os.environ["SM_MODEL_DIR"])
    code = target / "code"
    (archive,) = Path(os.environ["SM_CHANNEL_TRAINING"]).glob("*.tar.gz")
    with tarfile.open(archive) as model:
        model.extractall(target, filter="data")
    shutil.rmtree(code, ignore_errors=True)
    with tarfile.open(Path(__file__).with_name("code.tar.gz")) as packed:
        packed.extractall(code, filter="data")
    (code / entry_point).rename(code / "inference.py")


if __name__ == "__main__":
    main()
