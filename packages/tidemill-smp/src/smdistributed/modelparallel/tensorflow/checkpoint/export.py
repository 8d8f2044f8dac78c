"""Exports one plain checkpoint of the whole model from all ranks; no rank ever holds all of it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import RankAgreement
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import OBJECT_GRAPH, Bundle, BundleWriter
from smdistributed.modelparallel.tensorflow.checkpoint.parts import help_to_write, write_part


def export(ranks: RankAgreement, checkpoint: tf.train.Checkpoint, target: Path) -> None:
    """Write the variables of all ranks as one checkpoint whose files begin with `target`. Collective.

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
        ranks.by_leader(f"export {target}", lambda: _merge(prefixes, target, room=parts / "merging"))
    finally:
        if ranks.is_leader:
            shutil.rmtree(parts, ignore_errors=True)


def _merge(parts: Sequence[Path], target: Path, *, room: Path) -> None:
    """Merge the bundles of the ranks into one.

    Args:
        parts: Prefixes by rank of the replica.
        target: The prefix of the new bundle.
        room: A directory to create for temporary files, on the file system of `target`.

    Raises:
        SMPCheckpointError: If the ranks saved different objects, or a bundle cannot be read.
    """
    bundles = [Bundle(part) for part in parts]
    writer = BundleWriter(room)
    written = {OBJECT_GRAPH}
    for bundle in bundles:
        for key in bundle.forms:
            if key not in written:
                writer.add(key, bundle.read(key))
                written.add(key)
    graph = _merged([bundle.object_graph() for bundle in bundles])
    writer.add(OBJECT_GRAPH, tf.constant(graph.SerializeToString()))
    writer.close(target)


def _merged(graphs: Sequence[Any]) -> Any:
    whole = type(graphs[0])()
    whole.CopyFrom(graphs[0])
    for rank, graph in enumerate(graphs):
        if len(graph.nodes) != len(whole.nodes):
            raise SMPCheckpointError(
                f"rank 0 of the replica has {len(whole.nodes)} objects in its checkpoint and rank {rank} "
                f"{len(graph.nodes)}: create tf.train.Checkpoint(...) with the same objects on all ranks"
            )
        for node, other in zip(whole.nodes, graph.nodes, strict=True):
            known = {attribute.checkpoint_key for attribute in node.attributes}
            node.attributes.extend(a for a in other.attributes if a.checkpoint_key not in known)
    return whole
