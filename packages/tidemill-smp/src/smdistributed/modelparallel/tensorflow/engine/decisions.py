"""Which partition each unit of the models gets: from the script, from rules, or from an automatic cut."""

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, Variable
from smdistributed.modelparallel.tensorflow.engine.profile import UnitTimes, measure
from smdistributed.modelparallel.tensorflow.engine.real_inputs import inputs_of, values_of
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.engine.units import unit_graph
from smdistributed.modelparallel.tensorflow.memory import available_bytes
from smdistributed.modelparallel.tensorflow.partitioning.automatic import Decision, cut_options, decide, follow
from smdistributed.modelparallel.tensorflow.partitioning.context import partition_of
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph
from smdistributed.modelparallel.tensorflow.progress import doing
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.variables import Deferred

log = logging.getLogger("smdistributed.modelparallel")

_MEASURING_S = 10.0
"""Time limit for measuring the layers of a model before its first step; the times of further layers are estimated."""


class PartitionDecisions:
    """The partitions of units. Each model is decided once.

    Args:
        deferred: Initial values of variables that have no value before a step.
    """

    def __init__(self, session: RankSession, deferred: Deferred) -> None:
        self._session = session
        self._deferred = deferred
        self.automatic: dict[str, int] = {}
        """Unit -> partition, as rules or automatic partitioning assigned it."""
        self.times: dict[str, UnitTimes] = {}
        """Unit -> measured times."""
        self.cuts: list[Decision] = []
        """The automatic placement of each model, which checkpoints store."""
        self.kept_cuts: list[Decision] = []
        """The automatic placements of the restored checkpoint, repeated for models that have not changed."""
        self._models: dict[int, Any] = {}

    def partitions(self, traced: Trace, variables: Sequence[Variable], leaves: Sequence[Tensor]) -> Mapping[str, int]:
        """Return the partitions of the units of a trace; collective over the ranks if a model is new.

        Args:
            leaves: The tensors of the first microbatch, on which layers are measured if their values are known.

        Returns:
            Partition by name of a unit. Units that are missing follow the units around them.
        """
        config = self._session.config
        manual = {unit: partition_of(unit) for unit in traced.tracer.scopes if unit.startswith("partition:")}
        for model in traced.tracer.models:
            if id(model) in self._models or not (config.auto_partition or model._smp_rules is not None):
                continue
            self._models[id(model)] = model
            graph = unit_graph(traced, variables, self.times)
            if model._smp_rules is None:
                self.automatic |= self._decide(traced, variables, graph, leaves)
            else:
                self.automatic |= follow(graph, config, model._smp_rules)
        return manual | self.automatic

    def _decide(
        self, traced: Trace, variables: Sequence[Variable], graph: UnitGraph, leaves: Sequence[Tensor]
    ) -> dict[str, int]:
        """Place units by what rank 0 knows (a checkpoint's placement, or measured times), so that replicas agree."""
        config, rank = self._session.config, self._session.placement.rank
        kept = None
        if config.partitions > 1 and not config.load_partition:
            with tf.init_scope():
                found = self._kept_cut_and_times(traced, graph, leaves) if rank == 0 else None
                kept, times = self._session.world_group.allgather_objects(found, what="the automatic cut")[0]
            if times:
                self.times |= times
                graph = unit_graph(traced, variables, self.times)
        doing("cutting the model into partitions")
        decision = decide(graph, config, rank=rank, kept=kept)
        self.cuts.append(decision)
        return {unit.name: part for unit, part in zip(graph.units, decision.assignment, strict=True)}

    def _kept_cut_and_times(
        self, traced: Trace, graph: UnitGraph, leaves: Sequence[Tensor]
    ) -> tuple[Decision | None, dict[str, UnitTimes]]:
        options = cut_options(self._session.config)
        kept = next((one for one in self.kept_cuts if one.fits(graph, options)), None)
        known = any(unit.name in self.times for unit in graph.units)  # from `model.profile`, or from another model
        if kept is not None or known or not self._session.config.measure_layers:
            return kept, {}
        return None, self._measured(traced, graph, leaves)

    def _measured(self, traced: Trace, graph: UnitGraph, leaves: Sequence[Tensor]) -> dict[str, UnitTimes]:
        """Measure the layers on the library's own initiative, so that a failure must not end the job."""
        try:
            values = values_of(leaves)
            if values is None:
                log.info(
                    "smp: automatic partitioning uses estimated times: the first batch has no values while the step is "
                    "traced (it comes from an iterator inside a tf.function); model.profile(batch) measures them"
                )
                return {}
            doing("measuring the layers on the first microbatch")
            return self.measure(traced, graph, values, budget_s=_MEASURING_S)
        except Exception as error:  # noqa: BLE001 - a layer's graph may be refused in any way; the estimate serves all
            log.warning(
                "smp: the layers could not be measured (%s: %s); automatic partitioning uses estimated times",
                type(error).__name__,
                # without the lines before it, a traceback into tf.function
                str(error).strip().rpartition("\n")[2].strip(),
            )
            return {}

    def measure(
        self, traced: Trace, graph: UnitGraph, leaves: Sequence[Tensor], *, budget_s: float = math.inf
    ) -> dict[str, UnitTimes]:
        """Measure the units of a trace on a microbatch and copies of the variables, if this process can hold both.

        Args:
            graph: Its units, with their sizes.
            leaves: The values of the microbatch's tensors.
            budget_s: Time limit in seconds.
        """
        needed = sum(unit.parameter_bytes + 2 * unit.activation_bytes for unit in graph.units)
        available = available_bytes()
        if available is not None and needed > available // 2:
            log.warning(
                "smp: automatic partitioning uses estimated times: one process would need %.1f GB to measure the whole "
                "model on a microbatch, and %.1f GB are available",
                needed / 1e9,
                available / 1e9,
            )
            return {}
        return measure(traced, inputs_of(traced, leaves, self._deferred.values()), budget_s=budget_s)
