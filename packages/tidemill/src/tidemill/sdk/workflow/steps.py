"""Steps of a pipeline."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, TypedDict, Unpack

from tidemill.sdk.arguments import check_options, in_order
from tidemill.sdk.expressions import Join, Properties, PropertyFile
from tidemill.sdk.naming import base_of
from tidemill.sdk.variable import StepArguments, StepContext
from tidemill.sdk.workflow.conditions import Condition
from tidemill.sdk.workflow.options import CacheConfig, RetryPolicy

__all__ = [
    "ConditionStep",
    "CreationOptions",
    "FailStep",
    "ProcessingStep",
    "Step",
    "StepCollection",
    "StepOptions",
    "TrainingStep",
    "TransformStep",
    "TuningStep",
]


class CreationOptions(TypedDict, total=False):
    """What steps have in common that create or register a model.

    Attributes:
        display_name: Name to show. Default: the step's name.
        description: A text.
        depends_on: Steps, or their names, that have to succeed first, besides those whose results the step needs.
        retry_policies: `RetryPolicy` objects.
    """

    display_name: str | None
    description: str | None
    depends_on: Sequence[Any] | None
    retry_policies: Sequence[RetryPolicy] | None


class StepOptions(CreationOptions, total=False):
    """What other steps have in common, which can have been executed before.

    Attributes:
        cache_config: A `CacheConfig`.
    """

    cache_config: CacheConfig | None


class Step(ABC):
    """A step of a pipeline.

    Args:
        name: Name of the step, unique in its pipeline.
        **options: `StepOptions`.

    Raises:
        TypeError: An argument is unknown.
    """

    _type: ClassVar[str]
    """Its type in a definition."""

    def __init__(self, name: str, **options: Unpack[StepOptions]) -> None:
        check_options(type(self).__name__, options, StepOptions)
        self.name = name
        self.display_name = options.get("display_name")
        self.description = options.get("description")
        self.depends_on: list[Any] = list(options.get("depends_on") or ())
        self.cache_config = options.get("cache_config")
        self.retry_policies: list[RetryPolicy] = list(options.get("retry_policies") or ())

    def add_depends_on(self, step_names: Sequence[Any]) -> None:
        """Add steps that have to succeed before this one begins.

        Args:
            step_names: Steps, or their names.
        """
        self.depends_on.extend(step_names or ())

    def add_retry_policy(self, retry_policy: RetryPolicy) -> None:
        """Add a case in which the step is executed again.

        Args:
            retry_policy: A `RetryPolicy`.
        """
        self.retry_policies.append(retry_policy)

    @property
    def arguments(self) -> dict[str, Any]:
        """The request of the step, as without a pipeline; its uploads are made.

        Places of results that are not given get a name with the time, and keep it: the pipeline's jobs write there.
        """
        return self._arguments("", False)

    @property
    def properties(self) -> Properties:
        """What later steps can read of this one.

        Raises:
            ValueError: A step of this type has no properties.
        """
        raise ValueError(f"the step {self.name!r} has no properties: a {self._type} step creates nothing")

    def definition(self, pipeline: str, *, keeps_prefix: bool = False) -> dict[str, Any]:
        """Return the step in a definition; variables are not expressed yet.

        Args:
            pipeline: Name of the pipeline.
            keeps_prefix: Whether the request keeps the prefix of the job's name.

        Returns:
            A member of ``Steps``.
        """
        written: dict[str, Any] = {
            "Name": self.name,
            "Type": self._type,
            "Arguments": self._arguments(pipeline, keeps_prefix),
        }
        optional = {
            "DependsOn": list(map(_name_of, self.depends_on)),
            "DisplayName": self.display_name,
            "Description": self.description,
            "CacheConfig": self.cache_config.to_request() if self.cache_config else None,
            "RetryPolicies": [each.to_request() for each in self.retry_policies],
        }
        return written | {name: value for name, value in optional.items() if value}

    @abstractmethod
    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        """Return ``Arguments`` of the step."""


class StepCollection:
    """Several steps that follow each other.

    Args:
        name: Name of all of them.
        steps: The steps, in their order.
    """

    def __init__(self, name: str, steps: Sequence[Step]) -> None:
        self.name = name
        self.steps = list(steps)

    @property
    def properties(self) -> Properties:
        """What later steps can read: the properties of the last step."""
        return self.steps[-1].properties


def flattened(steps: Iterable[Any]) -> list[Step]:
    """Return steps, with the steps of collections in place of these.

    Args:
        steps: Steps and collections of steps.
    """
    return [step for each in steps for step in (each.steps if isinstance(each, StepCollection) else (each,))]


class RequestStep(Step):
    """A step that sends one request.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What a call with a `PipelineSession` returned.
        **options: `StepOptions`.

    Raises:
        ValueError: The arguments belong to another type of step.
    """

    _operation: ClassVar[str]
    """Operation of boto3's client."""
    _name_member: ClassVar[str]
    """Member of the request with the name of what it creates."""
    _shapes: ClassVar[tuple[str, ...]]
    """Shapes of what later steps can read."""
    _source: ClassVar[str]
    """The call, for messages."""

    def __init__(self, name: str, step_args: StepArguments | None, **options: Unpack[StepOptions]) -> None:
        super().__init__(name, **options)
        if not isinstance(step_args, StepArguments) or step_args.operation != self._operation:
            raise ValueError(
                f"step_args={step_args!r} of the step {name!r}; expected what {self._source} returns for an object"
                " whose sagemaker_session is a PipelineSession"
            )
        self.step_args = step_args

    @property
    def properties(self) -> Properties:
        """What later steps can read: the answer of the operation that describes what the step creates."""
        model = self.step_args.session.sagemaker_client.meta.service_model
        return Properties(self, shapes=[model.shape_for(shape) for shape in self._shapes])

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        request = dict(self.step_args.request(StepContext(pipeline, self.name)))
        name = request.pop(self._name_member, None)
        if keeps_prefix and name:
            request[self._name_member] = base_of(name)
        return request


class JobStep(RequestStep):
    """A step that runs a job.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What the call returned; or None if ``call`` is given.
        call: Makes the call, for an object with any session.
        owner: The object of that call.
        **options: `StepOptions`.

    Raises:
        ValueError: Both or none of ``step_args`` and the object are given, or the arguments are those of another step.
    """

    def __init__(
        self,
        name: str,
        step_args: StepArguments | None,
        call: Callable[[], Any],
        owner: Any,
        **options: Unpack[StepOptions],
    ) -> None:
        if (step_args is None) == (owner is None):
            raise ValueError(f"the step {name!r} needs step_args, or the object itself, and not both")
        super().__init__(
            name, step_args or StepArguments(owner, owner.sagemaker_session, self._operation, call), **options
        )

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        request = super()._arguments(pipeline, keeps_prefix)
        shown = request.pop("ExperimentConfig", {}).get("TrialComponentDisplayName")
        return {**request, "ExperimentConfig": {"TrialComponentDisplayName": shown}} if shown else request


class TrainingStep(JobStep):
    """A step that trains.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``fit`` returned for an estimator with a `PipelineSession`.
        estimator: An estimator, instead of ``step_args``.
        inputs: Its inputs, as for `TensorFlow.fit`.
        **options: `StepOptions`.

    Raises:
        ValueError: Both or none of ``step_args`` and ``estimator`` are given.
    """

    _type = "Training"
    _operation = "create_training_job"
    _name_member = "TrainingJobName"
    _shapes = ("DescribeTrainingJobResponse",)
    _source = "estimator.fit()"

    @in_order(
        *("name", "step_args", "estimator", "display_name", "description", "inputs"),
        *("cache_config", "depends_on", "retry_policies"),
    )
    def __init__(
        self,
        name: str,
        step_args: StepArguments | None = None,
        estimator: Any = None,
        inputs: Any = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(name, step_args, lambda: estimator.fit(inputs, wait=False), estimator, **options)

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        request = super()._arguments(pipeline, keeps_prefix)
        return {**request, "HyperParameters": _without_job_name(request["HyperParameters"])}


class ProcessingStep(JobStep):
    """A step that processes data.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``run`` returned for a processor with a `PipelineSession`.
        processor: A processor, instead of ``step_args``.
        inputs: Its inputs, as for `Processor.run`.
        outputs: Its outputs, as for `Processor.run`.
        job_arguments: Its arguments, as for `Processor.run`.
        code: Its script, as for `ScriptProcessor.run`.
        property_files: Files of its outputs that `JsonGet` reads.
        kms_key: As for `Processor.run`.
        **options: `StepOptions`.

    Raises:
        ValueError: Both or none of ``step_args`` and ``processor`` are given.
    """

    _type = "Processing"
    _operation = "create_processing_job"
    _name_member = "ProcessingJobName"
    _shapes = ("DescribeProcessingJobResponse",)
    _source = "processor.run()"

    @in_order(
        *("name", "step_args", "processor", "display_name", "description", "inputs", "outputs", "job_arguments"),
        *("code", "property_files", "cache_config", "depends_on", "retry_policies", "kms_key"),
    )
    def __init__(
        self,
        name: str,
        step_args: StepArguments | None = None,
        processor: Any = None,
        inputs: Sequence[Any] | None = None,
        outputs: Sequence[Any] | None = None,
        job_arguments: Sequence[Any] | None = None,
        code: str | None = None,
        property_files: Sequence[PropertyFile] | None = None,
        kms_key: str | None = None,
        **options: Unpack[StepOptions],
    ) -> None:
        given = {"inputs": inputs, "outputs": outputs, "arguments": job_arguments, "kms_key": kms_key, "wait": False}
        if code is not None:
            given["code"] = code
        super().__init__(name, step_args, lambda: processor.run(**given), processor, **options)
        self.property_files = list(property_files or ())

    def definition(self, pipeline: str, *, keeps_prefix: bool = False) -> dict[str, Any]:
        """Return the step in a definition; variables are not expressed yet.

        Args:
            pipeline: Name of the pipeline.
            keeps_prefix: Whether the request keeps the prefix of the job's name.

        Returns:
            A member of ``Steps``.
        """
        written = super().definition(pipeline, keeps_prefix=keeps_prefix)
        files = [each.expr for each in self.property_files]
        return {**written, "PropertyFiles": files} if files else written


class TuningStep(JobStep):
    """A step that tunes hyperparameters.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``fit`` returned for a tuner with a `PipelineSession`.
        tuner: A tuner, instead of ``step_args``.
        inputs: Its inputs, as for `HyperparameterTuner.fit`.
        **options: `StepOptions`.

    Raises:
        ValueError: Both or none of ``step_args`` and ``tuner`` are given.
    """

    _type = "Tuning"
    _operation = "create_hyper_parameter_tuning_job"
    _name_member = "HyperParameterTuningJobName"
    _shapes = ("DescribeHyperParameterTuningJobResponse", "ListTrainingJobsForHyperParameterTuningJobResponse")
    _source = "tuner.fit()"

    @in_order("name", "step_args", "tuner", "display_name", "description", "inputs")
    def __init__(
        self,
        name: str,
        step_args: StepArguments | None = None,
        tuner: Any = None,
        inputs: Any = None,
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(name, step_args, lambda: tuner.fit(inputs, wait=False), tuner, **options)

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        request = super()._arguments(pipeline, keeps_prefix)

        def plain(definition: dict[str, Any]) -> dict[str, Any]:
            return {**definition, "StaticHyperParameters": _without_job_name(definition["StaticHyperParameters"])}

        if "TrainingJobDefinition" in request:
            return {**request, "TrainingJobDefinition": plain(request["TrainingJobDefinition"])}
        return {**request, "TrainingJobDefinitions": list(map(plain, request["TrainingJobDefinitions"]))}

    def get_top_model_s3_uri(self, top_k: int, s3_bucket: str, prefix: str = "") -> Join:
        """Return the place of the model of one of the best trainings.

        Args:
            top_k: Which one: 0 is the best, 49 the last that can be named.
            s3_bucket: Bucket of the estimator's ``output_path``.
            prefix: Prefix of the estimator's ``output_path``.

        Returns:
            A variable, for the ``model_data`` of a model.
        """
        training = self.properties.TrainingJobSummaries[top_k].TrainingJobName
        return Join(on="/", values=["s3:/", s3_bucket, *([prefix] if prefix else ()), training, "output/model.tar.gz"])


class TransformStep(JobStep):
    """A step that transforms a data set.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``transform`` returned for a transformer with a `PipelineSession`.
        transformer: A transformer, instead of ``step_args``.
        inputs: A `TransformInput`, with ``transformer``.
        **options: `StepOptions`.

    Raises:
        ValueError: Both or none of ``step_args`` and ``transformer`` are given.
    """

    _type = "Transform"
    _operation = "create_transform_job"
    _name_member = "TransformJobName"
    _shapes = ("DescribeTransformJobResponse",)
    _source = "transformer.transform()"

    @in_order(
        *("name", "step_args", "transformer", "inputs"),
        *("display_name", "description", "cache_config", "depends_on", "retry_policies"),
    )
    def __init__(
        self,
        name: str,
        step_args: StepArguments | None = None,
        transformer: Any = None,
        inputs: Any = None,
        **options: Unpack[StepOptions],
    ) -> None:
        call = partial(_transform, transformer, inputs)
        super().__init__(name, step_args, call, transformer, **options)


class FailStep(Step):
    """A step that fails the execution.

    Args:
        name: Name of the step, unique in its pipeline.
        error_message: The reason: a text or a variable.
        **options: `StepOptions`.
    """

    _type = "Fail"

    @in_order("name", "error_message", "display_name", "description", "depends_on")
    def __init__(self, name: str, error_message: Any = "", **options: Unpack[StepOptions]) -> None:
        super().__init__(name, **options)
        self.error_message = error_message

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        return {"ErrorMessage": self.error_message}


class ConditionStep(Step):
    """A step that chooses between two branches.

    Args:
        name: Name of the step, unique in its pipeline.
        conditions: Conditions; all have to be true for the first branch.
        if_steps: Steps of the first branch.
        else_steps: Steps of the second branch.
        **options: `StepOptions`.
    """

    _type = "Condition"

    @in_order("name", "depends_on", "display_name", "description", "conditions", "if_steps", "else_steps")
    def __init__(
        self,
        name: str,
        conditions: Sequence[Condition] = (),
        if_steps: Sequence[Any] = (),
        else_steps: Sequence[Any] = (),
        **options: Unpack[StepOptions],
    ) -> None:
        super().__init__(name, **options)
        self.conditions = list(conditions or ())
        self.if_steps = list(if_steps or ())
        self.else_steps = list(else_steps or ())

    @property
    def properties(self) -> Properties:
        """What later steps can read: ``Outcome``, whether the first branch was chosen."""
        return Properties(self)

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        def branch(steps: Sequence[Any]) -> list[dict[str, Any]]:
            return [each.definition(pipeline, keeps_prefix=keeps_prefix) for each in flattened(steps)]

        return {
            "Conditions": [each.to_request() for each in self.conditions],
            "IfSteps": branch(self.if_steps),
            "ElseSteps": branch(self.else_steps),
        }


def _name_of(step: Any) -> str:
    if isinstance(step, StepCollection):
        return step.steps[-1].name
    return step if isinstance(step, str) else str(step.name)


def _without_job_name(values: dict[str, Any]) -> dict[str, Any]:
    """Return hyperparameters without the name of the job, which is another one in each execution."""
    return {name: value for name, value in values.items() if name != "sagemaker_job_name"}


def _transform(transformer: Any, inputs: Any) -> Any:
    return transformer.transform(**vars(inputs), wait=False)
