"""Writes one rank's part of a checkpoint: the variables that it holds, and the graph of all objects."""

from pathlib import Path
from typing import Any, NoReturn

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.children import all_listed, lost_variables, objects_below
from smdistributed.modelparallel.tensorflow.checkpoint.sharded_slots import ShardedSlots, serve
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.optimizers.slots import is_sharding
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.variables import RemoteValues, RemoteVariable, reading_remote


def write_part(
    checkpoint: tf.train.Checkpoint, prefix: Path, options: tf.train.CheckpointOptions | None, *, seeds: bool = True
) -> None:
    """Write the variables that this rank holds.

    Args:
        options: How TensorFlow writes.
        seeds: Whether to write the seeds of random layers too.

    Raises:
        SMPCheckpointError: If variables of the model would be omitted silently, or have no values yet.
    """
    session = current()
    if not is_sharding(session):
        _write(checkpoint, prefix, options, _LeftOut(), seeds=seeds)
        return
    with all_listed(seeds=seeds):
        shared = ShardedSlots(session, checkpoint)
    try:
        _write(checkpoint, prefix, options, shared, seeds=seeds)
        shared.fill(prefix)
    finally:
        shared.release()


def help_to_write(checkpoint: tf.train.Checkpoint, *, seeds: bool = True) -> None:
    """Send sharded slots to the first replica while it calls `write_part`; the ranks of other replicas call this.

    Args:
        checkpoint: The same checkpoint as on the first replica.
        seeds: Whether states of random layers are listed.
    """
    if is_sharding(current()):
        with all_listed(seeds=seeds):
            serve(current(), checkpoint)


def _write(
    checkpoint: tf.train.Checkpoint,
    prefix: Path,
    options: tf.train.CheckpointOptions | None,
    remote_values: RemoteValues,
    *,
    seeds: bool,
) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with reading_remote(_LeftOut()), all_listed():
        lacking = engine().what_lacks_values(objects_below(checkpoint))
        if lacking:
            raise SMPCheckpointError(lacking)
        lost = [variable.name for variable in lost_variables(checkpoint)]
        if lost:
            raise SMPCheckpointError(
                f"{len(lost)} variables of the model would not be saved ({', '.join(lost[:5])}): they are in an "
                "object that TensorFlow does not track, or two layers in a set have the same name; keep the layers "
                "as attributes of the model, or in its lists and dictionaries"
            )
    with reading_remote(remote_values), all_listed(seeds=seeds):
        checkpoint.write(str(prefix), options=options)


class _LeftOut:
    """Writes remote variables as objects without a value into a rank's files."""

    def value(self, variable: RemoteVariable) -> NoReturn:
        variable._refuse("read")

    def tensors(self, variable: RemoteVariable) -> dict[str, Any]:
        return {}
