"""HyperparameterTuner: search for the values of hyperparameters by many trainings of an estimator."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemill.sdk.arguments import in_order, present, tags_of
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.naming import check_name, image_base, tuning_name
from tidemill.sdk.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter, ranges_in_request
from tidemill.sdk.session import Session
from tidemill.sdk.submitted_tuning import HyperparameterTuningJobAnalytics, SubmittedTuning
from tidemill.sdk.tuned_estimator import TunedEstimator
from tidemill.sdk.tuning_settings import WarmStartConfig, WarmStartTypes
from tidemill.sdk.variable import deferrable

_SEVERAL = "TrainingJobDefinitions"


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
        estimator_name: Name of the estimator, as in `HyperparameterTuner.create`. Default: it has none.
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
        estimator_name: str | None = None,
        random_seed: int | None = None,
        autotune: bool = False,
        hyperparameters_to_keep_static: Sequence[str] | None = None,
    ) -> None:
        if not hyperparameter_ranges and not autotune:
            raise ValueError("hyperparameter_ranges is empty, so nothing would be tuned; give ranges, or autotune=True")
        first = TunedEstimator(
            name=estimator_name,
            estimator=estimator,
            objective_metric_name=objective_metric_name,
            ranges=dict(hyperparameter_ranges or {}),
            metric_definitions=metric_definitions,
            kept_static=tuple(hyperparameters_to_keep_static or ()),
        )
        self._tuned: list[TunedEstimator] = [first]
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
        # None before the first job. Any instead of a union: a client that has called fit() knows that there is a job.
        self.latest_tuning_job: Any = None

    @classmethod
    @in_order(
        *("estimator_dict", "objective_metric_name_dict", "hyperparameter_ranges_dict", "metric_definitions_dict"),
        *("base_tuning_job_name", "strategy", "strategy_config", "completion_criteria_config", "objective_type"),
        *("max_jobs", "max_parallel_jobs", "max_runtime_in_seconds", "tags", "warm_start_config"),
        *("early_stopping_type", "random_seed", "autotune", "hyperparameters_to_keep_static_dict"),
    )
    def create(
        cls,
        estimator_dict: Mapping[str, Any],
        objective_metric_name_dict: Mapping[str, str],
        hyperparameter_ranges_dict: Mapping[str, Mapping[str, Any]],
        metric_definitions_dict: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
        hyperparameters_to_keep_static_dict: Mapping[str, Sequence[str]] | None = None,
        **arguments: Any,
    ) -> "HyperparameterTuner":
        """Return a tuner of several estimators: one tuning job searches all of them for the best model.

        Args:
            estimator_dict: Estimators by a name of each.
            objective_metric_name_dict: Name of the metric to optimize, by the name of the estimator.
            hyperparameter_ranges_dict: Ranges, by the name of the estimator.
            metric_definitions_dict: Metrics, by the name of the estimator. Default: those of the estimators.
            hyperparameters_to_keep_static_dict: With ``autotune``, hyperparameters that are not tuned, by the name of
                the estimator.
            **arguments: Further arguments of `HyperparameterTuner`, for all estimators.

        Returns:
            The tuner, without a tuning job.

        Raises:
            ValueError: There is no estimator, an estimator has no metric or no ranges, or a name has no estimator.
        """
        names = sorted(estimator_dict)
        given = {
            "objective_metric_name_dict": objective_metric_name_dict,
            "hyperparameter_ranges_dict": hyperparameter_ranges_dict,
            "metric_definitions_dict": metric_definitions_dict or {},
            "hyperparameters_to_keep_static_dict": hyperparameters_to_keep_static_dict or {},
        }
        _check_names(names, given)
        first = names[0] if names else ""
        tuner = cls(
            estimator_dict[first], objective_metric_name_dict[first], hyperparameter_ranges_dict[first], **arguments
        )
        tuner._tuned = [
            TunedEstimator(
                name=name,
                estimator=estimator_dict[name],
                objective_metric_name=objective_metric_name_dict[name],
                ranges=dict(hyperparameter_ranges_dict[name]),
                metric_definitions=(metric_definitions_dict or {}).get(name),
                kept_static=tuple((hyperparameters_to_keep_static_dict or {}).get(name, ())),
            )
            for name in names
        ]
        return tuner

    @property
    def estimator(self) -> Any:
        """The estimator; None for several."""
        return None if self._has_several else self._tuned[0].estimator

    @property
    def estimator_dict(self) -> dict[str, Any] | None:
        """The estimators by name; None for one without a name."""
        return {each.name or "": each.estimator for each in self._tuned} if self._has_several else None

    @property
    def objective_metric_name(self) -> str | None:
        """Name of the metric to optimize; None for several estimators."""
        return None if self._has_several else self._tuned[0].objective_metric_name

    @property
    def metric_definitions(self) -> Sequence[Mapping[str, str]] | None:
        """Metrics to read from the log in place of the estimator's; None for several estimators."""
        return None if self._has_several else self._tuned[0].metric_definitions

    @property
    def sagemaker_session(self) -> Session:
        """The session of the first estimator."""
        return self._tuned[0].estimator.sagemaker_session

    def hyperparameter_ranges(self) -> dict[str, Sequence[dict[str, Any]]] | None:
        """Return ``ParameterRanges`` of the request.

        Returns:
            Lists of ranges by kind; None for several estimators.
        """
        return None if self._has_several else ranges_in_request(dict(self._tuned[0].ranges))

    def hyperparameter_ranges_dict(self) -> dict[str, dict[str, Sequence[dict[str, Any]]]] | None:
        """Return the ranges of several estimators.

        Returns:
            Lists of ranges by kind, by the name of the estimator; None for one without a name.
        """
        if not self._has_several:
            return None
        return {each.name or "": ranges_in_request(dict(each.ranges)) for each in self._tuned}

    @deferrable("create_hyper_parameter_tuning_job")
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
            inputs: As for `TensorFlow.fit`; of several estimators, such inputs by the name of the estimator.
            job_name: Name of the tuning job, at most 32 characters. Default: a generated name.
            include_cls_metadata: Ignored: the image names the estimator.
            estimator_kwargs: Ignored: it belongs to AWS's own algorithms.
            wait: Whether to return only when the job has ended.

        Raises:
            JobFailed: The tuning job failed: no training succeeded.
            ValueError: An input is not usable.
        """
        del include_cls_metadata, estimator_kwargs
        name = self._name() if job_name is None else check_name("job_name", job_name)
        request = self._request(name, inputs)
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
        """Return the tuner of an existing tuning job.

        Args:
            tuning_job_name: Name of the tuning job.
            sagemaker_session: A `Session` of this SDK or of AWS's SDK. Default: a new one for the service.
            job_details: A description of the job. Default: it is asked for.
            estimator_cls: Ignored: the estimators are `TensorFlow`.

        Returns:
            A tuner, for `best_training_job`, `deploy`, `wait` and so on.

        Raises:
            ValueError: The trainings were not started by an estimator.
        """
        del estimator_cls
        session = Session.adopt(sagemaker_session)
        job = SubmittedTuning(session, tuning_job_name)
        found = job_details or job.describe()
        config = found["HyperParameterTuningJobConfig"]
        limits, objective = config["ResourceLimits"], config.get("HyperParameterTuningJobObjective", {})
        warm = found.get("WarmStartConfig")
        if "TrainingJobDefinition" in found:
            given = [(found["TrainingJobDefinition"], objective, config.get("ParameterRanges", {}))]
        else:
            given = [(each, each["TuningObjective"], each.get("HyperParameterRanges", {})) for each in found[_SEVERAL]]
        tuned = [_tuned_of(*each, session=session) for each in given]
        tuner = cls(
            tuned[0].estimator,
            tuned[0].objective_metric_name,
            tuned[0].ranges,
            strategy=config["Strategy"],
            objective_type=given[0][1]["Type"],
            max_jobs=limits.get("MaxNumberOfTrainingJobs"),
            max_parallel_jobs=limits["MaxParallelTrainingJobs"],
            max_runtime_in_seconds=limits.get("MaxRuntimeInSeconds"),
            early_stopping_type=config["TrainingJobEarlyStoppingType"],
            random_seed=config.get("RandomSeed"),
            warm_start_config=_warm_start_of(warm) if warm else None,
            autotune="Autotune" in found,
        )
        tuner._tuned = tuned
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
                f" {', '.join(sorted({each.objective_metric_name for each in self._tuned}))}"
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
        if self._has_several:
            raise ValueError(
                "this tuner has several estimators; give HyperparameterTuner.create(...) a WarmStartConfig with the"
                " name of its tuning job"
            )
        tuned = self._tuned[0]
        return HyperparameterTuner(
            estimator,
            tuned.objective_metric_name,
            tuned.ranges,
            metric_definitions=tuned.metric_definitions,
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

    @property
    def _has_several(self) -> bool:
        """Whether the estimators have names, as those of `create` have."""
        return self._tuned[0].name is not None

    def _name(self) -> str:
        base = self.base_tuning_job_name or image_base(self._tuned[0].estimator.training_image_uri())
        return tuning_name(base)

    def _request(self, name: str, inputs: Any) -> dict[str, Any]:
        """Return the request, after uploading code and inputs."""
        several = self._has_several
        if several and inputs is not None and set(inputs) != {each.name for each in self._tuned}:
            raise ValueError(
                f"inputs={inputs!r}; expected a dictionary with the inputs of each estimator by its name:"
                f" {', '.join(each.name or '' for each in self._tuned)}"
            )
        definitions, all_tags, alone = list[Any](), list[Any](), dict[str, Any]()
        for each in self._tuned:
            own = inputs[each.name] if several and inputs is not None else inputs
            definition, ranges, tags = each.written(name, own, autotune=self.autotune)
            objective = {"Type": self.objective_type, "MetricName": each.objective_metric_name}
            if several:
                definition |= {
                    "DefinitionName": each.name,
                    "TuningObjective": objective,
                    "HyperParameterRanges": ranges,
                }
            else:
                alone = {"HyperParameterTuningJobObjective": objective, "ParameterRanges": ranges}
            definitions.append(definition)
            all_tags.append(tags)
        return present(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig=present(
                Strategy=self.strategy,
                StrategyConfig=_sent(self.strategy_config),
                ResourceLimits=present(
                    MaxNumberOfTrainingJobs=self.max_jobs,
                    MaxParallelTrainingJobs=self.max_parallel_jobs,
                    MaxRuntimeInSeconds=self.max_runtime_in_seconds,
                ),
                TrainingJobEarlyStoppingType=self.early_stopping_type,
                TuningJobCompletionCriteria=_sent(self.completion_criteria_config),
                RandomSeed=self.random_seed,
                **alone,
            ),
            TrainingJobDefinition=None if several else definitions[0],
            TrainingJobDefinitions=definitions if several else None,
            WarmStartConfig=_sent(self.warm_start_config),
            Tags=all_tags[0] if self.tags is None else tags_of(self.tags),
            Autotune={"Mode": "Enabled"} if self.autotune else None,
        )


def create_identical_dataset_and_algorithm_tuner(
    parent: str, additional_parents: Iterable[str] | None = None, sagemaker_session: Any = None
) -> HyperparameterTuner:
    """Return a tuner that continues an earlier tuning job with the same data and algorithm.

    Args:
        parent: Name of the tuning job.
        additional_parents: Names of further tuning jobs to learn from.
        sagemaker_session: The `Session` to use. Default: a new one.

    Returns:
        A new tuner, without a tuning job.
    """
    tuner = HyperparameterTuner.attach(parent, sagemaker_session=sagemaker_session)
    return tuner.identical_dataset_and_algorithm_tuner(additional_parents)


def create_transfer_learning_tuner(
    parent: str,
    additional_parents: Iterable[str] | None = None,
    estimator: Any = None,
    sagemaker_session: Any = None,
) -> HyperparameterTuner:
    """Return a tuner that learns from an earlier tuning job for other data or another algorithm.

    Args:
        parent: Name of the tuning job.
        additional_parents: Names of further tuning jobs to learn from.
        estimator: The new estimator. Default: that of the tuning job.
        sagemaker_session: The `Session` to use. Default: a new one.

    Returns:
        A new tuner, without a tuning job.
    """
    tuner = HyperparameterTuner.attach(parent, sagemaker_session=sagemaker_session)
    return tuner.transfer_learning_tuner(additional_parents, estimator)


def _check_names(names: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse dictionaries of `HyperparameterTuner.create` whose names do not fit those of the estimators."""
    if not names:
        raise ValueError("estimator_dict is empty; give at least one estimator by its name")
    for argument, values in given.items():
        unknown, missing = sorted(set(values) - set(names)), sorted(set(names) - set(values))
        if unknown or (missing and argument in ("objective_metric_name_dict", "hyperparameter_ranges_dict")):
            raise ValueError(
                f"{argument} has the names {', '.join(sorted(values))}; estimator_dict has {', '.join(names)}, and both"
                " have to be the same"
            )


def _tuned_of(
    definition: Mapping[str, Any], objective: Mapping[str, str], ranges: Mapping[str, Any], *, session: Session
) -> TunedEstimator:
    """Return a described definition with its estimator."""
    described = {"TrainingJobName": definition.get("DefinitionName", "tuning"), **definition}
    described["HyperParameters"] = definition["StaticHyperParameters"]
    return TunedEstimator(
        name=definition.get("DefinitionName") if "TuningObjective" in definition else None,
        estimator=TensorFlow.of_description(described, session=session),
        objective_metric_name=objective["MetricName"],
        ranges=_ranges_of(ranges),
        metric_definitions=definition["AlgorithmSpecification"].get("MetricDefinitions"),
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
