"""A plain checkpoint of the whole, made of what the ranks hold; no rank ever holds all of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import Agreement
from smdistributed.modelparallel.tensorflow.checkpoint.merging import merge
from smdistributed.modelparallel.tensorflow.checkpoint.parts import help_to_write, write_part

__all__ = ["export"]


def export(ranks: Agreement, checkpoint: tf.train.Checkpoint, target: Path) -> None:
    """Write what all ranks hold as one checkpoint whose files begin with `target`; on all ranks.

    Raises:
        SMPCheckpointError: If any rank could not write.
    """
    parts = target.parent / f".{target.name}.{ranks.token(str(target))}"
    prefixes = [parts / f"mp_rank_{rank}" / "part" for rank in range(ranks.partitions)]
    try:
        ranks.by_writers(
            f"export {target}",
            lambda: write_part(checkpoint, prefixes[ranks.mp_rank], None, seeds=False),
            helped_by=lambda: help_to_write(checkpoint, seeds=False),
        )
        ranks.by_leader(f"export {target}", lambda: merge(prefixes, target, room=parts / "merging"))
    finally:
        if ranks.is_leader:
            shutil.rmtree(parts, ignore_errors=True)
