"""Effect of every argument of the public functions, and of every parameter of `smp.init`.

An argument is honored, without effect, or refused. A test compares the tables with the signatures, so that no argument
of a script is ignored silently. Variadic arguments have their `*` or `**` in the name.
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
    """Raises an error that names the argument, unless the value is the default."""


@dataclass(frozen=True)
class Argument:
    """A row of the table."""

    effect: Effect
    note: str
    """What the argument does, why it has no effect, or why it is refused."""


def _honored(note: str) -> Argument:
    return Argument(Effect.HONORED, note)


def _refused(note: str) -> Argument:
    return Argument(Effect.REFUSED, note)


_GROUP = {"group": _honored("the participating ranks")}
_PEER = _honored("the group in which the rank is counted")
_FILE = _honored("path of the file or directory to write")
_OVERWRITE = _honored("False refuses an existing path")
_BATCH = _honored("inputs of one whole batch")
_MODEL_KWARGS = _honored("further arguments of the model's call")
_KERAS = _honored("as in Keras")
_VERBOSE = _honored("as in Keras on the first rank; the others print nothing")

ARGUMENTS: Mapping[str, Mapping[str, Argument]] = {
    "CheckpointManager": {
        "checkpoint": _honored("the tf.train.Checkpoint to save"),
        "directory": _honored("root with one directory per partition"),
        "max_to_keep": _honored("number of checkpoints to keep; older ones are removed"),
        "checkpoint_name": _honored("prefix of the names of checkpoints"),
        "**options": _honored("those of tf.train.CheckpointManager: intervals, step_counter, init_fn"),
    },
    "CheckpointManager.export": {"path": _FILE},
    "CheckpointManager.restore": {"restore_prefix": _honored("name in the rank's directory, or path of a checkpoint")},
    "CheckpointManager.save": {
        "checkpoint_number": _honored("number in the name"),
        "check_interval": _honored("whether to skip the save if checkpoint_interval has not passed"),
        "options": _honored("tf.train.CheckpointOptions; asynchronous writing is refused"),
    },
    "DistributedModel.compile": {
        "*args": _KERAS,
        "jit_compile": _refused("XLA cannot compile a step that spans ranks as a whole"),
        "**kwargs": _KERAS,
    },
    "DistributedModel.evaluate": {
        **dict.fromkeys(("x", "y", "batch_size"), _KERAS),
        "verbose": _VERBOSE,
        **dict.fromkeys(("*args", "**kwargs"), _KERAS),
    },
    "DistributedModel.export": {
        "filepath": _FILE,
        "format": _refused("a SavedModel is the only format that the ranks can export together"),
        "verbose": Argument(Effect.NONE, "nothing is printed either way"),
        "input_signature": _refused("the inputs have the signature with which the steps called the model"),
        "**options": _refused("options of other formats"),
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
        "**options": _honored("as in Keras for a .keras file; a SavedModel accepts tf_keras's save_format='tf' only"),
    },
    "DistributedModel.save_keras": {"path": _FILE, "overwrite": _OVERWRITE, "**options": _KERAS},
    "DistributedModel.save_model": {"save_path": _FILE},
    "DistributedModel.save_weights": {
        "filepath": _FILE,
        "overwrite": _OVERWRITE,
        "max_shard_size": _refused("the ranks write one file together"),
        "**options": _KERAS,
    },
    "DistributedModel.set_weights": {"values": _honored("the list that get_weights returned")},
    "DistributedModel.test_on_batch": dict.fromkeys(("*args", "**kwargs"), _KERAS),
    "DistributedModel.test_step": {"data": _KERAS},
    "DistributedModel.train_on_batch": dict.fromkeys(("*args", "**kwargs"), _KERAS),
    "DistributedModel.train_step": {"data": _KERAS},
    "DistributedModel.wrap": {
        "model": _honored("the plain model"),
        "partitions": _honored("partition by name or path of a layer"),
    },
    "StepOutput": {
        "outputs": _honored("one value per microbatch"),
        "shared_rows": _honored("number of leading rows of sparse gradients that are summed"),
    },
    "StepOutput.accumulate": {
        "method": _honored("how the mean is computed"),
        "var": _honored("variable that receives the mean if method='variable'; ignored otherwise, as in SageMaker"),
    },
    "allgather": {"obj": _honored("anything that can be pickled"), **_GROUP},
    "barrier": _GROUP,
    "broadcast": {"obj": _honored("anything that can be pickled"), **_GROUP},
    "clip_by_global_norm": {
        "t_list": _honored("gradients of all variables"),
        "clip_norm": _honored("largest norm"),
        "use_norm": _honored("the global norm, if it is already known"),
    },
    "init": {"config": _honored("the parameters; see `Config` and `IDLE_PARAMETERS`")},
    "local_variables": {"model": _honored("the model to list")},
    "partition": {"index": _honored("partition of the ops; ignored if auto_partition is True, as in SageMaker")},
    "plan": {
        "model": _honored("the model to cut"),
        "*batch": _BATCH,
        "partitions": _honored("number of partitions"),
        "microbatches": _honored("number of microbatches"),
        "optimize": _honored("memory or speed"),
        "loss": _honored("function from the outputs to a scalar"),
        "measured": _honored("whether to run layers to measure their times"),
        "**kwargs": _MODEL_KWARGS,
    },
    "recv_from": {"src_rank": _honored("the sender"), "rank_type": _PEER},
    "register_post_partition_hook": {"hook": _honored("called after the model is partitioned")},
    "send": {
        "obj": _honored("anything that can be pickled"),
        "dest_rank": _honored("the receiver"),
        "rank_type": _PEER,
    },
    "step": {
        "function": _honored("runs once for each microbatch"),
        "non_split_inputs": _honored("arguments that each microbatch receives whole"),
        "input_split_axes": _honored("axes to split on"),
        "**options": _honored("input_signature and reduce_retracing; jit_compile is refused; others warn"),
    },
    "timeline": {"path": _honored("the file that rank 0 writes")},
    "utils.receive_checkpoint_files": {
        "dst_root_dir": _honored("root directory that receives the files"),
        "src_rank": _honored("mp_rank of the sender"),
    },
    "utils.send_checkpoint_files": {
        "root_dir": _honored("root directory that contains this rank's directory"),
        "dst_rank": _honored("mp_rank of the receiver"),
    },
}
"""By function or method, then by argument. Functions without arguments are not listed."""

IDLE_PARAMETERS: Mapping[str, str] = {
    "memory_weight": "a parameter of SageMaker's library for PyTorch",
    "ddp_port": "a parameter of SageMaker's library for PyTorch; ranks meet through their launcher",
    "ddp_dist_backend": "a parameter of SageMaker's library for PyTorch; `transport` chooses how tensors travel",
    "xla": "compile the parts with tf.config.optimizer.set_jit(True)",
    "fork": "a parameter of SageMaker's library; the launcher starts the ranks",
    "deterministic_server": "a parameter of SageMaker's library for PyTorch; here all ranks follow one schedule, "
    "without a server",
}
"""Parameters of `smp.init` that are accepted for SageMaker's scripts and have no effect, with the reason that
`smp.init` logs. All other parameters are honored."""
