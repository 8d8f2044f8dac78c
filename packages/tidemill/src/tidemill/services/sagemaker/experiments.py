"""Experiments, trials and trial components on the wire."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.control.experiments.components import TrialComponents
from tidemill.control.experiments.experiments import Experiments
from tidemill.control.jobs import Jobs
from tidemill.control.resources import EXPERIMENT, TRIAL, TRIAL_COMPONENT
from tidemill.core.experiments import Tracked, TrialComponent
from tidemill.core.training import TrainingJob
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.callers import user_of
from tidemill.services.sagemaker.listing import page_reply, query_of, row_of
from tidemill.services.times import milliseconds, when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

_TIMES = ("StartTime", "EndTime")


class ExperimentHandlers(Operations):
    """Create, describe, list, update, delete and associate experiments, trials and trial components."""

    def __init__(self, experiments: Experiments, components: TrialComponents, training: Jobs[TrainingJob]) -> None:
        self._experiments = experiments
        self._components = components
        self._training = training

    async def create_experiment(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        created = await self._experiments.create(EXPERIMENT, request, caller=context.caller.arn, tags=tags)
        return {"ExperimentArn": created.arn}

    async def describe_experiment(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return experiment_description(self._experiments.record(EXPERIMENT, request["ExperimentName"]))

    async def list_experiments(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        found, token = await self._experiments.list_experiments(_query(request))
        return page_reply("ExperimentSummaries", [experiment_summary(each) for each in found], token)

    async def update_experiment(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name = request.pop("ExperimentName")
        updated = await self._experiments.update(EXPERIMENT, name, request, caller=context.caller.arn)
        return {"ExperimentArn": updated.arn}

    async def delete_experiment(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"ExperimentArn": await self._experiments.delete(EXPERIMENT, request["ExperimentName"])}

    async def create_trial(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        created = await self._experiments.create(TRIAL, request, caller=context.caller.arn, tags=tags)
        return {"TrialArn": created.arn}

    async def describe_trial(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return trial_description(self._experiments.record(TRIAL, request["TrialName"]))

    async def list_trials(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        found, token = await self._experiments.list_trials(
            _query(request),
            experiment=request.get("ExperimentName"),
            component=request.get("TrialComponentName"),
        )
        return page_reply("TrialSummaries", [trial_summary(each) for each in found], token)

    async def update_trial(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name = request.pop("TrialName")
        return {"TrialArn": (await self._experiments.update(TRIAL, name, request, caller=context.caller.arn)).arn}

    async def delete_trial(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"TrialArn": await self._experiments.delete(TRIAL, request["TrialName"])}

    async def create_trial_component(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        created = await self._components.create(_stored(request), caller=context.caller.arn, tags=tags)
        return {"TrialComponentArn": created.arn}

    async def describe_trial_component(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return component_description(self._components.record(TRIAL_COMPONENT, request["TrialComponentName"]))

    async def list_trial_components(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        kind, _, name = request.get("SourceArn", "").rpartition(":")[2].partition("/")
        if kind == "training-job":
            await self._training.track(name)
        found, token = await self._components.list(
            _query(request),
            experiment=request.get("ExperimentName"),
            trial=request.get("TrialName"),
            source=request.get("SourceArn"),
        )
        return page_reply("TrialComponentSummaries", [component_summary(each) for each in found], token)

    async def update_trial_component(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        updated = await self._components.update(_stored(request), caller=context.caller.arn)
        return {"TrialComponentArn": updated.arn}

    async def delete_trial_component(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"TrialComponentArn": await self._components.delete(request["TrialComponentName"])}

    async def associate_trial_component(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        arns = await self._components.associate(request["TrialComponentName"], request["TrialName"])
        return dict(zip(("TrialComponentArn", "TrialArn"), arns, strict=True))

    async def disassociate_trial_component(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        arns = await self._components.disassociate(request["TrialComponentName"], request["TrialName"])
        return dict(zip(("TrialComponentArn", "TrialArn"), arns, strict=True))


def experiment_description(record: Record) -> dict[str, Any]:
    """Return the description of an experiment.

    Args:
        record: The stored experiment.
    """
    return _description("Experiment", record)


def trial_description(record: Record) -> dict[str, Any]:
    """Return the description of a trial.

    Args:
        record: The stored trial.
    """
    return _description("Trial", record)


def component_description(record: Record) -> dict[str, Any]:
    """Return the description of a trial component.

    Args:
        record: The stored component.
    """
    component = TrialComponent.from_document(record.document)
    metrics = [_metric(name, values, component) for name, values in component.metrics.items()]
    sources = [component.source] if component.source else [{"SourceArn": arn} for arn in component.sources]
    return {
        **_shown(component.members),
        "TrialComponentName": component.name,
        "DisplayName": component.members.get("DisplayName", component.name),
        "TrialComponentArn": component.arn,
        "CreationTime": when(component.created_ms),
        **_created(component.created_by),
        **_modified(record.modified_ms, component.modified_by),
        **({"Source": component.source} if component.source else {}),
        **({"Sources": sources} if sources else {}),
        **({"Metrics": metrics} if metrics else {}),
    }


def experiment_summary(experiment: Summary) -> dict[str, Any]:
    """Return what lists show of an experiment.

    Args:
        experiment: The summary.
    """
    return _summary("Experiment", experiment)


def trial_summary(trial: Summary) -> dict[str, Any]:
    """Return what lists show of a trial, and its experiment.

    Args:
        trial: The summary.
    """
    return {**_summary("Trial", trial), "ExperimentName": trial.summary.get("shown", {}).get("ExperimentName", "")}


def parents_of(record: Record) -> list[dict[str, str]]:
    """Return the trials and experiments of a trial component.

    Args:
        record: The stored component.
    """
    return _parents(record.document["parents"])


def _parents(parents: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    return [{"TrialName": trial, "ExperimentName": experiment} for trial, experiment in parents]


def _description(title: str, record: Record) -> dict[str, Any]:
    tracked = Tracked.from_document(record.document)
    return {
        **tracked.members,
        f"{title}Name": tracked.name,
        "DisplayName": tracked.members.get("DisplayName", tracked.name),
        f"{title}Arn": tracked.arn,
        "CreationTime": when(tracked.created_ms),
        **_created(tracked.created_by),
        **_modified(record.modified_ms, tracked.modified_by),
    }


def _summary(title: str, tracked: Summary) -> dict[str, Any]:
    return {
        **row_of(title, tracked, status=False),
        "DisplayName": tracked.summary.get("shown", {}).get("DisplayName", tracked.name),
    }


def component_summary(component: Summary) -> dict[str, Any]:
    """Return what lists show of a trial component, and its parents.

    Args:
        component: The summary.
    """
    summary = component.summary
    source = summary.get("source")
    return {
        **_shown(summary.get("shown", {})),
        **row_of("TrialComponent", component, status=False),
        "DisplayName": summary.get("shown", {}).get("DisplayName", component.name),
        **_created(summary.get("created_by", "")),
        **_modified(component.modified_ms, summary.get("modified_by", "")),
        "Parents": _parents(summary.get("parents", ())),
        **({"TrialComponentSource": source, "Source": source} if source else {}),
    }


def _metric(name: str, values: Mapping[str, float], component: TrialComponent) -> dict[str, Any]:
    """Return the statistics of a metric; only the last value of one whose log could not be read whole."""
    shown: dict[str, Any] = {
        "MetricName": name,
        "SourceArn": component.source.get("SourceArn", component.arn),
        "TimeStamp": when(int(values["at_ms"])),
        "Last": values["last"],
    }
    if "count" not in values:
        return shown
    return shown | {
        "Max": values["max"],
        "Min": values["min"],
        "Count": int(values["count"]),
        "Avg": values["mean"],
        "StdDev": (values["m2"] / values["count"]) ** 0.5,
    }


def _created(by: str) -> dict[str, Any]:
    """Return the creator; the service itself, which makes the components of jobs, is not shown."""
    return {"CreatedBy": user_of(by)} if by else {}


def _modified(modified_ms: int, by: str) -> dict[str, Any]:
    return {"LastModifiedTime": when(modified_ms), **({"LastModifiedBy": user_of(by)} if by else {})}


def _stored(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request with its times in the form in which they are stored."""
    return {
        name: milliseconds(value) if name in _TIMES and isinstance(value, datetime) else value
        for name, value in request.items()
    }


def _shown(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: when(value) if name in _TIMES else value for name, value in members.items()}


def _query(request: Mapping[str, Any]) -> Any:
    times = {"CreationTimeAfter": request.get("CreatedAfter"), "CreationTimeBefore": request.get("CreatedBefore")}
    return query_of({**request, **times})
