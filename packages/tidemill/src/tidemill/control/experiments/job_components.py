"""The trial components of jobs: made with a job that has an ExperimentConfig, and completed when the job ends.

That of another training job is made when a client first looks for it, because most jobs need none. With a config
both happen in the commit that stores the job's own change, so that a kill leaves neither of them without the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from tidemill.control.experiments.components import associate
from tidemill.control.experiments.experiments import add_child
from tidemill.control.experiments.points import delete_points
from tidemill.control.named_resources import existing, taken
from tidemill.control.resources import EXPERIMENT, TRIAL, TRIAL_COMPONENT, component_record, record_of
from tidemill.core.experiments import Tracked, TrialComponent, joined_statistics
from tidemill.core.names import sagemaker_arn
from tidemill.core.processing import ProcessingJob
from tidemill.core.training import TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.core.tuning import TuningJob
from tidemill.errors import ResourceNotFound
from tidemill.store.records.base import Record, Transaction

_TEXT_MAX = 2500
"""Longest StringValue of a parameter."""
_MESSAGE_MAX = 1024

_Job = TrainingJob | TransformJob | TuningJob


def begin_component(transaction: Transaction, job: _Job) -> None:
    """Make the trial component of a job.

    With an ExperimentName alone, a trial is made for it. The component of the run that RunName names gets the job as a
    source.

    Raises:
        ResourceNotFound: The experiment, trial or run does not exist.
        ValidationException: The trial belongs to another experiment.
    """
    config = job.request.get("ExperimentConfig", {})
    name = _name(job)
    component = TrialComponent(
        name=name,
        arn=sagemaker_arn(TRIAL_COMPONENT, name, region=job.arn.split(":")[3]),
        members={**_members(job), **_display(config)},
        created_ms=job.created_ms,
        created_by="",
        source={"SourceArn": job.arn, "SourceType": f"SageMaker{_kind(job)}Job"},
    )
    _insert(transaction, component)
    trial = _trial(transaction, job, config)
    if trial is not None:
        associate(transaction, name, trial)
    if "RunName" in config:
        _add_source(transaction, config["RunName"], job.arn)


def has_component(transaction: Transaction, job: _Job) -> bool:
    """Return whether the job has a trial component; that of a deleted job with the same name does not count.

    Args:
        job: The job.
    """
    record = transaction.get(TRIAL_COMPONENT, _name(job))
    if record is None or record.modified_ms < job.created_ms:
        return False
    return TrialComponent.from_document(record.document).source.get("SourceArn") == job.arn


def end_component(transaction: Transaction, job: _Job) -> None:
    """Complete the trial component of a job that has ended; nothing changes if the job has none.

    Args:
        job: The ended job.
    """

    def change(record: Record) -> Record:
        component = TrialComponent.from_document(record.document)
        found = job.final_metrics if isinstance(job, TrainingJob) else ()
        metrics = dict(component.metrics)
        for metric in found:
            logged = {**metric.statistics, "last": metric.value, "at_ms": metric.at_ms}
            metrics[metric.name] = joined_statistics(metrics.get(metric.name, {}), logged)
        return component_record(replace(component.updated(_members(job)), metrics=metrics))

    transaction.update(TRIAL_COMPONENT, _name(job), change)


def _insert(transaction: Transaction, component: TrialComponent) -> None:
    """Store the component of a new job. That of a deleted job with the same name becomes the new job's."""
    record = transaction.get(TRIAL_COMPONENT, component.name)
    earlier = TrialComponent.from_document(record.document) if record is not None else None
    if earlier is None or earlier.source != component.source:
        if record is not None:
            raise taken(component_record(component))
        transaction.insert(component_record(component))
        return
    delete_points(transaction, earlier)
    changed = component_record(replace(earlier, members=component.members, metrics={}, blocks={}))
    transaction.update(TRIAL_COMPONENT, component.name, lambda _: changed)


def _name(job: _Job) -> str:
    return f"{job.name}-aws-{_kind(job).lower()}-job"


def _kind(job: _Job) -> str:
    if isinstance(job, ProcessingJob):
        return "Processing"
    return "Training" if isinstance(job, TrainingJob) else "Transform"


def _display(config: Mapping[str, str]) -> dict[str, str]:
    name = config.get("TrialComponentDisplayName")
    return {"DisplayName": name} if name else {}


def _trial(transaction: Transaction, job: _Job, config: Mapping[str, str]) -> str | None:
    """Return the name of the job's trial, after making one for a job that names only an experiment."""
    experiment, trial = config.get("ExperimentName"), config.get("TrialName")
    if experiment is not None:
        existing(transaction, EXPERIMENT, experiment)
    if trial is None and experiment is not None:
        trial = f"{job.name}-aws-trial"
        if transaction.get(TRIAL, trial) is None:
            add_child(transaction, EXPERIMENT, experiment, 1)
            new = Tracked(
                name=trial,
                arn=sagemaker_arn(TRIAL, trial, region=job.arn.split(":")[3]),
                members={"ExperimentName": experiment},
                created_ms=job.created_ms,
                created_by="",
            )
            transaction.insert(record_of(TRIAL, new))
    if trial is not None and experiment is not None:
        of_trial = existing(transaction, TRIAL, trial).document["members"]["ExperimentName"]
        if of_trial != experiment:
            raise ResourceNotFound(
                f"Trial {trial!r} does not exist in the experiment {experiment!r}: it belongs to {of_trial!r}"
            )
    return trial


def _add_source(transaction: Transaction, run: str, arn: str) -> None:
    record = existing(transaction, TRIAL_COMPONENT, run)
    component = TrialComponent.from_document(record.document)
    changed = component_record(replace(component, sources=(*component.sources, arn)))
    transaction.update(TRIAL_COMPONENT, run, lambda _: changed)


def _members(job: _Job) -> dict[str, Any]:
    """Return the component's members for the present state of its job, by botocore's names."""
    parameters, inputs, outputs = _FACTS[_kind(job)](job)
    failure = getattr(job, "failure_reason", "")[:_MESSAGE_MAX]
    members: dict[str, Any] = {
        "Status": {"PrimaryStatus": str(job.status), **({"Message": failure} if failure else {})},
        "StartTime": job.created_ms,
        "Parameters": {name: _value(value) for name, value in parameters.items()},
        "InputArtifacts": inputs,
        "OutputArtifacts": outputs,
    }
    return members | ({"EndTime": job.ended_ms} if job.ended_ms else {})


_Facts = tuple[dict[str, Any], dict[str, dict[str, str]], dict[str, dict[str, str]]]


def _training_facts(job: Any) -> _Facts:
    """Return the parameters, input and output artifacts of a training job."""
    request = job.request
    resources = request["ResourceConfig"]
    parameters = {**request.get("HyperParameters", {}), **_resources(resources, "VolumeSizeInGB")}
    inputs = {
        channel["ChannelName"]: _artifact(channel["DataSource"]["S3DataSource"]["S3Uri"], channel.get("ContentType"))
        for channel in request.get("InputDataConfig", ())
        if "S3DataSource" in channel["DataSource"]
    }
    image = request["AlgorithmSpecification"].get("TrainingImage")
    if image:
        inputs["SageMaker.ImageUri"] = _artifact(image)
    outputs = {"SageMaker.ModelArtifact": _artifact(job.model_artifacts)} if job.model_artifacts else {}
    return parameters, inputs, outputs


def _processing_facts(job: Any) -> _Facts:
    """Return the parameters, input and output artifacts of a processing job."""
    request = job.request
    application = request["AppSpecification"]
    parameters = {**request.get("Environment", {}), **_resources(request["ProcessingResources"]["ClusterConfig"])}
    for member, title in (("ContainerEntrypoint", "EntryPoint"), ("ContainerArguments", "Arguments")):
        if application.get(member):
            parameters[f"SageMaker.{title}"] = " ".join(application[member])
    inputs = {
        each["InputName"]: _artifact(each["S3Input"]["S3Uri"])
        for each in request.get("ProcessingInputs", ())
        if "S3Input" in each
    }
    inputs["SageMaker.ImageUri"] = _artifact(application["ImageUri"])
    outputs = {
        each["OutputName"]: _artifact(each["S3Output"]["S3Uri"])
        for each in request.get("ProcessingOutputConfig", {}).get("Outputs", ())
        if "S3Output" in each
    }
    return parameters, inputs, outputs


def _transform_facts(job: Any) -> _Facts:
    """Return the parameters, input and output artifacts of a transform job."""
    request = job.request
    given, wanted = request["TransformInput"], request["TransformOutput"]
    parameters = {**request.get("Environment", {}), **_resources(request["TransformResources"])}
    inputs = {
        "SageMaker.ModelName": _artifact(request["ModelName"]),
        "SageMaker.TransformInput": _artifact(given["DataSource"]["S3DataSource"]["S3Uri"], given.get("ContentType")),
    }
    return parameters, inputs, {"SageMaker.TransformOutput": _artifact(wanted["S3OutputPath"], wanted.get("Accept"))}


_FACTS: Mapping[str, Callable[[Any], _Facts]] = {
    "Training": _training_facts,
    "Processing": _processing_facts,
    "Transform": _transform_facts,
}
"""By kind of job, its parameters, input and output artifacts."""


def _resources(config: Mapping[str, Any], *members: str) -> dict[str, Any]:
    names = ("InstanceType", "InstanceCount", *members)
    return {f"SageMaker.{name}": config[name] for name in names if name in config}


def _artifact(value: str, media_type: str | None = None) -> dict[str, str]:
    return {"Value": value, **({"MediaType": media_type} if media_type else {})}


def _value(value: object) -> dict[str, Any]:
    """Return a parameter as a number if it is one."""
    try:
        number = float(str(value))
    except ValueError:
        number = float("nan")
    return {"NumberValue": number} if isfinite(number) else {"StringValue": str(value)[:_TEXT_MAX]}
