"""Two ranks train as plain Keras does in one process on the whole batch."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PARITY = str(Path(__file__).parent / "jobs/parity.py")
MPIRUN = [shutil.which("mpirun", path=str(Path(sys.executable).parent)) or "mpirun", "-np", "2", sys.executable]


@pytest.mark.parametrize("legacy", ["", "1"], ids=["Keras 3", "tf_keras"])
def test_two_ranks_train_as_one_process_on_the_whole_batch(legacy: str) -> None:
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_USE_LEGACY_KERAS": legacy,
    }
    done = subprocess.run([*MPIRUN, PARITY], capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("equal") == 11 + (legacy == "1"), done.stdout
