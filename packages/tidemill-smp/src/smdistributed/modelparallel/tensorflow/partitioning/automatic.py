"""Automatic placement: computed, loaded from a file, or repeated from a checkpoint."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow.config import Config
from smdistributed.modelparallel.tensorflow.partitioning.cut import CutOptions, cut
from smdistributed.modelparallel.tensorflow.partitioning.file import load_partition, save_partition
from smdistributed.modelparallel.tensorflow.partitioning.manual import Rules, assign_by_rules
from smdistributed.modelparallel.tensorflow.partitioning.report import report
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

log = logging.getLogger("smdistributed.modelparallel")


@dataclasses.dataclass(frozen=True)
class Decision:
    """An assignment as stored in checkpoints, so that a restarted job repeats it."""

    graph: str
    """`UnitGraph.structure_hash` of the graph."""
    options: Mapping[str, Any]
    """The members of `CutOptions`; if they differ from the current ones, the cut is computed again."""
    assignment: Sequence[int]
    """Partition per unit."""

    @classmethod
    def of(cls, graph: UnitGraph, options: CutOptions, assignment: Sequence[int]) -> Decision:
        """Record an assignment.

        Args:
            assignment: Partition of each unit.

        Returns:
            The decision, which JSON can hold.
        """
        return cls(graph.structure_hash, dataclasses.asdict(options), list(assignment))

    def fits(self, graph: UnitGraph, options: CutOptions) -> bool:
        """Return whether this is an assignment of `graph` under `options`."""
        parts = range(options.partitions)
        return (
            self.graph == graph.structure_hash
            and self.options == dataclasses.asdict(options)
            and len(self.assignment) == len(graph.units)
            and all(type(part) is int and part in parts for part in self.assignment)
        )


def decide(graph: UnitGraph, config: Config, *, rank: int, kept: Decision | None = None) -> Decision:
    """Assign each unit to a partition; a pure function of the arguments, so that all ranks agree.

    If `partition_file` is set, rank 0 writes the assignment to it; if `load_partition` is True, the assignment is
    loaded from it instead of computed.

    Args:
        config: The parameters of `smp.init`.
        rank: The global rank of this process; rank 0 writes and logs.
        kept: An assignment to repeat.

    Raises:
        SMPPartitionError: If the model cannot be divided so, or the file does not match it.
    """
    options = cut_options(config)
    assignment: Sequence[int]
    if config.load_partition:
        if config.partition_file is None:
            raise SMPConfigurationError("'load_partition' is true: set 'partition_file' to the file to read")
        assignment = load_partition(config.partition_file, graph, partitions=config.partitions)
    else:
        assignment = cut(graph, options).assignment if kept is None else kept.assignment
        if config.partition_file is not None and rank == 0:
            save_partition(config.partition_file, graph, assignment, partitions=config.partitions)
    if rank == 0 and config.partitions > 1:
        again = "" if kept is None else " (as in the checkpoint)"
        log.info("partition%s\n%s", again, report(graph, assignment, options))
    return Decision.of(graph, options, assignment)


def follow(graph: UnitGraph, config: Config, rules: Rules) -> dict[str, int]:
    """Assign each unit to a partition by rules on layer names.

    Raises:
        SMPPartitionError: If a rule names a layer or a partition that does not exist.
    """
    default = config.default_partition or 0
    assignment = assign_by_rules(graph, rules, partitions=config.partitions, default=default)
    return {unit.name: part for unit, part in zip(graph.units, assignment, strict=True)}


def cut_options(config: Config) -> CutOptions:
    """Return the options of the cut that follow from the parameters of `smp.init`.

    Args:
        config: The configuration of `smp.init`.
    """
    return CutOptions(
        partitions=config.partitions,
        microbatches=config.microbatches,
        optimize="speed" if config.optimize == "speed" else "memory",
        pipeline="simple" if config.pipeline == "simple" else "interleaved",
        active_microbatches=config.active_microbatches,
        contiguous=config.contiguous,
    )
