"""What becomes of every argument of the public functions, and of every parameter of `smp.init`.

An argument is honored, without effect, or refused, and a test compares the tables with the signatures: nothing that a
script passes is dropped without a word. `*` and `**` stand before the names of those that collect what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["ARGUMENTS", "IDLE_PARAMETERS", "Argument", "Effect"]


class Effect(Enum):
    """What a function does with an argument."""

    HONORED = "honored"
    NONE = "without effect"
    REFUSED = "refused"
    """Raises an error that names it, unless the value is the default."""


@dataclass(frozen=True)
class Argument:
    """A row of the table."""

    effect: Effect
    note: str
    """What the argument does; why it does nothing; or why it is refused."""


def _honored(note: str) -> Argument:
    return Argument(Effect.HONORED, note)


def _refused(note: str) -> Argument:
    return Argument(Effect.REFUSED, note)


_GROUP = {"group": _honored("the ranks that take part")}
_PEER = _honored("how the rank is counted")
_FILE = _honored("where the file or directory is written")
_OVERWRITE = _honored("False refuses a path that exists")
_BATCH = _honored("inputs of one whole batch")
_MODEL_KWARGS = _honored("further arguments of the model's call")
_KERAS = _honored("as in Keras")
_VERBOSE = _honored("as in Keras on the first rank; the others print nothing")

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "CheckpointManager": {
        "checkpoint": _honored("what is saved"),
        "directory": _honored("holds a directory for each partition"),
        "max_to_keep": _honored("older checkpoints are removed"),
        "checkpoint_name": _honored("what the names of checkpoints begin with"),
        "**options": _honored("those of tf.train.CheckpointManager: intervals, step_counter, init_fn"),
    },
    "CheckpointManager.export": {"path": _FILE},
    "CheckpointManager.restore": {"restore_prefix": _honored("name in the rank's directory, or path of a checkpoint")},
    "CheckpointManager.save": {
        "checkpoint_number": _honored("number in the name"),
        "check_interval": _honored("whether checkpoint_interval may put the save off"),
        "options": _honored("how TensorFlow writes; writing in the background is refused"),
    },
    "DistributedModel.compile": {
        "*args": _KERAS,
        "jit_compile": _refused("a step that is spread over ranks cannot be compiled as a whole"),
        "**kwargs": _KERAS,
    },
    "DistributedModel.evaluate": {
        **dict.fromkeys(("x", "y", "batch_size"), _KERAS),
        "verbose": _VERBOSE,
        **dict.fromkeys(("*args", "**kwargs"), _KERAS),
    },
    "DistributedModel.export": {
        "filepath": _FILE,
        "format": _refused("a SavedModel is what all ranks can write together"),
        "verbose": Argument(Effect.NONE, "nothing is printed either way"),
        "input_signature": _refused("the inputs are those that the steps called the model with"),
        "**options": _refused("those of other formats"),
    },
    "DistributedModel.fit": {
        **dict.fromkeys(("x", "y", "batch_size", "epochs"), _KERAS),
        "verbose": _VERBOSE,
        "callbacks": _honored("as in Keras; BackupAndRestore is refused"),
        **dict.fromkeys(("*args", "**kwargs"), _KERAS),
    },
    "DistributedModel.load_weights": {"filepath": _honored("the file"), "**options": _KERAS},
    "DistributedModel.predict": {
        **dict.fromkeys(("x", "batch_size"), _KERAS),
        "verbose": _VERBOSE,
        **dict.fromkeys(("*args", "**kwargs"), _KERAS),
    },
    "DistributedModel.predict_step": {"data": _KERAS},
    "DistributedModel.profile": {"*batch": _BATCH, "**kwargs": _MODEL_KWARGS},
    "DistributedModel.save": {
        "filepath": _FILE,
        "overwrite": _OVERWRITE,
        "**options": _honored("as in Keras for a .keras file; refused for a SavedModel, but for save_format='tf'"),
    },
    "DistributedModel.save_keras": {"path": _FILE, "overwrite": _OVERWRITE, "**options": _KERAS},
    "DistributedModel.save_model": {"save_path": _FILE},
    "DistributedModel.save_weights": {
        "filepath": _FILE,
        "overwrite": _OVERWRITE,
        "max_shard_size": _refused("ranks write one file"),
        "**options": _KERAS,
    },
    "DistributedModel.set_weights": {"values": _honored("what get_weights returned")},
    "DistributedModel.test_step": {"data": _KERAS},
    "DistributedModel.train_step": {"data": _KERAS},
    "DistributedModel.wrap": {
        "model": _honored("the plain model"),
        "partitions": _honored("rules: which layers go where"),
    },
    "StepOutput": {
        "outputs": _honored("one value for each microbatch"),
        "shared_rows": _honored("rows of sparse gradients that are added up"),
    },
    "StepOutput.accumulate": {
        "method": _honored("how the mean is computed"),
        "var": _honored("where the mean goes with method='variable'; ignored by the others, as in SageMaker"),
    },
    "allgather": {"obj": _honored("anything that can be pickled"), **_GROUP},
    "barrier": _GROUP,
    "broadcast": {"obj": _honored("anything that can be pickled"), **_GROUP},
    "clip_by_global_norm": {
        "t_list": _honored("gradients of all variables"),
        "clip_norm": _honored("largest norm"),
        "use_norm": _honored("the global norm, if it is known"),
    },
    "init": {"config": _honored("the parameters; see `Config` and `IDLE_PARAMETERS`")},
    "local_variables": {"model": _honored("whose variables")},
    "partition": {"index": _honored("where the ops go, unless the library finds the cut, as in SageMaker")},
    "plan": {
        "model": _honored("what is cut"),
        "*batch": _BATCH,
        "partitions": _honored("number of parts"),
        "microbatches": _honored("pieces of the batch"),
        "optimize": _honored("memory or speed"),
        "loss": _honored("makes a scalar of the outputs"),
        "measured": _honored("whether layers are run to measure their times"),
        "**kwargs": _MODEL_KWARGS,
    },
    "recv_from": {"src_rank": _honored("the sender"), "rank_type": _PEER},
    "register_post_partition_hook": {"hook": _honored("called once the model is cut")},
    "send": {
        "obj": _honored("anything that can be pickled"),
        "dest_rank": _honored("the receiver"),
        "rank_type": _PEER,
    },
    "step": {
        "function": _honored("runs once for each microbatch"),
        "non_split_inputs": _honored("arguments that go whole"),
        "input_split_axes": _honored("axes to cut on"),
        "**options": _honored("input_signature and reduce_retracing; jit_compile is refused; others warn"),
    },
    "timeline": {"path": _honored("where the first rank writes")},
    "utils.receive_checkpoint_files": {
        "dst_root_dir": _honored("where the files go"),
        "src_rank": _honored("the sender, counted in the world"),
    },
    "utils.send_checkpoint_files": {
        "root_dir": _honored("holds this rank's directory"),
        "dst_rank": _honored("the receiver, counted in the world"),
    },
}
"""By function or method, and argument. Those without arguments are not listed."""

IDLE_PARAMETERS: Mapping[str, str] = {
    "memory_weight": "of SageMaker's library for PyTorch",
    "ddp_port": "of SageMaker's library for PyTorch; ranks meet by their launcher",
    "ddp_dist_backend": "of SageMaker's library for PyTorch; `transport` says how tensors travel",
    "xla": "compile the parts by tf.config.optimizer.set_jit(True)",
    "fork": "of SageMaker's library; ranks are started by the launcher",
    "deterministic_server": "of SageMaker's library for PyTorch; there is no server, and all ranks follow one schedule",
}
"""Parameters of `smp.init` that scripts for SageMaker give and that do nothing here, with the reason; a line in the log
says so. All others are honored."""
