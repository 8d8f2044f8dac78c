"""What one rank writes of a checkpoint: the variables that it holds, and the graph of all objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.children import all_listed, lost_variables
from smdistributed.modelparallel.tensorflow.engine.slots import replica_of
from smdistributed.modelparallel.tensorflow.engine.variables import ForeignVariable, standing_in

__all__ = ["write_part"]


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
        SMPCheckpointError: If variables of the model would be left out unnoticed.
    """
    prefix.parent.mkdir(parents=True, exist_ok=True)
    with standing_in(_LeftOut()), all_listed():
        lost = [variable.name for variable in lost_variables(checkpoint)]
        if lost:
            raise SMPCheckpointError(
                f"{len(lost)} variables of the model would not be saved ({', '.join(lost[:5])}): they are in an "
                "object that TensorFlow does not track, or two of a set's layers have one name; keep their layers "
                "as attributes of the model, or in its lists and dictionaries"
            )
    with standing_in(_LeftOut()), all_listed(seeds=seeds):
        checkpoint.write(str(prefix), options=options)


class _LeftOut:
    """In a rank's files, a variable of another rank has its place among the objects and no value."""

    def value(self, variable: ForeignVariable) -> Any:
        variable._refuse("read")

    def tensors(self, variable: ForeignVariable) -> dict[str, Any]:
        if replica_of(variable) is not None:
            raise SMPCheckpointError(
                f"{variable.name} cannot be written to a checkpoint, as 'shard_optimizer_state' is True: write "
                "checkpoints without the optimizer, or set it to False"
            )
        return {}
