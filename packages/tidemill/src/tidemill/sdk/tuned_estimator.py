"""An estimator with what is tuned of it: one training job definition of a tuning job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.sdk.arguments import present
from tidemill.sdk.parameter import ranges_in_request

_SHARED = (
    "RoleArn",
    "InputDataConfig",
    "VpcConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "RetryStrategy",
    "Environment",
)
_ALGORITHM = ("TrainingImage", "TrainingInputMode", "MetricDefinitions")


@dataclass(frozen=True, kw_only=True)
class TunedEstimator:
    """One definition.

    Attributes:
        name: Name of the definition; None if it is the only one.
        estimator: Trains; its own hyperparameters are the same in all trainings.
        objective_metric_name: Name of the metric to optimize.
        ranges: `IntegerParameter`, `ContinuousParameter` or `CategoricalParameter` by name.
        metric_definitions: Metrics to read from the log. Default: the estimator's.
        kept_static: With ``autotune``, names of hyperparameters that are not tuned.
    """

    estimator: Any
    objective_metric_name: str
    ranges: Mapping[str, Any]
    name: str | None = None
    metric_definitions: Sequence[Mapping[str, str]] | None = None
    kept_static: Sequence[str] = ()

    def written(self, job_name: str, inputs: Any, *, autotune: bool) -> tuple[dict[str, Any], dict[str, Any], Any]:
        """Upload code and inputs, and return ``TrainingJobDefinition``, ``ParameterRanges`` and the estimator's tags.

        Args:
            job_name: Name of the tuning job.
            inputs: As for `TensorFlow.fit`.
            autotune: Whether the estimator's hyperparameters are tuned around their values, too.

        Raises:
            ValueError: An input is not usable, or the estimator runs a command.
        """
        training = self.estimator.training_request(job_name, inputs)
        algorithm = training["AlgorithmSpecification"]
        if "ContainerEntrypoint" in algorithm:
            raise ValueError("container_entry_point is not possible in a tuning job; give an entry_point")
        static = {key: text for key, text in training["HyperParameters"].items() if key not in self.ranges}
        ranges: dict[str, Any] = ranges_in_request(dict(self.ranges))
        if autotune:
            tuned = set(self.estimator.hyperparameters()) - self.ranges.keys() - set(self.kept_static)
            ranges["AutoParameters"] = [{"Name": key, "ValueHint": static.pop(key)} for key in sorted(tuned)]
        metrics = None if self.metric_definitions is None else [dict(each) for each in self.metric_definitions]
        definition = {
            **{member: training[member] for member in _SHARED if member in training},
            "StaticHyperParameters": static,
            "AlgorithmSpecification": {
                **{key: text for key, text in algorithm.items() if key in _ALGORITHM},
                **present(MetricDefinitions=metrics),
            },
        }
        return definition, ranges, training.get("Tags")
