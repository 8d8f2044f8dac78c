"""Rows of the arguments of `tidemill.sdk` for hyperparameter tuning, by callable."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Row, Sent, honored

_CREATE = "CreateHyperParameterTuningJob"
_CONFIG = "HyperParameterTuningJobConfig"
_CRITERIA = f"{_CONFIG}.TuningJobCompletionCriteria"
_HYPERBAND = f"{_CONFIG}.StrategyConfig.HyperbandStrategyConfig"
_NAMED: Mapping[str, Row] = {"name": Honored()}
_REFRESH: Mapping[str, Row] = {"force_refresh": Recorded("nothing is kept, so every call asks")}
_SESSION: Mapping[str, Row] = {"sagemaker_session": Honored("None finds the service")}
_PARENTS: Mapping[str, Row] = {"additional_parents": Honored()}


def _range(kind: str) -> Mapping[str, Sent]:
    at = f"{_CONFIG}.ParameterRanges.{kind}ParameterRanges[]"
    members = {"min_value": "MinValue", "max_value": "MaxValue", "scaling_type": "ScalingType"}
    return {name: Sent(f"{at}.{member}", _CREATE) for name, member in members.items()}


_TUNER: Mapping[str, Row | Sent] = {
    "estimator": Honored("an estimator of tidemill"),
    "hyperparameter_ranges": Honored("ranges of AWS's SDK are accepted, too"),
    "base_tuning_job_name": Honored(),
    "estimator_name": Sent("TrainingJobDefinitions[].DefinitionName", _CREATE),
    "hyperparameters_to_keep_static": Honored("with autotune"),
    **{
        name: Sent(member, _CREATE)
        for name, member in {
            "objective_metric_name": f"{_CONFIG}.HyperParameterTuningJobObjective.MetricName",
            "metric_definitions": "TrainingJobDefinition.AlgorithmSpecification.MetricDefinitions",
            "strategy": f"{_CONFIG}.Strategy",
            "objective_type": f"{_CONFIG}.HyperParameterTuningJobObjective.Type",
            "max_jobs": f"{_CONFIG}.ResourceLimits.MaxNumberOfTrainingJobs",
            "max_parallel_jobs": f"{_CONFIG}.ResourceLimits.MaxParallelTrainingJobs",
            "max_runtime_in_seconds": f"{_CONFIG}.ResourceLimits.MaxRuntimeInSeconds",
            "tags": "Tags",
            "warm_start_config": "WarmStartConfig",
            "strategy_config": f"{_CONFIG}.StrategyConfig",
            "completion_criteria_config": _CRITERIA,
            "early_stopping_type": f"{_CONFIG}.TrainingJobEarlyStoppingType",
            "random_seed": f"{_CONFIG}.RandomSeed",
            "autotune": "Autotune",
        }.items()
    },
}

ARGUMENTS: Mapping[str, Mapping[str, Row | Sent]] = {
    "HyperparameterTuner": _TUNER,
    "HyperparameterTuner.fit": {
        "inputs": Honored(),
        "job_name": Sent("HyperParameterTuningJobName", _CREATE),
        "wait": Honored(),
        "include_cls_metadata": Recorded("the image names the estimator"),
        "estimator_kwargs": Recorded("it belongs to AWS's own algorithms"),
    },
    "HyperparameterTuner.create": {
        "estimator_dict": Honored("estimators of tidemill"),
        "hyperparameters_to_keep_static_dict": Honored("with autotune"),
        "objective_metric_name_dict": Sent("TrainingJobDefinitions[].TuningObjective.MetricName", _CREATE),
        "hyperparameter_ranges_dict": Sent("TrainingJobDefinitions[].HyperParameterRanges", _CREATE),
        "metric_definitions_dict": Sent("TrainingJobDefinitions[].AlgorithmSpecification.MetricDefinitions", _CREATE),
        "**arguments": Honored("as of HyperparameterTuner"),
    },
    "HyperparameterTuner.attach": {
        **_SESSION,
        **honored("tuning_job_name", "job_details"),
        "estimator_cls": Recorded("the estimators are `TensorFlow`"),
    },
    "HyperparameterTuner.best_estimator": {"best_training_job": Honored()},
    "HyperparameterTuner.deploy": {
        "initial_instance_count": Sent("ProductionVariants[].InitialInstanceCount", "CreateEndpointConfig"),
        "instance_type": Sent("ProductionVariants[].InstanceType", "CreateEndpointConfig"),
        "**arguments": Honored("those of `TensorFlow.deploy`"),
    },
    "HyperparameterTuner.identical_dataset_and_algorithm_tuner": _PARENTS,
    "HyperparameterTuner.transfer_learning_tuner": {**_PARENTS, "estimator": Honored()},
    "create_identical_dataset_and_algorithm_tuner": {**_PARENTS, **_SESSION, "parent": Honored()},
    "create_transfer_learning_tuner": {**_PARENTS, **_SESSION, "parent": Honored(), "estimator": Honored()},
    "HyperparameterTuningJobAnalytics": {**_SESSION, "hyperparameter_tuning_job_name": Honored()},
    "HyperparameterTuningJobAnalytics.description": _REFRESH,
    "HyperparameterTuningJobAnalytics.training_job_summaries": _REFRESH,
    "CategoricalParameter": {
        "values": Sent(f"{_CONFIG}.ParameterRanges.CategoricalParameterRanges[].Values", _CREATE),
    },
    "CategoricalParameter.as_json_range": _NAMED,
    "CategoricalParameter.as_tuning_range": _NAMED,
    "CategoricalParameter.is_valid": {"value": Honored()},
    "ContinuousParameter": _range("Continuous"),
    "IntegerParameter": _range("Integer"),
    "HyperbandStrategyConfig": {
        "max_resource": Sent(f"{_HYPERBAND}.MaxResource", _CREATE),
        "min_resource": Sent(f"{_HYPERBAND}.MinResource", _CREATE),
    },
    "StrategyConfig": {"hyperband_strategy_config": Sent(_HYPERBAND, _CREATE)},
    "TuningJobCompletionCriteriaConfig": {
        "max_number_of_training_jobs_not_improving": Sent(
            f"{_CRITERIA}.BestObjectiveNotImproving.MaxNumberOfTrainingJobsNotImproving", _CREATE
        ),
        "complete_on_convergence": Sent(f"{_CRITERIA}.ConvergenceDetected.CompleteOnConvergence", _CREATE),
        "target_objective_metric_value": Sent(f"{_CRITERIA}.TargetObjectiveMetricValue", _CREATE),
    },
    "WarmStartConfig": {
        "warm_start_type": Sent("WarmStartConfig.WarmStartType", _CREATE),
        "parents": Sent("WarmStartConfig.ParentHyperParameterTuningJobs", _CREATE),
    },
    "TensorFlow.training_request": {"job_name": Honored(), "inputs": Honored(), "experiment_config": Honored()},
    "TensorFlow.of_description": {"description": Honored(), "session": Honored()},
}
"""Rows by the name of a callable."""
