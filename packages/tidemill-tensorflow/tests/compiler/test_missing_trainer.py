"""Error message for scripts that import Hugging Face's ``TFTrainer``."""

import subprocess
import sys
from pathlib import Path

import pytest

WATCH = "from tidemill_tensorflow.compiler import missing_trainer; missing_trainer.watch_transformers()\n"


@pytest.mark.parametrize("line", ["from transformers import TFTrainer", "import transformers.trainer_tf"])
def test_an_import_of_the_missing_trainer_says_what_to_use_instead(tmp_path: Path, line: str) -> None:
    _library(tmp_path, "")
    done = _run(tmp_path, line)
    assert done.returncode == 1
    (error,) = (text for text in done.stderr.splitlines() if text.startswith("ImportError: "))
    assert "transformers 4.57.1 has no TFTrainer" in error and "model.compile(optimizer=...)" in error


def test_a_library_that_has_the_trainer_is_left_alone(tmp_path: Path) -> None:
    _library(tmp_path, "class TFTrainer: pass\n")
    (tmp_path / "transformers/trainer_tf.py").write_text("from transformers import TFTrainer\n")
    done = _run(tmp_path, "from transformers.trainer_tf import TFTrainer; print(TFTrainer.__name__)")
    assert done.stdout == "TFTrainer\n"


def test_scripts_can_ask_whether_the_library_has_it(tmp_path: Path) -> None:
    _library(tmp_path, "")
    done = _run(tmp_path, "import transformers; print(hasattr(transformers, 'TFTrainer'))")
    assert done.stdout == "False\n"
    done = _run(tmp_path, "from transformers import other")
    assert "cannot import name 'other'" in done.stderr


def _library(directory: Path, content: str) -> None:
    (directory / "transformers").mkdir()
    (directory / "transformers/__init__.py").write_text('__version__ = "4.57.1"\n' + content)


def _run(directory: Path, text: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WATCH + text]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=120)
