"""The metrics that `fit` and `evaluate` tell callbacks: of the whole model, and with `ddp` of all replicas.

A metric that a layer keeps is on the rank of that layer, and each replica has seen its share of the data. Callbacks
that were told different things would decide differently: one rank would stop, and the others wait for it. So what
metrics have counted is brought together at the end of an epoch, as `tf.distribute` does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.engine.variables import (
    ForeignVariable,
    is_foreign,
    standing_in,
    tensorflow_variable,
)
from smdistributed.modelparallel.tensorflow.session import Session, current

__all__ = ["results_here", "results_of_all"]

_WHAT = "metrics of fit or evaluate"


def results_here(model: Any) -> dict[str, Any]:
    """The results of those metrics that this rank holds, from what this replica has seen."""
    return _results(metric for metric in model.metrics if not any(map(is_foreign, metric.variables)))


def results_of_all(model: Any, logs: Any) -> Any:
    """What callbacks are told at the end of an epoch; collective over the replica, and with `ddp` over all replicas.

    Args:
        model: The model, whose metrics keep what this replica has counted.
        logs: What the last step of this rank gave. If it is something else than the metrics, as a `train_step` of the
            script's own may give, the mean over the replicas takes the place of the metrics.

    Returns:
        Numbers or arrays by name, the same on all ranks.

    Raises:
        SMPUsageError: If the logs of the replicas have not the same names.
    """
    session = current()
    variables = [tensorflow_variable(variable) for metric in model.metrics for variable in metric.variables]
    is_of_metrics = isinstance(logs, dict) and logs.keys() == results_here(model).keys()
    held = {place: variable.numpy() for place, variable in enumerate(variables) if not is_foreign(variable)}
    ranks = session.mp_group.allgather_objects((is_of_metrics, held), what=_WHAT)
    if not all(flag for flag, _ in ranks):
        return _mean_of_logs(logs, session)
    values = {place: value for _, part in reversed(ranks) for place, value in part.items()}
    if _is_shared_out(session):
        replicas = session.dp_group.allgather_objects(values, what=_WHAT)
        values = {
            place: _together([replica[place] for replica in replicas], variable)
            for place, variable in enumerate(variables)
        }
    with _holding(variables, values):
        return tf.nest.map_structure(_plain, _results(model.metrics))


class _Values:
    """Stands in for the metrics of other ranks."""

    def __init__(self, values: Mapping[int, Any]) -> None:
        self._values = values
        """By the id of a variable."""

    def value(self, variable: ForeignVariable) -> Any:
        """The value, as a tensor."""
        return tf.constant(self._values[id(variable)], variable.dtype)

    def tensors(self, variable: ForeignVariable) -> dict[str, Any]:
        """What is written to a checkpoint."""
        return {"VARIABLE_VALUE": self.value(variable)}


@contextmanager
def _holding(variables: Sequence[Any], values: Mapping[int, Any]) -> Iterator[None]:
    """Let variables have other values inside; those of other ranks, too."""
    before = {place: variable.numpy() for place, variable in enumerate(variables) if not is_foreign(variable)}
    try:
        for place in before:
            variables[place].assign(values[place])
        with standing_in(_Values({id(variable): values[place] for place, variable in enumerate(variables)})):
            yield
    finally:
        for place, value in before.items():
            variables[place].assign(value)


def _results(metrics: Any) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for metric in metrics:
        result = metric.result()
        results.update(result if isinstance(result, dict) else {metric.name: result})
    return results


def _together(values: Sequence[Any], variable: Any) -> Any:
    """What metrics count adds up, unless the metric says something else."""
    aggregation = variable.aggregation
    if aggregation == tf.VariableAggregation.SUM:
        return sum(values[1:], start=values[0])
    if aggregation == tf.VariableAggregation.MEAN:
        return np.mean(values, 0).astype(values[0].dtype)
    return values[0]


def _mean_of_logs(logs: Any, session: Session) -> Any:
    if not isinstance(logs, dict) or not _is_shared_out(session):
        return logs
    replicas = session.dp_group.allgather_objects(tf.nest.map_structure(_plain, logs), what=_WHAT)
    if any(other.keys() != logs.keys() for other in replicas):
        raise SMPUsageError(
            f"the last steps of the replicas gave {[sorted(other) for other in replicas]}; train_step and test_step "
            "must give the same names in all replicas, since callbacks get the means"
        )
    return tf.nest.map_structure(_mean, *replicas)


def _mean(*values: Any) -> Any:
    return _plain(np.mean(values, 0))


def _is_shared_out(session: Session) -> bool:
    return session.config.ddp and session.dp_group.size > 1


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array
