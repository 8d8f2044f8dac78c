"""The calls of Horovod in one process and under mpirun, and refusals."""

import importlib
import json
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


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.matrix), ["--ranks"]])
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


MODULES = {
    "horovod.tensorflow": "init rank allreduce DistributedGradientTape broadcast_object_fn gpu_available",
    "horovod.keras": "init rank callbacks elastic load_model reducescatter start_timeline Compression ProcessSet",
    "horovod.tensorflow.keras": "init rank callbacks elastic load_model reducescatter allgather_object gpu_available",
    "horovod.tensorflow.mpi_ops": "init rank size Average Sum allgather broadcast_ join size_op start_timeline",
    "horovod.tensorflow.functions": "allgather_object broadcast_object broadcast_object_fn broadcast_variables",
    "horovod.tensorflow.util": "vars_to_refs refs_to_vars",
    "horovod.tensorflow.compression": "Compression Compressor NoneCompressor FP16Compressor",
    "horovod.tensorflow.sync_batch_norm": "SyncBatchNormalization",
    "horovod.tensorflow.gradient_aggregation": "LocalGradientAggregationHelper",
    "horovod.tensorflow.gradient_aggregation_eager": "LocalGradientAggregationHelperEager",
    "horovod.tensorflow.elastic": "run State ObjectState TensorFlowState TensorFlowKerasState",
    "horovod.tensorflow.keras.elastic": "run KerasState CommitStateCallback UpdateEpochStateCallback",
    "horovod.keras.elastic": "run KerasState CommitStateCallback UpdateBatchStateCallback",
    "horovod.tensorflow.keras.callbacks": "BroadcastGlobalVariablesCallback LearningRateWarmupCallback",
    "horovod.keras.callbacks": "MetricAverageCallback LearningRateScheduleCallback BestModelCheckpoint",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.elastic": "State ObjectState",
    "horovod.common.exceptions": "HorovodInternalError HostsUpdatedInterrupt",
    "horovod.common.process_sets": "ProcessSet add_process_set remove_process_set global_process_set",
    "horovod.common.util": "gpu_available mpi_built nccl_built num_rank_is_power_2 split_list is_iterable",
}


def test_the_modules_that_scripts_import_have_their_names():
    names = {name: names.split() for name, names in MODULES.items()}
    for module in names:
        if module != "horovod.tensorflow.util":  # any of them may be the first one that a script imports
            assert set(names[module]) <= set(dir(importlib.import_module(module)))
    code = "import importlib, sys; importlib.import_module(sys.argv[1])"
    run(sys.executable, "-c", code, "horovod.common.util")


def test_the_names_are_listed_once_and_exist():
    for module in map(importlib.import_module, MODULES):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


def test_small_functions_of_the_modules_return_what_those_of_horovod_return():
    import tensorflow as tf

    from horovod.common import basics, util
    from horovod.tensorflow.util import refs_to_vars, vars_to_refs

    hvd.init()
    assert (basics.HorovodBasics("x").size(), basics.HorovodBasics().is_initialized()) == (1, True)
    assert [util.num_rank_is_power_2(count) for count in range(6)] == [False, True, True, False, True, False]
    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert util.is_iterable([]) and not util.is_iterable(1)
    choose = util.get_average_backwards_compatibility_fun()
    assert [choose(None, None), choose(None, False), choose(hvd.Max, None)] == [hvd.Average, hvd.Sum, hvd.Max]
    with pytest.raises(ValueError, match="give op alone"):
        choose(hvd.Sum, True)
    assert not util.gpu_available("torch")
    variables = [tf.Variable(1.0), (tf.Variable(2.0),)]
    refs = vars_to_refs(variables)
    assert hash(refs) == hash(vars_to_refs(variables))
    back = refs_to_vars(refs)
    assert back[0] is variables[0]
    assert back[1][0] is variables[1][0]


@pytest.mark.parametrize(
    "use",
    [
        lambda elastic: elastic.run(lambda state: None),
        lambda elastic: elastic.TensorFlowKerasState(None, batch=0),
        lambda elastic: elastic.CommitStateCallback(None),
    ],
)
def test_elastic_training_is_refused_by_name_with_what_to_do(use):
    with pytest.raises(NotImplementedError, match=r"hvd\.elastic\..*the number of ranks is fixed.*write checkpoints"):
        use(hvd.elastic)


def test_parts_of_horovods_own_optimizers_are_refused_by_name():
    from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper

    with pytest.raises(NotImplementedError, match=r"use hvd\.DistributedOptimizer"):
        LocalGradientAggregationHelper(2, None)


def test_a_timeline_of_one_rank_has_no_events(tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "timeline.json"))
    hvd.init()
    with pytest.raises(ValueError, match=r"has been started already: call hvd\.stop_timeline\(\) first"):
        hvd.start_timeline(str(tmp_path / "second.json"))
    assert not (tmp_path / "second.json").exists()
    hvd.stop_timeline()
    assert json.loads((tmp_path / "timeline.json").read_text()) == []
    for _ in range(2):  # a start that failed is none
        with pytest.raises(ValueError, match=r"hvd\.start_timeline: .*No such file"):
            hvd.start_timeline(str(tmp_path / "missing" / "timeline.json"))
    hvd.start_timeline(str(tmp_path / "second.json"))
    hvd.shutdown()
    hvd.init()  # starts the timeline of the environment: that of the group before has ended with it
    hvd.shutdown()
    monkeypatch.delenv("HOROVOD_TIMELINE")
    hvd.init(Numbers())
    with pytest.raises(ValueError, match="only exchanges arrays"):
        hvd.start_timeline(str(tmp_path / "timeline.json"))


def test_wrong_splits_of_one_rank_are_invalid():
    import tensorflow as tf

    hvd.init()
    assert [one.numpy().tolist() for one in hvd.alltoall(tf.range(4), splits=[3])] == [[0, 1, 2], [3]]
    assert hvd.alltoall(tf.range(4)).numpy().tolist() == [0, 1, 2, 3]
    for splits in ([5], [-1], [1, 1], [1.0]):
        for call in (hvd.alltoall, tf.function(hvd.alltoall)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="allowed"):
                call(tf.range(4), splits=splits)
