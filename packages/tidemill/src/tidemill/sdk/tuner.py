"""HyperparameterTuner: search for the values of hyperparameters by many trainings of an estimator."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill.sdk.arguments import present, tags_of
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.naming import check_name, image_base, tuning_name
from tidemill.sdk.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter, ranges_in_request
from tidemill.sdk.session import Session
from tidemill.sdk.submitted_tuning import HyperparameterTuningJobAnalytics, SubmittedTuning
from tidemill.sdk.tuning_settings import WarmStartConfig, WarmStartTypes

__all__ = ["HyperparameterTuner"]

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


class HyperparameterTuner:
    """Searches for hyperparameters: starts a tuning job, waits for it, and deploys the best model.

    Args:
        estimator: Trains; its own hyperparameters are the same in all trainings.
        objective_metric_name: Name of the metric to optimize, one of ``metric_definitions``.
        hyperparameter_ranges: `IntegerParameter`, `ContinuousParameter` or `CategoricalParameter` by name.
        metric_definitions: List of ``{"Name": ..., "Regex": ...}``: metrics to read from the log. Default: the
            estimator's.
        strategy: ``Bayesian``, ``Random``, ``Grid`` or ``Hyperband``.
        objective_type: ``Maximize`` or ``Minimize``.
        max_jobs: Number of trainings. Default: 1; for ``Grid``, all combinations.
        max_parallel_jobs: How many trainings run at the same time.
        max_runtime_in_seconds: Maximum duration of the tuning job. Default: no limit.
        tags: Tags of the tuning job and its trainings. Default: the estimator's.
        base_tuning_job_name: Prefix of generated names of tuning jobs.
        warm_start_config: A `WarmStartConfig`: earlier tuning jobs to learn from.
        strategy_config: A `StrategyConfig`, for Hyperband.
        completion_criteria_config: A `TuningJobCompletionCriteriaConfig`.
        early_stopping_type: ``Off``, or ``Auto`` to stop trainings that are worse than the median of earlier ones.
        random_seed: Seed of the search. Default: each tuning job has its own.
        autotune: Whether the estimator's hyperparameters are tuned around their values, too.
        hyperparameters_to_keep_static: With ``autotune``, names of hyperparameters that are not tuned.

    Raises:
        ValueError: There is nothing to tune.
    """

    # Every argument is spelled out instead of grouped in a record, because the signature is a published contract.
    def __init__(
        self,
        estimator: Any,
        objective_metric_name: str,
        hyperparameter_ranges: Mapping[str, Any] | None = None,
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        strategy: str = "Bayesian",
        objective_type: str = "Maximize",
        max_jobs: int | None = None,
        max_parallel_jobs: int = 1,
        max_runtime_in_seconds: int | None = None,
        tags: Any = None,
        base_tuning_job_name: str | None = None,
        warm_start_config: Any = None,
        strategy_config: Any = None,
        completion_criteria_config: Any = None,
        early_stopping_type: str = "Off",
        random_seed: int | None = None,
        autotune: bool = False,
        hyperparameters_to_keep_static: Sequence[str] | None = None,
    ) -> None:
        if not hyperparameter_ranges and not autotune:
            raise ValueError("hyperparameter_ranges is empty, so nothing would be tuned; give ranges, or autotune=True")
        self.estimator = estimator
        self.objective_metric_name = objective_metric_name
        self.metric_definitions = metric_definitions
        self.strategy = strategy
        self.objective_type = objective_type
        self.max_jobs = 1 if max_jobs is None and strategy != "Grid" else max_jobs
        self.max_parallel_jobs = max_parallel_jobs
        self.max_runtime_in_seconds = max_runtime_in_seconds
        self.tags = tags
        self.base_tuning_job_name = base_tuning_job_name
        self.warm_start_config = warm_start_config
        self.strategy_config = strategy_config
        self.completion_criteria_config = completion_criteria_config
        self.early_stopping_type = early_stopping_type
        self.random_seed = random_seed
        self.autotune = autotune
        self.hyperparameters_to_keep_static = tuple(hyperparameters_to_keep_static or ())
        self._ranges = dict(hyperparameter_ranges or {})
        # None before the first job. Any instead of a union: a client that has called fit() knows that there is a job.
        self.latest_tuning_job: Any = None

    @property
    def sagemaker_session(self) -> Session:
        """The session of the estimator."""
        return self.estimator.sagemaker_session

    def hyperparameter_ranges(self) -> dict[str, Sequence[dict[str, Any]]]:
        """Return ``ParameterRanges`` of the request.

        Returns:
            Lists of ranges by kind.
        """
        return ranges_in_request(self._ranges)

    def fit(
        self,
        inputs: Any = None,
        job_name: str | None = None,
        include_cls_metadata: bool = False,
        estimator_kwargs: Mapping[str, Any] | None = None,
        wait: bool = True,
    ) -> None:
        """Start a tuning job and, by default, wait for its end.

        Args:
            inputs: As for `TensorFlow.fit`.
            job_name: Name of the tuning job, at most 32 characters. Default: a generated name.
            include_cls_metadata: Ignored: the image names the estimator.
            estimator_kwargs: Ignored: it belongs to tuners of several estimators.
            wait: Whether to return only when the job has ended.

        Raises:
            JobFailed: The tuning job failed: no training succeeded.
            ValueError: An input is not usable.
        """
        del include_cls_metadata, estimator_kwargs
        name = self._name() if job_name is None else check_name("job_name", job_name)
        training = self.estimator.training_request(name, inputs)
        request = self._request(name, training)
        self.sagemaker_session.sagemaker_client.create_hyper_parameter_tuning_job(**request)
        self.latest_tuning_job = SubmittedTuning(self.sagemaker_session, name)
        if wait:
            self.latest_tuning_job.wait()

    @classmethod
    def attach(
        cls,
        tuning_job_name: str,
        sagemaker_session: Any = None,
        job_details: Mapping[str, Any] | None = None,
        estimator_cls: Any = None,
    ) -> "HyperparameterTuner":
        """Return the tuner of an existing tuning job with one definition.

        Args:
            tuning_job_name: Name of the tuning job.
            sagemaker_session: A `Session` of this SDK or of AWS's SDK. Default: a new one for the service.
            job_details: A description of the job. Default: it is asked for.
            estimator_cls: Ignored: the estimator is `TensorFlow`.

        Returns:
            A tuner, for `best_training_job`, `deploy`, `wait` and so on.

        Raises:
            ValueError: The job has several definitions.
        """
        del estimator_cls
        session = Session.adopt(sagemaker_session)
        job = SubmittedTuning(session, tuning_job_name)
        found = job_details or job.describe()
        if "TrainingJobDefinition" not in found:
            raise ValueError(
                f"tuning job {tuning_job_name} has several training job definitions; read its results by"
                " HyperparameterTuningJobAnalytics, and attach TensorFlow.attach(NAME) to its best training job"
            )
        definition, config = found["TrainingJobDefinition"], found["HyperParameterTuningJobConfig"]
        described = {"TrainingJobName": tuning_job_name, "HyperParameters": definition["StaticHyperParameters"]}
        estimator = TensorFlow.of_description({**definition, **described}, session=session)
        warm = found.get("WarmStartConfig")
        tuner = cls(
            estimator,
            config["HyperParameterTuningJobObjective"]["MetricName"],
            _ranges_of(config["ParameterRanges"]),
            metric_definitions=definition["AlgorithmSpecification"].get("MetricDefinitions"),
            strategy=config["Strategy"],
            objective_type=config["HyperParameterTuningJobObjective"]["Type"],
            max_jobs=config["ResourceLimits"]["MaxNumberOfTrainingJobs"],
            max_parallel_jobs=config["ResourceLimits"]["MaxParallelTrainingJobs"],
            early_stopping_type=config["TrainingJobEarlyStoppingType"],
            random_seed=config.get("RandomSeed"),
            warm_start_config=_warm_start_of(warm) if warm else None,
            autotune="Autotune" in found,
        )
        tuner.latest_tuning_job = job
        return tuner

    def describe(self) -> dict[str, Any]:
        """Return what DescribeHyperParameterTuningJob answers now.

        Returns:
            The answer as boto3 returns it.

        Raises:
            ValueError: There is no tuning job.
        """
        return self._latest().describe()

    def wait(self) -> None:
        """Wait for the end of the latest tuning job.

        Raises:
            JobFailed: The tuning job failed.
            ValueError: There is no tuning job.
        """
        self._latest().wait()

    def stop_tuning_job(self) -> None:
        """Ask the latest tuning job to stop.

        Raises:
            ValueError: There is no tuning job.
        """
        self._latest().stop()

    def best_training_job(self) -> str:
        """Return the name of the training job with the best objective so far.

        Returns:
            The name.

        Raises:
            ValueError: No training has an objective.
        """
        best = self.describe().get("BestTrainingJob")
        if best is None:
            raise ValueError(
                f"tuning job {self._latest().name} has no best training job yet: no training has ended with a value of"
                f" {self.objective_metric_name}"
            )
        return best["TrainingJobName"]

    def best_estimator(self, best_training_job: Mapping[str, Any] | None = None) -> TensorFlow:
        """Return the estimator of the best training job.

        Args:
            best_training_job: A training job to use instead, with ``TrainingJobName``.

        Returns:
            An estimator attached to the training job.

        Raises:
            ValueError: No training has an objective.
        """
        name = best_training_job["TrainingJobName"] if best_training_job else self.best_training_job()
        return TensorFlow.attach(name, sagemaker_session=self.sagemaker_session)

    def deploy(self, initial_instance_count: int = 1, instance_type: str = "local", **arguments: Any) -> Any:
        """Serve the model of the best training job at an endpoint.

        Args:
            initial_instance_count: Number of instances.
            instance_type: Type of these instances; ``local`` is this machine.
            **arguments: Arguments of `TensorFlow.deploy`.

        Returns:
            A predictor.

        Raises:
            ValueError: No training has an objective.
        """
        return self.best_estimator().deploy(initial_instance_count, instance_type, **arguments)

    def analytics(self) -> HyperparameterTuningJobAnalytics:
        """Return the results of the latest tuning job.

        Returns:
            The results, as a table or as summaries.

        Raises:
            ValueError: There is no tuning job.
        """
        return HyperparameterTuningJobAnalytics(self._latest().name, self.sagemaker_session)

    def identical_dataset_and_algorithm_tuner(
        self, additional_parents: Iterable[str] | None = None
    ) -> "HyperparameterTuner":
        """Return a tuner that continues this one with the same data and algorithm.

        Args:
            additional_parents: Names of further tuning jobs to learn from.

        Returns:
            A new tuner, without a tuning job.
        """
        return self._warm_started(WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM, additional_parents, self.estimator)

    def transfer_learning_tuner(
        self, additional_parents: Iterable[str] | None = None, estimator: Any = None
    ) -> "HyperparameterTuner":
        """Return a tuner that learns from this one for other data or another algorithm.

        Args:
            additional_parents: Names of further tuning jobs to learn from.
            estimator: The new estimator. Default: the same.

        Returns:
            A new tuner, without a tuning job.
        """
        return self._warm_started(WarmStartTypes.TRANSFER_LEARNING, additional_parents, estimator or self.estimator)

    def _warm_started(
        self, kind: WarmStartTypes, parents: Iterable[str] | None, estimator: Any
    ) -> "HyperparameterTuner":
        return HyperparameterTuner(
            estimator,
            self.objective_metric_name,
            self._ranges,
            metric_definitions=self.metric_definitions,
            strategy=self.strategy,
            objective_type=self.objective_type,
            max_jobs=self.max_jobs,
            max_parallel_jobs=self.max_parallel_jobs,
            warm_start_config=WarmStartConfig(kind, {self._latest().name, *(parents or ())}),
            early_stopping_type=self.early_stopping_type,
            random_seed=self.random_seed,
        )

    def _latest(self) -> SubmittedTuning:
        if self.latest_tuning_job is None:
            raise ValueError("this tuner has no tuning job; call fit() first, or use HyperparameterTuner.attach(NAME)")
        return self.latest_tuning_job

    def _name(self) -> str:
        base = self.base_tuning_job_name or image_base(self.estimator.training_image_uri())
        return tuning_name(base)

    def _request(self, name: str, training: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request, from the one of a training with the estimator's hyperparameters."""
        if "ContainerEntrypoint" in training["AlgorithmSpecification"]:
            raise ValueError("container_entry_point is not possible in a tuning job; give an entry_point")
        ranges: dict[str, Any] = self.hyperparameter_ranges()
        static = {key: text for key, text in training["HyperParameters"].items() if key not in self._ranges}
        if self.autotune:
            tuned = (
                set(self.estimator.hyperparameters()) - self._ranges.keys() - set(self.hyperparameters_to_keep_static)
            )
            ranges["AutoParameters"] = [{"Name": key, "ValueHint": static.pop(key)} for key in sorted(tuned)]
        algorithm = {key: text for key, text in training["AlgorithmSpecification"].items() if key in _ALGORITHM}
        if self.metric_definitions is not None:
            algorithm["MetricDefinitions"] = [dict(each) for each in self.metric_definitions]
        objective = {"Type": self.objective_type, "MetricName": self.objective_metric_name}
        return present(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig=present(
                Strategy=self.strategy,
                StrategyConfig=_sent(self.strategy_config),
                HyperParameterTuningJobObjective=objective,
                ResourceLimits=present(
                    MaxNumberOfTrainingJobs=self.max_jobs,
                    MaxParallelTrainingJobs=self.max_parallel_jobs,
                    MaxRuntimeInSeconds=self.max_runtime_in_seconds,
                ),
                ParameterRanges=ranges,
                TrainingJobEarlyStoppingType=self.early_stopping_type,
                TuningJobCompletionCriteria=_sent(self.completion_criteria_config),
                RandomSeed=self.random_seed,
            ),
            TrainingJobDefinition={
                **{member: training[member] for member in _SHARED if member in training},
                "StaticHyperParameters": static,
                "AlgorithmSpecification": algorithm,
            },
            WarmStartConfig=_sent(self.warm_start_config),
            Tags=training.get("Tags") if self.tags is None else tags_of(self.tags),
            Autotune={"Mode": "Enabled"} if self.autotune else None,
        )


def _sent(settings: Any) -> Any:
    """Return the member of an object with settings, of this SDK or of AWS's."""
    return None if settings is None else settings.to_input_req()


def _ranges_of(given: Mapping[str, Any]) -> dict[str, Any]:
    kinds: tuple[tuple[str, type[ContinuousParameter] | type[IntegerParameter], type], ...] = (
        ("ContinuousParameterRanges", ContinuousParameter, float),
        ("IntegerParameterRanges", IntegerParameter, int),
    )
    found: dict[str, Any] = {
        each["Name"]: CategoricalParameter([_decoded(text) for text in each["Values"]])
        for each in given.get("CategoricalParameterRanges", ())
    }
    for member, kind, number in kinds:
        for each in given.get(member, ()):
            ends = number(each["MinValue"]), number(each["MaxValue"])
            found[each["Name"]] = kind(*ends, each.get("ScalingType", "Auto"))
    return found


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _warm_start_of(given: Mapping[str, Any]) -> WarmStartConfig:
    parents = [each["HyperParameterTuningJobName"] for each in given["ParentHyperParameterTuningJobs"]]
    return WarmStartConfig(WarmStartTypes(given["WarmStartType"]), parents)
