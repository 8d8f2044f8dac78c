"""What one rank writes of a checkpoint: the variables that it holds, and the graph of all objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.children import all_listed, lost_variables, objects_below
from smdistributed.modelparallel.tensorflow.checkpoint.shared_slots import SharedSlots, serve
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.engine.slots import is_sharding
from smdistributed.modelparallel.tensorflow.engine.variables import ForeignVariable, StandIn, standing_in
from smdistributed.modelparallel.tensorflow.session import current

__all__ = ["help_to_write", "write_part"]


def write_part(
    checkpoint: tf.train.Checkpoint, prefix: Path, options: tf.train.CheckpointOptions | None, *, seeds: bool = True
) -> None:
    """Write what this rank holds.

    Args:
        checkpoint: What to write.
        prefix: What the files begin with.
        options: How TensorFlow writes.
        seeds: Whether the seeds of random layers are written too.

    Raises:
        SMPCheckpointError: If variables of the model would be left out unnoticed, or have no values yet.
    """
    session = current()
    if not is_sharding(session):
        _write(checkpoint, prefix, options, _LeftOut(), seeds=seeds)
        return
    with all_listed(seeds=seeds):
        shared = SharedSlots(session, checkpoint)
    try:
        _write(checkpoint, prefix, options, shared, seeds=seeds)
        shared.fill(prefix)
    finally:
        shared.release()


def help_to_write(checkpoint: tf.train.Checkpoint, *, seeds: bool = True) -> None:
    """On ranks of other replicas, while the first one calls `write_part`: give it what they keep for it."""
    if is_sharding(current()):
        with all_listed(seeds=seeds):
            serve(current(), checkpoint)


def _write(checkpoint: tf.train.Checkpoint, prefix: Path, options: Any, stand_in: StandIn, *, seeds: bool) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with standing_in(_LeftOut()), all_listed():
        lacking = engine().what_lacks_values(objects_below(checkpoint))
        if lacking:
            raise SMPCheckpointError(lacking)
        lost = [variable.name for variable in lost_variables(checkpoint)]
        if lost:
            raise SMPCheckpointError(
                f"{len(lost)} variables of the model would not be saved ({', '.join(lost[:5])}): they are in an "
                "object that TensorFlow does not track, or two of a set's layers have one name; keep their layers "
                "as attributes of the model, or in its lists and dictionaries"
            )
    with standing_in(stand_in), all_listed(seeds=seeds):
        checkpoint.write(str(prefix), options=options)


class _LeftOut:
    """In a rank's files, a variable of another rank has its place among the objects and no value."""

    def value(self, variable: ForeignVariable) -> Any:
        variable._refuse("read")

    def tensors(self, variable: ForeignVariable) -> dict[str, Any]:
        return {}
