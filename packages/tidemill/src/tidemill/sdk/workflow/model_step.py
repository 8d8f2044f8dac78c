"""Steps that create a model or register it, with a step before them that packs its inference code."""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from tidemill.core.images import scikit_learn_image
from tidemill.sdk.arguments import check_options, in_order, present
from tidemill.sdk.estimator import TensorFlow
from tidemill.sdk.inputs import CreateModelInput
from tidemill.sdk.model import REGISTERED, Model
from tidemill.sdk.variable import StepArguments
from tidemill.sdk.workflow.options import RetryPolicy, SageMakerJobStepRetryPolicy
from tidemill.sdk.workflow.steps import (
    CreationOptions,
    JobStep,
    RequestStep,
    Step,
    StepCollection,
    StepOptions,
    TrainingStep,
)

__all__ = ["CreateModelStep", "ModelStep", "RegisterModel"]

_SCIKIT_LEARN = "1.2-1"
"""Version of the image that packs code, which needs no framework."""
_WHY = "Used to repack a model with customer scripts for a register/create model step"


class CreateModelStep(RequestStep):
    """A step that creates a model.

    Args:
        name: Name of the step, unique in its pipeline.
        step_args: What ``create`` returned for a model with a `PipelineSession`.
        model: A `Model`, instead of ``step_args``.
        inputs: A `CreateModelInput`, with ``model``.
        **options: `CreationOptions`.

    Raises:
        TypeError: An argument is unknown, e.g. ``cache_config``.
        ValueError: ``step_args`` are not those of a model, or a retry policy is one of jobs.
    """

    _type = "Model"
    _operation = "create_model"
    _name_member = "ModelName"
    _shapes = ("DescribeModelOutput",)
    _source = "model.create()"

    @in_order(
        *("name", "step_args", "model", "inputs"),
        *("depends_on", "retry_policies", "display_name", "description"),
    )
    def __init__(
        self,
        name: str,
        step_args: StepArguments | None = None,
        model: Model | None = None,
        inputs: CreateModelInput | None = None,
        **options: Unpack[CreationOptions],
    ) -> None:
        check_options(type(self).__name__, options, CreationOptions)
        if model is not None:
            given = inputs or CreateModelInput()
            call = partial(model.create, given.instance_type, given.accelerator_type)
            step_args = StepArguments(model, model.sagemaker_session, self._operation, call)
        super().__init__(name, step_args, **options)  # type: ignore[arg-type] - checked above
        self.archive: Any = None

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        request = super()._arguments(pipeline, keeps_prefix)
        return request | _with_archive({"PrimaryContainer": request["PrimaryContainer"]}, self.archive)


class _RegisterStep(RequestStep):
    """A step that registers a model as a package."""

    _type = "RegisterModel"
    _operation = "create_model_package"
    _name_member = "ModelPackageName"
    _shapes = ("DescribeModelPackageOutput",)
    _source = "model.register()"

    archive: Any = None

    def _arguments(self, pipeline: str, keeps_prefix: bool) -> dict[str, Any]:
        request = super()._arguments(pipeline, keeps_prefix)
        specification = request["InferenceSpecification"]
        containers = [_with_archive({"": each}, self.archive)[""] for each in specification["Containers"]]
        return {**request, "InferenceSpecification": {**specification, "Containers": containers}}


class ModelStep(StepCollection):
    """Steps that create a model, or register it as a package.

    If the model has an ``entry_point`` and its archive is made by the pipeline, a training job packs the code first.

    Args:
        name: Name of the steps; they are ``NAME-CreateModel`` or ``NAME-RegisterModel``, and ``NAME-RepackModel-0``.
        step_args: What ``create`` or ``register`` returned for a model with a `PipelineSession`.
        repack_model_step_settings: Arguments of `TensorFlow` for the job that packs the code, e.g. ``instance_type``.
        **options: `CreationOptions`; ``retry_policies`` may be a dictionary of lists, by
            ``create_model_retry_policies``, ``register_model_retry_policies`` and ``repack_model_retry_policies``.

    Raises:
        TypeError: An argument is unknown, e.g. ``cache_config``.
        ValueError: ``step_args`` are not those of a model, or a retry policy is one of jobs.
    """

    @in_order(
        *("name", "step_args", "depends_on", "retry_policies", "display_name", "description"),
        "repack_model_step_settings",
    )
    def __init__(
        self,
        name: str,
        step_args: StepArguments,
        repack_model_step_settings: Mapping[str, Any] | None = None,
        **options: Unpack[CreationOptions],
    ) -> None:
        check_options(type(self).__name__, options, CreationOptions)
        policies: Any = options.pop("retry_policies", None)

        def policies_of(step: str) -> Sequence[RetryPolicy] | None:
            return policies.get(f"{step}_model_retry_policies") if isinstance(policies, Mapping) else policies

        if isinstance(policies, Mapping) and (unknown := sorted(policies.keys() - _POLICIES)):
            raise ValueError(f"retry_policies has {unknown[0]!r}; expected {', '.join(sorted(_POLICIES))}")
        kind = step_args.operation if isinstance(step_args, StepArguments) else ""
        is_create = kind == CreateModelStep._operation
        last = CreateModelStep if is_create else _RegisterStep
        shown = {"display_name": options.get("display_name"), "description": options.get("description")}
        final = last(
            f"{name}-{'CreateModel' if is_create else 'RegisterModel'}",
            step_args,
            retry_policies=policies_of("create" if is_create else "register"),
            **shown,  # type: ignore[arg-type] - texts
        )
        super().__init__(
            name,
            _packed_first(
                final,
                repack=f"{name}-RepackModel-{step_args.owner.name or 0}",
                depends_on=options.get("depends_on"),
                retry_policies=policies_of("repack"),
                settings=repack_model_step_settings or {},
            ),
        )


_POLICIES = frozenset(f"{step}_model_retry_policies" for step in ("create", "register", "repack"))


class RegisterModel(StepCollection):
    """Steps that register the model of an estimator; the older form of `ModelStep`.

    Args:
        name: Name of the steps; the last one is ``NAME-RegisterModel``.
        content_types: As for `Model.register`.
        response_types: As for `Model.register`.
        inference_instances: As for `Model.register`.
        transform_instances: As for `Model.register`.
        estimator: An estimator, whose model it is.
        model_data: Place of the estimator's model: ``TrainingStep.properties.ModelArtifacts.S3ModelArtifacts``.
        depends_on: As in `CreationOptions`.
        repack_model_step_retry_policies: Of the step that packs the code.
        register_model_step_retry_policies: Of the step that registers.
        model: A `Model`, instead of ``estimator`` and ``model_data``.
        display_name: As in `CreationOptions`.
        description: Describes the step and the package.
        **arguments: Further arguments of `Model.register`, or with ``estimator`` of `TensorFlow.create_model`.

    Raises:
        TypeError: An argument is unknown.
        ValueError: Both or none of ``estimator`` and ``model`` are given, or a retry policy is one of jobs.
    """

    def __init__(
        self,
        name: str,
        content_types: Sequence[str],
        response_types: Sequence[str],
        inference_instances: Sequence[str] | None = None,
        transform_instances: Sequence[str] | None = None,
        estimator: TensorFlow | None = None,
        model_data: Any = None,
        depends_on: Sequence[Any] | None = None,
        repack_model_step_retry_policies: Sequence[RetryPolicy] | None = None,
        register_model_step_retry_policies: Sequence[RetryPolicy] | None = None,
        *,
        model: Model | None = None,
        display_name: str | None = None,
        description: str | None = None,
        **arguments: Any,
    ) -> None:
        if (estimator is None) == (model is None):
            raise ValueError(f"RegisterModel {name!r} needs an estimator with its model_data, or a model, and not both")
        arguments = present(**arguments)
        registered = {each: arguments.pop(each) for each in REGISTERED if each in arguments}
        if estimator is not None:
            model = estimator.create_model(model_data=model_data, **arguments)
        elif arguments:
            raise TypeError(f"RegisterModel {name!r} got {sorted(arguments)[0]!r}, which a model does not need or know")
        assert model is not None
        call = partial(
            model.register,
            content_types,
            response_types,
            inference_instances,
            transform_instances,
            description=description,
            **registered,
        )
        final = _RegisterStep(
            f"{name}-RegisterModel",
            StepArguments(model, model.sagemaker_session, _RegisterStep._operation, call),
            retry_policies=register_model_step_retry_policies,
            display_name=display_name,
            description=description,
        )
        super().__init__(
            name,
            _packed_first(
                final,
                repack=f"{name}-RepackModel",
                depends_on=depends_on,
                retry_policies=repack_model_step_retry_policies,
                settings={},
            ),
        )


def _packed_first(
    final: CreateModelStep | _RegisterStep,
    *,
    repack: str,
    depends_on: Sequence[Any] | None,
    retry_policies: Sequence[RetryPolicy] | None,
    settings: Mapping[str, Any],
) -> list[Step]:
    """Return a step, and before it the one that packs the model's code, if it has any and its archive is not known."""
    if any(isinstance(each, SageMakerJobStepRetryPolicy) for each in final.retry_policies):
        raise ValueError(f"the step {final.name!r} creates no job; give it a StepRetryPolicy")
    model = final.step_args.owner
    if not model.is_packed_later:
        final.add_depends_on(list(depends_on or ()))
        return [final]
    packing = _repack_step(repack, model, settings, depends_on=depends_on, retry_policies=retry_policies)
    final.archive = packing.properties.ModelArtifacts.S3ModelArtifacts
    return [packing, final]


def _repack_step(name: str, model: Any, settings: Mapping[str, Any], **options: Unpack[StepOptions]) -> JobStep:
    def fit() -> None:
        session, handlers = model.sagemaker_session, model.handlers
        with tempfile.TemporaryDirectory(prefix="tidemill-") as directory:
            script = Path(__file__).with_name("repack_job.py")
            Path(directory, script.name).write_bytes(script.read_bytes())
            Path(directory, "code.tar.gz").write_bytes(handlers.pack(dependencies_below="lib/"))
            known: dict[str, Any] = {
                "role": model.role,
                "instance_type": "ml.m5.large",
                "image_uri": scikit_learn_image(_SCIKIT_LEARN, session.boto_region_name),
            }
            estimator = TensorFlow(
                **{**known, **settings},
                entry_point=script.name,
                source_dir=directory,
                hyperparameters={"inference_script": handlers.entry_point},
                model_dir=False,
                sagemaker_session=session,
            )
            estimator.fit(model.model_data, wait=False)

    arguments = StepArguments(model, model.sagemaker_session, TrainingStep._operation, fit)
    step = TrainingStep(name, arguments, **options)
    step.description = _WHY
    return step


def _with_archive(containers: Mapping[str, Any], archive: Any) -> dict[str, Any]:
    """Return containers with the archive of the step that packs the code, if there is one."""
    if archive is None:
        return dict(containers)
    return {name: {**container, "ModelDataUrl": archive} for name, container in containers.items()}
