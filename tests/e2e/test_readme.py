"""The Python of the README and of the documentation's first page, run as printed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from tidemill.testing import Service

TRAIN = """
import argparse
import os

import keras

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--model_dir")
arguments = parser.parse_args()
print("epochs", arguments.epochs, "data", os.listdir(os.environ["SM_CHANNEL_TRAIN"]))
model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, kernel_initializer="zeros")])
model.export(os.environ["SM_MODEL_DIR"] + "/1")
"""


def test_the_snippet_of_the_readme_trains_deploys_and_predicts(
    tidemill_service: Service, root: Path, tmp_path: Path
) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    for channel in ("train", "test"):  # what `tidemill examples get digits` and its client make
        data = tmp_path / "digits/data" / channel
        data.mkdir(parents=True)
        (data / "digits.csv").write_text("1,2\n")
    (tmp_path / "client.py").write_text(snippet)
    (tmp_path / "digits/train.py").write_text(TRAIN)
    printed = run_client(tidemill_service, tmp_path)
    assert "epochs 3 data ['digits.csv']" in printed, "logs appear as they are written"
    assert printed.splitlines()[-1] == str({"predictions": [[0.0] * 10]})


def test_the_first_page_trains_deploys_and_predicts(tidemill_service: Service, root: Path, tmp_path: Path) -> None:
    script, client = re.findall(r"```python\n(.*?)```", (root / "docs/index.md").read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "client.py").write_text(client)
    printed = run_client(tidemill_service, tmp_path)
    assert "Epoch 5/5" in printed
    (prediction,) = ast.literal_eval(printed.splitlines()[-1])["predictions"]
    assert 6 < prediction[0] < 10, "the model has learned that eight ones are eight"


def run_client(service: Service, directory: Path) -> str:
    """Run `client.py` of a directory, and return its output."""
    ended = subprocess.run(
        [sys.executable, "client.py"],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **service.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
