"""Metrics that `fit` and `evaluate` pass to callbacks: for the whole model, and with `ddp` for all replicas.

The metrics of a layer are on the rank of that layer, and each replica processes its share of the data. If callbacks
received different values, they would decide differently: one rank would stop, and the others wait for it. So the
variables of metrics are combined over all ranks at the end of an epoch, as in `tf.distribute`.
"""

import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import (
    KerasMetric,
    KerasModel,
    Logs,
    Tensor,
    TensorLike,
    Variable,
)
from smdistributed.modelparallel.tensorflow.keras_api import in_order_of_metrics
from smdistributed.modelparallel.tensorflow.session import RankSession, current
from smdistributed.modelparallel.tensorflow.variables import (
    RemoteVariable,
    is_remote,
    reading_remote,
    tensorflow_variable,
)

_WHAT = "metrics of fit or evaluate"


def results_here(model: KerasModel) -> dict[str, Any]:
    """Return the results of the metrics that this rank holds, for the data of this replica.

    Args:
        model: A compiled model.
    """
    return _results(metric for metric in model.metrics if not any(map(is_remote, metric.variables)))


def results_of_all(model: KerasModel, logs: Logs) -> Logs:
    """Return the logs that callbacks receive at the end of an epoch.

    Collective over the replica, and with `ddp` over all replicas.

    Args:
        model: The model, whose metrics contain the counts of this replica.
        logs: The result of this rank's last step. If its names are not those of the metrics, because the script defines
            its own `train_step`, the means over the replicas are returned instead of the metrics.

    Returns:
        Numbers or arrays by name, equal on all ranks.

    Raises:
        SMPUsageError: If the logs of the replicas have different names.
    """
    session = current()
    variables = [tensorflow_variable(variable) for metric in model.metrics for variable in metric.variables]
    is_of_metrics = isinstance(logs, dict) and logs.keys() == results_here(model).keys()
    held = {place: variable.numpy() for place, variable in enumerate(variables) if not is_remote(variable)}
    ranks = session.mp_group.allgather_objects((is_of_metrics, held), what=_WHAT)
    if not all(flag for flag, _ in ranks):
        return _mean_of_logs(logs, session)
    values = {place: value for _, part in reversed(ranks) for place, value in part.items()}
    if _is_data_parallel(session):
        replicas = session.dp_group.allgather_objects(values, what=_WHAT)
        values = {
            place: _combined([replica[place] for replica in replicas], variable)
            for place, variable in enumerate(variables)
        }
    with _holding_values(variables, values):
        return tf.nest.map_structure(_plain, _results(model.metrics))


def on_batch(
    model: KerasModel, function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> float | list[float] | Logs:
    """Return what Keras's `train_on_batch` or `test_on_batch` returns, for the data of all replicas.

    Args:
        function: The method of Keras.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    given = inspect.signature(function).bind(*args, **kwargs)
    as_dictionary = given.arguments.get("return_dict", False)
    given.arguments["return_dict"] = True
    logs = results_of_all(model, function(*given.args, **given.kwargs))
    return logs if as_dictionary else in_order_of_metrics(model, logs)


class _Values:
    """Provides the values of metric variables of other ranks."""

    def __init__(self, values: Mapping[int, np.ndarray]) -> None:
        self._values = values
        """Values by id of the variable."""

    def value(self, variable: RemoteVariable) -> Tensor:
        """Return the value as a tensor."""
        return tf.constant(self._values[id(variable)], variable.dtype)

    def tensors(self, variable: RemoteVariable) -> dict[str, Any]:
        """Return the tensors to write to a checkpoint."""
        return {"VARIABLE_VALUE": self.value(variable)}


@contextmanager
def _holding_values(variables: Sequence[Variable], values: Mapping[int, np.ndarray]) -> Generator[None]:
    """Replace the values of variables inside this context, including those of other ranks."""
    before = {place: variable.numpy() for place, variable in enumerate(variables) if not is_remote(variable)}
    try:
        for place in before:
            variables[place].assign(values[place])
        with reading_remote(_Values({id(variable): values[place] for place, variable in enumerate(variables)})):
            yield
    finally:
        for place, value in before.items():
            variables[place].assign(value)


def _results(metrics: Iterable[KerasMetric]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for metric in metrics:
        result = metric.result()
        results.update(result if isinstance(result, dict) else {metric.name: result})
    return results


def _combined(values: Sequence[np.ndarray], variable: Variable) -> np.ndarray:
    """Combine the replicas' values of a metric variable: their sum, unless its `aggregation` says otherwise."""
    aggregation = variable.aggregation
    if aggregation == tf.VariableAggregation.SUM:
        return sum(values[1:], start=values[0])
    if aggregation == tf.VariableAggregation.MEAN:
        return np.mean(values, 0).astype(values[0].dtype)
    return values[0]


def _mean_of_logs(logs: Logs, session: RankSession) -> Logs:
    if not isinstance(logs, dict) or not _is_data_parallel(session):
        return logs
    replicas = session.dp_group.allgather_objects(tf.nest.map_structure(_plain, logs), what=_WHAT)
    if any(other.keys() != logs.keys() for other in replicas):
        raise SMPUsageError(
            f"the last steps of the replicas returned {[sorted(other) for other in replicas]}; train_step and "
            "test_step must return the same names in all replicas, because callbacks receive the means"
        )
    return tf.nest.map_structure(_mean, *replicas)


def _mean(*values: TensorLike) -> float | np.ndarray:
    return _plain(np.mean(values, 0))


def _is_data_parallel(session: RankSession) -> bool:
    return session.config.ddp and session.dp_group.size > 1


def _plain(value: TensorLike) -> float | np.ndarray:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array
