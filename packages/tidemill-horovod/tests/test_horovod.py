"""The calls of Horovod in one process and under mpirun, and refusals."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import horovod.tensorflow as hvd

CALLS = str(Path(__file__).parent / "jobs/calls.py")
MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or "mpirun"


@pytest.fixture(autouse=True)
def _leaves():
    yield
    hvd.shutdown()


def run(*words):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_call_returns_the_right_result_in_one_process():
    assert "all calls right on 0 of 1" in run(sys.executable, CALLS)


@pytest.mark.parametrize("options", [[], ["--ranks"]])
def test_every_call_returns_the_right_result_under_mpirun(options):
    output = run(MPIRUN, "-np", "2", sys.executable, CALLS, *options)
    assert output.count("all calls right on") == 2
    assert "on 0 of 2" in output
    assert "on 1 of 2" in output


class Numbers:
    """A communicator of the script: the second of two ranks, whose peer sends the received values negated."""

    rank, size = 1, 2

    def allreduce(self, array, op="mean"):
        return np.zeros_like(array)

    def allgather(self, array):
        return [np.array(array), np.array(array)]

    def broadcast(self, array, root=0):
        return -array if root == 0 else array

    def barrier(self):
        pass

    def holds(self, variable):
        return "remote" not in variable.name


def test_init_accepts_a_communicator():
    import tensorflow as tf

    hvd.init(Numbers())
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (1, 2, 1, 2)
    assert hvd.allreduce(tf.constant(4.0)) == 0.0
    assert not hvd.mpi_enabled()


def test_remote_variables_are_skipped():
    import tensorflow as tf

    hvd.init(Numbers())
    held, remote = tf.Variable(1.0, name="held"), tf.Variable(1.0, name="remote")
    hvd.broadcast_variables([remote, held], root_rank=0)
    assert (held.numpy(), remote.numpy()) == (-1.0, 1.0)


def test_calls_before_init_raise_with_advice():
    for call in (hvd.rank, hvd.size, hvd.local_rank, lambda: hvd.allreduce(1.0)):
        with pytest.raises(ValueError, match=r"call hvd\.init\(\)"):
            call()


@pytest.mark.parametrize("comm", [[0, 1], "world", 3, object()])
def test_an_invalid_group_is_refused(comm):
    with pytest.raises(ValueError, match=r"hvd\.init: comm is"):
        hvd.init(comm)
    assert not hvd.is_initialized()


def test_meaningless_arguments_are_refused():
    hvd.init()
    with pytest.raises(ValueError, match="process_sets"):
        hvd.shutdown() or hvd.init(process_sets=[1])
    with pytest.raises(ValueError, match="process_sets is 'some'"):
        hvd.init(process_sets="some")
    hvd.init()
    with pytest.raises(ValueError, match="give op alone"):
        hvd.allreduce(1.0, average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="root_rank is 1; allowed is 0 to 0"):
        hvd.broadcast(1.0, 1)
    with pytest.raises(ValueError, match="op is 'sum'; allowed"):
        hvd.allreduce(1.0, op="sum")


def test_the_names_are_sorted_and_exist():
    assert sorted(hvd.__all__) == hvd.__all__
    assert all(hasattr(hvd, name) for name in hvd.__all__)
