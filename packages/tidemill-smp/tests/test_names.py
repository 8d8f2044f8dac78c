"""The names and signatures on which scripts for SageMaker's library depend."""

import importlib
import inspect
from typing import Any

import pytest
import tensorflow as tf

import smdistributed.modelparallel.backend.exceptions as exceptions
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow import core, utils

SIGNATURES = {
    "init": "(config=None)",
    "step": "(function=None, *, non_split_inputs=None, input_split_axes=None, **options)",
    "partition": "(index)",
    "register_post_partition_hook": "(hook)",
    "send": "(obj, dest_rank, rank_type)",
    "recv_from": "(src_rank, rank_type)",
    "broadcast": "(obj, group)",
    "allgather": "(obj, group)",
    "barrier": "(group=<CommGroup.WORLD: 'world'>)",
    "mp_barrier": "()",
    "dp_barrier": "()",
    "DistributedModel.save_model": "(self, save_path='/opt/ml/model')",
    "DistributedModel.profile": "(self, *batch, **kwargs)",
    "CheckpointManager": "(checkpoint, directory='/opt/ml/checkpoints', max_to_keep=None, checkpoint_name='ckpt', "
    "**options)",
    "CheckpointManager.restore": "(self, restore_prefix=None)",
    "StepOutput.accumulate": "(self, method='variable', var=None)",
    "utils.send_checkpoint_files": "(root_dir, dst_rank)",
    "utils.receive_checkpoint_files": "(dst_root_dir, src_rank)",
    **{f"StepOutput.{name}": "(self)" for name in ("reduce_mean", "reduce_sum", "concat", "merge", "stack")},
    **{f"{kind}_{what}": "()" for kind in ("local", "mp", "dp", "pp", "tp", "rdp") for what in ("rank", "size")},
    **dict.fromkeys(("rank", "size", "get_mp_group", "get_dp_group", "core.rank"), "()"),
    "core.barrier": "(group=<CommGroup.WORLD: 'world'>)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_accept_the_arguments_that_scripts_pass(name: str) -> None:
    called: Any = smp
    for part in name.split("."):
        called = getattr(called, part)
    signature = inspect.signature(called)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[name]


def test_classes_have_the_bases_that_scripts_expect() -> None:
    assert issubclass(smp.DistributedModel, tf.keras.Model)
    assert issubclass(smp.CheckpointManager, tf.train.CheckpointManager)
    assert {group.name for group in smp.CommGroup} == {
        "WORLD", "MP_GROUP", "DP_GROUP", "PP_GROUP", "TP_GROUP", "RDP_GROUP",
    }  # fmt: skip
    assert all(getattr(smp, group.name) is group for group in smp.CommGroup)
    assert {"WORLD_RANK", "MP_RANK", "DP_RANK"} <= {kind.name for kind in smp.RankType}


def test_the_names_are_sorted_and_exist() -> None:
    api = importlib.import_module("smdistributed.modelparallel.tensorflow.api")
    constants_first = sorted(api.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert api.__all__ == constants_first
    for module in (api, core, utils, exceptions):
        assert all(hasattr(module, name) for name in module.__all__)
    assert set(api.__all__) <= set(dir(smp))
    assert not hasattr(smp, "DistributedOptimizer"), "which is that of PyTorch"


def test_every_exception_class_is_recognized_in_a_failure_reason() -> None:
    kinds = {name for name, value in vars(exceptions).items() if inspect.isclass(value)}
    assert kinds == set(exceptions.__all__)
    assert all(name.startswith("SMP") and issubclass(getattr(exceptions, name), exceptions.SMPError) for name in kinds)


NEEDS_INIT = {
    "rank": lambda: smp.rank(),
    "get_mp_group": lambda: smp.get_mp_group(),
    "tp_size": lambda: smp.tp_size(),
    "barrier": lambda: smp.barrier(),
    "allgather": lambda: smp.allgather(1, smp.WORLD),
    "recv_from": lambda: smp.recv_from(0, smp.RankType.WORLD_RANK),
    "step": lambda: smp.step(lambda x: x)(tf.ones([2])),
    "partition": lambda: smp.partition(0).__enter__(),
    "CheckpointManager": lambda: smp.CheckpointManager(tf.train.Checkpoint()),
    "register_post_partition_hook": lambda: smp.register_post_partition_hook(lambda: None),
    "send_checkpoint_files": lambda: smp.utils.send_checkpoint_files("/tmp", 0),
}


@pytest.mark.parametrize("name", NEEDS_INIT)
def test_a_function_that_needs_init_raises_before_it(name: str) -> None:
    assert smp.core.initialized is False
    with pytest.raises(exceptions.SMPNotInitializedError, match=r"call smp\.init\(\) first"):
        NEEDS_INIT[name]()
