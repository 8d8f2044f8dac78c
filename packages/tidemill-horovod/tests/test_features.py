"""Features that need real ranks: each call over shared memory and over TCP, under mpirun and tidemill's launcher."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from argument_effects import ArgumentEffect
from argument_table import ARGUMENTS
from test_arguments import CALLS, EFFECTS

FEATURES = str(Path(__file__).parent / "jobs/features.py")
MPIRUN = [shutil.which("mpirun", path=str(Path(sys.executable).parent)) or "mpirun", "-np", "2", sys.executable]
LAUNCHER = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2"]


def run(*words: str) -> str:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("launcher", "transport"),
    [
        pytest.param(MPIRUN, "auto", id="mpirun"),
        pytest.param(LAUNCHER, "encrypted-tcp", id="launcher", marks=pytest.mark.matrix),
    ],
)
def test_every_argument_has_the_effect_in_the_table(launcher: list[str], transport: str) -> None:
    output = run(*launcher, FEATURES, "--transport", transport)
    shown = {tuple(line.split()[1:]) for line in output.splitlines() if line.startswith("shown ")}
    rows = {(function, name): row for function, arguments in ARGUMENTS.items() for name, row in arguments.items()}
    honored = {place for place, row in rows.items() if row.effect is ArgumentEffect.HONORED}
    assert honored - set(EFFECTS) - shown == set()
    idle = {place for place, row in rows.items() if row.effect is ArgumentEffect.NONE and place[0] not in CALLS}
    assert idle - shown == set()


def test_threads_call_concurrently_and_a_shutdown_ends_a_waiting_call() -> None:
    output = run(*MPIRUN, str(Path(__file__).parent / "jobs/threads.py"))
    assert output.count("done\n") == 2
    assert output.count("ended by ") == 2


def test_gradients_are_sent_while_the_backward_pass_continues() -> None:
    output = run(*MPIRUN, str(Path(__file__).parent / "jobs/overlap.py"))
    assert output.count("done\n") == 2
