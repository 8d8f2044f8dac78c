"""Which traced functions train, and which of them several processes run together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill_tensorflow.compiler.graphs.nodes import communicates, is_training_step, nodes_of
from tidemill_tensorflow.compiler.several import job
from tidemill_tensorflow.compiler.several.agreement import Agreement
from tidemill_tensorflow.compiler.several.groups import group_of, group_of_smp, ranks_of_smp
from tidemill_tensorflow.compiler.several.pipelines import averages, is_measurement, is_pipeline
from tidemill_tensorflow.compiler.variants.shapes import FUSED, XLA
from tidemill_tensorflow.compiler.variants.trials import PLAIN

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def trains(concrete: ConcreteFunction) -> bool:
    """Return whether a traced function is a training step.

    Args:
        concrete: The function.
    """
    if job.model_parallelism() is not None and (is_measurement(concrete) or is_pipeline(nodes_of(concrete))):
        return not is_measurement(concrete)  # the part of a pipeline on one rank may have no gradients
    return is_training_step(concrete)


class Agreements:
    """The agreements of this process with others: one for all functions that communicate, or one for each pipeline."""

    def __init__(self) -> None:
        self._agreement: Agreement | None = None
        self._of_pipelines: dict[tuple[int, ...], Agreement] = {}

    def on(self, concrete: ConcreteFunction) -> Agreement | None:
        """Return the agreement on the variant of a training function, or None if this process runs it on its own.

        Args:
            concrete: The function.
        """
        if job.model_parallelism() is not None:
            return self._on_pipeline(concrete)
        nodes = [node for node in nodes_of(concrete) if communicates(node)]
        found = group_of(nodes) if nodes else None
        if found is None:
            return None
        self._agreement = self._agreement or Agreement(found, (PLAIN, XLA))
        return self._agreement

    def _on_pipeline(self, concrete: ConcreteFunction) -> Agreement | None:
        nodes = list(nodes_of(concrete))
        ranks = ranks_of_smp(averages=averages(nodes)) if is_pipeline(nodes) else ()
        if len(ranks) < 2:
            return None
        if ranks not in self._of_pipelines:
            self._of_pipelines[ranks] = Agreement(group_of_smp(ranks), (PLAIN, XLA, FUSED))
        return self._of_pipelines[ranks]
