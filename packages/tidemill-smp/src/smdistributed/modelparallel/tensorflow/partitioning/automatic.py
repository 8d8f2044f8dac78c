"""The decision of the automatic cut: searched for, or read from a file."""

from __future__ import annotations

import logging

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow.config import Config
from smdistributed.modelparallel.tensorflow.partitioning.cut import CutOptions, cut
from smdistributed.modelparallel.tensorflow.partitioning.file import load_partition, save_partition
from smdistributed.modelparallel.tensorflow.partitioning.manual import Rules, assign_by_rules
from smdistributed.modelparallel.tensorflow.partitioning.report import report
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

__all__ = ["cut_options", "decide", "follow"]

log = logging.getLogger("smdistributed.modelparallel")


def decide(graph: UnitGraph, config: Config, *, rank: int) -> dict[str, int]:
    """Give each unit its partition; a pure function of graph and configuration, so that all ranks agree.

    With `partition_file`, rank 0 writes the decision there; with `load_partition` it is read instead of searched for.

    Raises:
        SMPPartitionError: If the model cannot be cut so, or the file does not fit it.
    """
    options = cut_options(config)
    if config.load_partition:
        if config.partition_file is None:
            raise SMPConfigurationError("'load_partition' is true: set 'partition_file' to the file to read")
        assignment = load_partition(config.partition_file, graph, partitions=config.partitions)
    else:
        assignment = cut(graph, options).assignment
        if config.partition_file is not None and rank == 0:
            save_partition(config.partition_file, graph, assignment, partitions=config.partitions)
    if rank == 0 and config.partitions > 1:
        log.info("partition\n%s", report(graph, assignment, options))
    return {unit.name: part for unit, part in zip(graph.units, assignment, strict=True)}


def follow(graph: UnitGraph, config: Config, rules: Rules) -> dict[str, int]:
    """Give each unit its partition by rules on names of layers.

    Raises:
        SMPPartitionError: If a rule names a layer or a partition that does not exist.
    """
    default = config.default_partition or 0
    assignment = assign_by_rules(graph, rules, partitions=config.partitions, default=default)
    return {unit.name: part for unit, part in zip(graph.units, assignment, strict=True)}


def cut_options(config: Config) -> CutOptions:
    """What the cut depends on besides the graph."""
    return CutOptions(
        partitions=config.partitions,
        microbatches=config.microbatches,
        optimize="speed" if config.optimize == "speed" else "memory",
        pipeline="simple" if config.pipeline == "simple" else "interleaved",
        active_microbatches=config.active_microbatches,
        contiguous=config.contiguous,
    )
