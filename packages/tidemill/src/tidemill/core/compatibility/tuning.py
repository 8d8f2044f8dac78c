"""Rows of hyperparameter tuning: CreateHyperParameterTuningJob and the operations that find, list and stop jobs."""

from collections.abc import Mapping

from tidemill.core.compatibility import training
from tidemill.core.compatibility.rows import JOB_LIST, Honored, Recorded, Row, Rows, Unencrypted, honored

_SCALES = (
    "Auto is Logarithmic for a range above 0 that spans a factor of 1,000, and Linear otherwise. Logarithmic needs a"
    " MinValue above 0; ReverseLogarithmic is for continuous ranges from 0 to below 1"
)
_AS_TRAINING = "as in CreateTrainingJob"
_OF_TRAINING_JOBS_ONLY = (
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
    "AlgorithmSpecification.ContainerEntrypoint",
    "AlgorithmSpecification.ContainerArguments",
    "AlgorithmSpecification.TrainingImageConfig",
)
"""Members of a training job's request that a definition does not have."""


def _ranges(at: str) -> Rows:
    numbers: dict[str, Row] = {}
    for kind in ("IntegerParameterRanges", "ContinuousParameterRanges"):
        numbers |= {
            f"{at}.{kind}": Honored("refused with Strategy Grid, as on SageMaker"),
            **honored(f"{at}.{kind}[].Name", f"{at}.{kind}[].MinValue"),
            f"{at}.{kind}[].MaxValue": Honored("included"),
            f"{at}.{kind}[].ScalingType": Honored(_SCALES),
        }
    return {
        at: Honored("at least one range; no name has two ranges, or is one of StaticHyperParameters, too"),
        **numbers,
        **honored(f"{at}.CategoricalParameterRanges", f"{at}.CategoricalParameterRanges[].Name"),
        f"{at}.CategoricalParameterRanges[].Values": Honored("each value once"),
        f"{at}.AutoParameters": Honored("need Autotune"),
        f"{at}.AutoParameters[].Name": Honored(),
        f"{at}.AutoParameters[].ValueHint": Honored(
            "a number is tuned from a tenth to ten times of it on a logarithmic scale; a text, and a number that is not"
            " above 0, stays as it is"
        ),
    }


_CONFIG_AT = "HyperParameterTuningJobConfig"

_CONFIG: Rows = {
    _CONFIG_AT: Honored(),
    f"{_CONFIG_AT}.Strategy": Honored(
        "Bayesian models the objective (tree-structured Parzen estimator) after a few random trainings. Hyperband draws"
        " at random and stops trainings early. With the same seed, Random and Grid repeat their values always, Bayesian"
        " with one training at a time, and Hyperband its values always and its stops with one training at a time"
    ),
    f"{_CONFIG_AT}.StrategyConfig": Honored("with Strategy Hyperband only"),
    f"{_CONFIG_AT}.StrategyConfig.HyperbandStrategyConfig": Honored(
        "one unit of the resource is one value of the objective in the log"
    ),
    f"{_CONFIG_AT}.StrategyConfig.HyperbandStrategyConfig.MinResource": Honored("1 if it is not given"),
    f"{_CONFIG_AT}.StrategyConfig.HyperbandStrategyConfig.MaxResource": Honored(
        "a training that has logged so many values is stopped; without it, no training is stopped for that"
    ),
    f"{_CONFIG_AT}.HyperParameterTuningJobObjective": Honored("the last value in the log counts"),
    f"{_CONFIG_AT}.HyperParameterTuningJobObjective.Type": Honored(),
    f"{_CONFIG_AT}.HyperParameterTuningJobObjective.MetricName": Honored("one of the MetricDefinitions"),
    f"{_CONFIG_AT}.ResourceLimits": Honored(),
    f"{_CONFIG_AT}.ResourceLimits.MaxNumberOfTrainingJobs": Honored(
        "at most 750; with Grid, the number of combinations. It may be left out if another limit ends the job"
    ),
    f"{_CONFIG_AT}.ResourceLimits.MaxParallelTrainingJobs": Honored(
        "so many trainings are created at a time; those that find no room wait in the queue of all jobs"
    ),
    f"{_CONFIG_AT}.ResourceLimits.MaxRuntimeInSeconds": Honored("then running trainings are stopped"),
    **_ranges(f"{_CONFIG_AT}.ParameterRanges"),
    f"{_CONFIG_AT}.TrainingJobEarlyStoppingType": Honored(
        "Auto stops a training whose latest value of the objective is worse than the median of the running averages of"
        " at least 4 completed trainings. Refused with Hyperband, as on SageMaker"
    ),
    f"{_CONFIG_AT}.TuningJobCompletionCriteria": Honored("running trainings are stopped"),
    **honored(f"{_CONFIG_AT}.TuningJobCompletionCriteria.TargetObjectiveMetricValue"),
    **honored(f"{_CONFIG_AT}.TuningJobCompletionCriteria.BestObjectiveNotImproving"),
    f"{_CONFIG_AT}.TuningJobCompletionCriteria.BestObjectiveNotImproving.MaxNumberOfTrainingJobsNotImproving": Honored(
        "a training improves if its value is better by at least 1 % of the best value"
    ),
    f"{_CONFIG_AT}.TuningJobCompletionCriteria.ConvergenceDetected": Honored(),
    f"{_CONFIG_AT}.TuningJobCompletionCriteria.ConvergenceDetected.CompleteOnConvergence": Honored(
        "converged: 20 trainings have ended without an improvement of 1 %"
    ),
    f"{_CONFIG_AT}.RandomSeed": Honored("without it, each job has its own"),
}


def _definition(at: str) -> Rows:
    """Return the rows of a training job definition; those of training jobs apply to the members it shares with them."""
    shared = ("AlgorithmSpecification", "InputDataConfig", "OutputDataConfig", "ResourceConfig", "StoppingCondition")
    shared += ("CheckpointConfig", "RetryStrategy")
    rows: dict[str, Row] = {
        f"{at}.{path}": row
        for path, row in training.OPERATIONS["CreateTrainingJob"].items()
        if path.partition(".")[0].partition("[")[0] in shared and path not in _OF_TRAINING_JOBS_ONLY
    }
    resources = f"{at}.HyperParameterTuningResourceConfig"
    return {
        f"{at}.DefinitionName": Honored("needed if there are several"),
        f"{at}.TuningObjective": Honored("needed if there are several definitions; all have the same Type"),
        f"{at}.TuningObjective.Type": Honored(),
        f"{at}.TuningObjective.MetricName": Honored("one of the MetricDefinitions"),
        **_ranges(f"{at}.HyperParameterRanges"),
        f"{at}.StaticHyperParameters": Honored("with `_tuning_objective_metric`, which each training gets, too"),
        f"{at}.RoleArn": Honored(_AS_TRAINING),
        f"{at}.VpcConfig": Recorded("there is no network but this machine's"),
        **rows,
        resources: Honored("instead of ResourceConfig"),
        f"{resources}.InstanceType": Honored(_AS_TRAINING),
        f"{resources}.InstanceCount": Honored(_AS_TRAINING),
        f"{resources}.VolumeSizeInGB": Honored(_AS_TRAINING),
        f"{resources}.VolumeKmsKeyId": Unencrypted(names_key=True),
        f"{resources}.AllocationStrategy": Recorded("the first of InstanceConfigs is always available"),
        f"{resources}.InstanceConfigs": Honored("the first one is taken: every instance type is available"),
        **honored(f"{resources}.InstanceConfigs[].InstanceType", f"{resources}.InstanceConfigs[].InstanceCount"),
        **honored(f"{resources}.InstanceConfigs[].VolumeSizeInGB"),
        f"{at}.EnableNetworkIsolation": Honored(_AS_TRAINING),
        f"{at}.EnableInterContainerTrafficEncryption": Honored(_AS_TRAINING),
        f"{at}.EnableManagedSpotTraining": Honored(_AS_TRAINING),
        f"{at}.Environment": Honored(_AS_TRAINING),
    }


_CREATE: Rows = {
    "HyperParameterTuningJobName": Honored(),
    **_CONFIG,
    "TrainingJobDefinition": Honored(
        "its training jobs are ordinary ones: queue, isolation, logs and keys are the same"
    ),
    **_definition("TrainingJobDefinition"),
    "TrainingJobDefinitions": Honored("trainings go to the definitions in turn"),
    **_definition("TrainingJobDefinitions[]"),
    "WarmStartConfig": Honored("for jobs with one definition"),
    "WarmStartConfig.ParentHyperParameterTuningJobs": Honored(
        "they have ended, and have the same objective; a definition without MetricDefinitions gets theirs"
    ),
    "WarmStartConfig.ParentHyperParameterTuningJobs[].HyperParameterTuningJobName": Honored(),
    "WarmStartConfig.WarmStartType": Honored(
        "IdenticalDataAndAlgorithm needs the same image and InputDataConfig, and OverallBestTrainingJob covers the"
        " parents. Bayesian learns from the parents' trainings within the ranges; Random does not repeat their values"
    ),
    "Tags": Honored("the training jobs get them, too"),
    **honored("Tags[].Key", "Tags[].Value"),
    "Autotune": Honored("tunes AutoParameters; everything else must be given"),
    "Autotune.Mode": Honored(),
}

_NAME: Mapping[str, Row] = {"HyperParameterTuningJobName": Honored()}

OPERATIONS: Mapping[str, Rows] = {
    "CreateHyperParameterTuningJob": _CREATE,
    "DeleteHyperParameterTuningJob": {
        "HyperParameterTuningJobName": Honored("a job that has ended; its training jobs stay")
    },
    "DescribeHyperParameterTuningJob": _NAME,
    "ListHyperParameterTuningJobs": JOB_LIST,
    "ListTrainingJobsForHyperParameterTuningJob": {
        **_NAME,
        **honored("NextToken", "MaxResults", "StatusEquals"),
        "SortBy": Honored("FinalObjectiveMetricValue lists only trainings that have one, as on SageMaker"),
        "SortOrder": Honored(),
    },
    "StopHyperParameterTuningJob": _NAME,
}
