"""Make one plain checkpoint of those of the ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import OBJECT_GRAPH, Bundle, BundleWriter

__all__ = ["merge"]


def merge(parts: Sequence[Path], target: Path, *, room: Path) -> None:
    """Write the bundles of the ranks as one.

    Args:
        parts: Prefixes by rank of the replica.
        target: The prefix of the new bundle.
        room: A directory to be made for files in the making, on the file system of `target`.

    Raises:
        SMPCheckpointError: If the ranks have saved different objects, or a bundle cannot be read.
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
                f"{len(graph.nodes)}: make tf.train.Checkpoint(...) of the same objects on all ranks"
            )
        for node, other in zip(whole.nodes, graph.nodes, strict=True):
            known = {attribute.checkpoint_key for attribute in node.attributes}
            node.attributes.extend(a for a in other.attributes if a.checkpoint_key not in known)
    return whole
