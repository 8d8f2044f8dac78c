"""Settings of a tuner that are objects of their own: warm start, Hyperband, and when a tuning job is complete."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemill.sdk.arguments import present


class WarmStartTypes(Enum):
    """What the parents of a warm start have in common with the new tuning job."""

    IDENTICAL_DATA_AND_ALGORITHM = "IdenticalDataAndAlgorithm"
    TRANSFER_LEARNING = "TransferLearning"


class WarmStartConfig:
    """Earlier tuning jobs from which a new one learns.

    Args:
        warm_start_type: A `WarmStartTypes`.
        parents: Names of one to five tuning jobs that have ended.

    Raises:
        ValueError: The type is unknown, or there is no parent.
    """

    def __init__(self, warm_start_type: WarmStartTypes, parents: Iterable[str]) -> None:
        self.type = WarmStartTypes(warm_start_type)
        self.parents = {parents} if isinstance(parents, str) else set(parents)
        if not self.parents:
            raise ValueError("parents is empty; give the names of tuning jobs that have ended")

    def to_input_req(self) -> dict[str, Any]:
        """Return ``WarmStartConfig`` of the request.

        Returns:
            The member in the API's form.
        """
        parents = [{"HyperParameterTuningJobName": name} for name in sorted(self.parents)]
        return {"WarmStartType": self.type.value, "ParentHyperParameterTuningJobs": parents}


@dataclass
class HyperbandStrategyConfig:
    """The resource of Hyperband, counted in values of the objective in a training's log, e.g. epochs.

    Attributes:
        max_resource: A training that has logged so many values is stopped.
        min_resource: Values that every training may log.
    """

    max_resource: int
    min_resource: int

    def to_input_req(self) -> dict[str, Any]:
        """Return ``HyperbandStrategyConfig`` of the request.

        Returns:
            The member in the API's form.
        """
        return {"MinResource": self.min_resource, "MaxResource": self.max_resource}


@dataclass
class StrategyConfig:
    """Settings of a strategy.

    Attributes:
        hyperband_strategy_config: Of Hyperband.
    """

    hyperband_strategy_config: HyperbandStrategyConfig

    def to_input_req(self) -> dict[str, Any]:
        """Return ``StrategyConfig`` of the request.

        Returns:
            The member in the API's form.
        """
        return {"HyperbandStrategyConfig": self.hyperband_strategy_config.to_input_req()}


@dataclass
class TuningJobCompletionCriteriaConfig:
    """When a tuning job is complete before its number of trainings is reached.

    Attributes:
        max_number_of_training_jobs_not_improving: So many trainings in a row have not improved the best value by 1 %.
        complete_on_convergence: Whether it is complete when the search has converged.
        target_objective_metric_value: A training has reached this value.
    """

    max_number_of_training_jobs_not_improving: int | None = None
    complete_on_convergence: bool | None = None
    target_objective_metric_value: float | None = None

    def to_input_req(self) -> dict[str, Any]:
        """Return ``TuningJobCompletionCriteria`` of the request.

        Returns:
            The member in the API's form.
        """
        most, converges = self.max_number_of_training_jobs_not_improving, self.complete_on_convergence
        chosen = "Enabled" if converges else "Disabled"
        return present(
            BestObjectiveNotImproving=None if most is None else {"MaxNumberOfTrainingJobsNotImproving": most},
            TargetObjectiveMetricValue=self.target_objective_metric_value,
            ConvergenceDetected=None if converges is None else {"CompleteOnConvergence": chosen},
        )
