"""The example of a hybrid job prints the same with every launcher, with and without replicas."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mpi

pytestmark = pytest.mark.smp_long

SCRIPT = Path(__file__).parents[3] / "examples/04_model_parallel_hybrid/train.py"
LAUNCH = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "4"]


def losses_of(*words: str, **variables: str) -> list[dict[str, Any]]:
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    job = [*words, "--epochs", "2"]
    done = subprocess.run(job, capture_output=True, text=True, env=environment, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def alone() -> list[dict[str, Any]]:
    return losses_of(sys.executable, str(SCRIPT), "--partitions", "1")


def same(lines: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    return [list(line.values()) for line in lines] == [pytest.approx(list(line.values()), abs=2e-3) for line in others]


def test_it_learns(alone: list[dict[str, Any]]) -> None:
    assert [line["epoch"] for line in alone] == [0, 1]
    assert alone[-1]["accuracy"] > 0.9
    assert alone[-1]["loss"] < alone[0]["loss"]


def test_four_ranks_by_the_launcher_averaged_by_the_library(alone: list[dict[str, Any]]) -> None:
    assert same(losses_of(*LAUNCH, str(SCRIPT), "--average", "ddp"), alone)


# MPICH runs only in the matrix, because Horovod's tests and the launchers' tests use it in every run.
@pytest.mark.parametrize("kind", ["openmpi", pytest.param("mpich", marks=pytest.mark.matrix)])
def test_four_ranks_by_mpirun_averaged_by_horovod(kind: str, alone: list[dict[str, Any]]) -> None:
    words = [*mpi.launch(kind, 4), sys.executable, str(SCRIPT)]
    assert same(losses_of(*words), alone)
