"""Effect of every argument of the public functions.

An argument is honored, without effect, or refused. A test compares the table with the signatures, so that no argument
of a script is ignored silently. Variadic arguments have their `*` or `**` in the name.
"""

from collections.abc import Mapping

from argument_effects import ArgumentRow, honored, refused, without_effect

_GROUP = {"group": honored("the participating ranks")}
_PEER = honored("the group in which the rank is counted")
_FILE = honored("path of the file or directory to write")
_OVERWRITE = honored("False refuses an existing path")
_BATCH = honored("inputs of one whole batch")
_MODEL_KWARGS = honored("further arguments of the model's call")
_KERAS = honored("as in Keras")
_VERBOSE = honored("as in Keras on the first rank; the others print nothing")

ARGUMENTS: Mapping[str, Mapping[str, ArgumentRow]] = {
    "CheckpointManager": {
        "checkpoint": honored("the tf.train.Checkpoint to save"),
        "directory": honored("root with one directory per partition"),
        "max_to_keep": honored("number of checkpoints to keep; older ones are removed"),
        "checkpoint_name": honored("prefix of the names of checkpoints"),
        "**options": honored("those of tf.train.CheckpointManager: intervals, step_counter, init_fn"),
    },
    "CheckpointManager.export": {"path": _FILE},
    "CheckpointManager.restore": {"restore_prefix": honored("name in the rank's directory, or path of a checkpoint")},
    "CheckpointManager.save": {
        "checkpoint_number": honored("number in the name"),
        "check_interval": honored("whether to skip the save if checkpoint_interval has not passed"),
        "options": honored("tf.train.CheckpointOptions; asynchronous writing is refused"),
    },
    "DistributedModel.compile": {
        "*args": _KERAS,
        "jit_compile": refused("XLA cannot compile a step that spans ranks as a whole"),
        "**kwargs": _KERAS,
    },
    "DistributedModel.evaluate": {
        **dict.fromkeys(("x", "y", "batch_size"), _KERAS),
        "verbose": _VERBOSE,
        **dict.fromkeys(("*args", "**kwargs"), _KERAS),
    },
    "DistributedModel.export": {
        "filepath": _FILE,
        "format": refused("a SavedModel is the only format that the ranks can export together"),
        "verbose": without_effect("nothing is printed either way"),
        "input_signature": refused("the inputs have the signature with which the steps called the model"),
        "**options": refused("options of other formats"),
    },
    "DistributedModel.fit": {
        **dict.fromkeys(("x", "y", "batch_size", "epochs"), _KERAS),
        "verbose": _VERBOSE,
        "callbacks": honored("as in Keras; BackupAndRestore is refused"),
        **dict.fromkeys(("*args", "**kwargs"), _KERAS),
    },
    "DistributedModel.load_weights": {"filepath": honored("the file"), "**options": _KERAS},
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
        "**options": honored("as in Keras for a .keras file; a SavedModel accepts tf_keras's save_format='tf' only"),
    },
    "DistributedModel.save_keras": {"path": _FILE, "overwrite": _OVERWRITE, "**options": _KERAS},
    "DistributedModel.save_model": {"save_path": _FILE},
    "DistributedModel.save_weights": {
        "filepath": _FILE,
        "overwrite": _OVERWRITE,
        "max_shard_size": refused("the ranks write one file together"),
        "**options": _KERAS,
    },
    "DistributedModel.set_weights": {"values": honored("the list that get_weights returned")},
    "DistributedModel.test_on_batch": dict.fromkeys(("*args", "**kwargs"), _KERAS),
    "DistributedModel.test_step": {"data": _KERAS},
    "DistributedModel.train_on_batch": dict.fromkeys(("*args", "**kwargs"), _KERAS),
    "DistributedModel.train_step": {"data": _KERAS},
    "DistributedModel.wrap": {
        "model": honored("the plain model"),
        "partitions": honored("partition by name or path of a layer"),
    },
    "StepOutput": {
        "outputs": honored("one value per microbatch"),
        "shared_rows": honored("number of leading rows of sparse gradients that are summed"),
    },
    "StepOutput.accumulate": {
        "method": honored("how the mean is computed"),
        "var": honored("variable that receives the mean if method='variable'; ignored otherwise, as in SageMaker"),
    },
    "allgather": {"obj": honored("anything that can be pickled"), **_GROUP},
    "barrier": _GROUP,
    "broadcast": {"obj": honored("anything that can be pickled"), **_GROUP},
    "clip_by_global_norm": {
        "t_list": honored("gradients of all variables"),
        "clip_norm": honored("largest norm"),
        "use_norm": honored("the global norm, if it is already known"),
    },
    "init": {"config": honored("the parameters; see `Config` and `IDLE_PARAMETERS`")},
    "local_variables": {"model": honored("the model to list")},
    "partition": {"index": honored("partition of the ops; ignored if auto_partition is True, as in SageMaker")},
    "plan": {
        "model": honored("the model to cut"),
        "*batch": _BATCH,
        "partitions": honored("number of partitions"),
        "microbatches": honored("number of microbatches"),
        "optimize": honored("memory or speed"),
        "loss": honored("function from the outputs to a scalar"),
        "measured": honored("whether to run layers to measure their times"),
        "**kwargs": _MODEL_KWARGS,
    },
    "recv_from": {"src_rank": honored("the sender"), "rank_type": _PEER},
    "register_post_partition_hook": {"hook": honored("called after the model is partitioned")},
    "send": {
        "obj": honored("anything that can be pickled"),
        "dest_rank": honored("the receiver"),
        "rank_type": _PEER,
    },
    "step": {
        "function": honored("runs once for each microbatch"),
        "non_split_inputs": honored("arguments that each microbatch receives whole"),
        "input_split_axes": honored("axes to split on"),
        "**options": honored("input_signature and reduce_retracing; jit_compile is refused; others warn"),
    },
    "timeline": {"path": honored("the file that rank 0 writes")},
    "utils.receive_checkpoint_files": {
        "dst_root_dir": honored("root directory that receives the files"),
        "src_rank": honored("mp_rank of the sender"),
    },
    "utils.send_checkpoint_files": {
        "root_dir": honored("root directory that contains this rank's directory"),
        "dst_rank": honored("mp_rank of the receiver"),
    },
}
"""By function or method, then by argument. Functions without arguments are not listed."""
