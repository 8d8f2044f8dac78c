"""Search on the wire: which resources can be searched, and how their properties are called.

Properties are those of the shapes in AWS's `SearchRecord`. Lists and maps that have a name for each entry are searched
by that name: ``Tags.KEY``, ``HyperParameters.NAME``, ``Parameters.NAME``, ``Metrics.NAME`` and, of trial components,
``Metrics.NAME.Max``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.model import StructureShape

from tidemill.control.resources import (
    ENDPOINT,
    EXPERIMENT,
    MODEL_PACKAGE,
    MODEL_PACKAGE_GROUP,
    PIPELINE,
    PIPELINE_EXECUTION,
    TRAINING_JOB,
    TRIAL,
    TRIAL_COMPONENT,
    TUNING_JOB,
)
from tidemill.control.search.expression import properties_of
from tidemill.control.search.search import Searched, Wanted, search
from tidemill.control.tags import Tags
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.sagemaker import experiments, hosting, pipelines, registry, training, tuning
from tidemill.services.sagemaker.listing import page_reply
from tidemill.store.records.base import Record, RecordStore, Summary
from tidemill.wire.exchange import Context
from tidemill.wire.protocols.models import service_model

_DEFAULT_RESULTS = 100
_SUGGESTIONS = 50
_CANNOT_EXIST = frozenset(
    {"FeatureGroup", "FeatureMetadata", "Image", "ImageVersion", "Project", "ModelCard", "Job", "HubContent"}
)
"""Resources of which there are none, so that nothing is found."""


@dataclass(frozen=True, slots=True)
class _Resource:
    """One value of Search's member Resource.

    Attributes:
        kind: Kind of the records.
        member: Member of `SearchRecord`. The properties with the name and the ARN begin with it.
        describe: Returns the description of a record.
        summarize: Returns what lists show of a summary.
        shown: Further properties that ``summarize`` returns of every record.
        named: Whether a property has the record's name.
        changes: Whether a property has the time of the last change.
    """

    kind: str
    member: str
    describe: Callable[[Record], Mapping[str, Any]]
    summarize: Callable[[Summary], Mapping[str, Any]]
    shown: tuple[str, ...] = ()
    named: bool = True
    changes: bool = True

    @property
    def properties(self) -> frozenset[str]:
        """The first parts of all properties."""
        named = {"Metrics"} if self.kind in (TRAINING_JOB, TRIAL_COMPONENT) else set()
        results = service_model("sagemaker").shape_for("SearchRecord")
        shape = results.members[self.member] if isinstance(results, StructureShape) else None
        return frozenset(shape.members if isinstance(shape, StructureShape) else ()) | named

    @property
    def naming(self) -> str:
        """The property that has the record's name; empty if none has it."""
        return f"{self.member}Name" if self.named else ""

    @property
    def summarized(self) -> frozenset[str]:
        """All properties that ``summarize`` returns of every record."""
        times = ("CreationTime", "LastModifiedTime") if self.changes else ("CreationTime",)
        return frozenset((*times, f"{self.member}Arn", self.naming, *self.shown)) - {""}


def _execution(record: Record) -> Mapping[str, Any]:
    return {**pipelines.execution_description(record), "PipelineParameters": pipelines.parameters_of(record)}


_RESOURCES: Mapping[str, _Resource] = {
    "TrainingJob": _Resource(
        TRAINING_JOB,
        "TrainingJob",
        training.job_description,
        training.job_summary,
        ("TrainingJobStatus", "SecondaryStatus"),
    ),
    "Endpoint": _Resource(
        ENDPOINT, "Endpoint", hosting.endpoint_description, hosting.endpoint_summary, ("EndpointStatus",)
    ),
    "ModelPackage": _Resource(
        MODEL_PACKAGE,
        "ModelPackage",
        registry.package_description,
        registry.package_summary,
        ("ModelPackageGroupName", "ModelPackageVersion"),
        named=False,
        changes=False,
    ),
    "ModelPackageGroup": _Resource(
        MODEL_PACKAGE_GROUP,
        "ModelPackageGroup",
        registry.group_description,
        registry.group_summary,
        changes=False,
    ),
    "HyperParameterTuningJob": _Resource(
        TUNING_JOB,
        "HyperParameterTuningJob",
        tuning.tuning_description,
        tuning.tuning_summary,
        ("HyperParameterTuningJobStatus", "TrainingJobStatusCounters", "ObjectiveStatusCounters"),
    ),
    "Pipeline": _Resource(
        PIPELINE,
        "Pipeline",
        pipelines.pipeline_description,
        pipelines.pipeline_summary,
        ("PipelineDisplayName", "PipelineDescription", "RoleArn"),
    ),
    "PipelineExecution": _Resource(
        PIPELINE_EXECUTION,
        "PipelineExecution",
        _execution,
        pipelines.execution_summary,
        (
            *("PipelineExecutionStatus", "PipelineExecutionDisplayName"),
            *("PipelineExecutionDescription", "FailureReason"),
        ),
        named=False,
    ),
    "Experiment": _Resource(
        EXPERIMENT,
        "Experiment",
        experiments.experiment_description,
        experiments.experiment_summary,
        ("DisplayName",),
    ),
    "ExperimentTrial": _Resource(
        TRIAL, "Trial", experiments.trial_description, experiments.trial_summary, ("DisplayName", "ExperimentName")
    ),
    "ExperimentTrialComponent": _Resource(
        TRIAL_COMPONENT,
        "TrialComponent",
        experiments.component_description,
        experiments.component_summary,
        (
            *("DisplayName", "Status", "StartTime", "EndTime"),
            *("Source", "Parents", "CreatedBy", "LastModifiedBy"),
        ),
    ),
}
"""By the value of Resource."""


class SearchHandlers(Operations):
    """Search, and the names of properties that a search can use."""

    def __init__(self, records: RecordStore, tags: Tags) -> None:
        self._records = records
        self._tags = tags

    async def search(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if request["Resource"] in _CANNOT_EXIST or request.get("CrossAccountFilterOption") == "CrossAccount":
            return {"Results": []}
        resource = _resource(request["Resource"])
        latest = "LastModifiedTime" if "LastModifiedTime" in resource.properties else "CreationTime"
        wanted = Wanted(
            expression=request.get("SearchExpression", {}),
            sort_by=request.get("SortBy", latest),
            descending=request.get("SortOrder", "Descending") == "Descending",
            limit=request.get("MaxResults", _DEFAULT_RESULTS),
            token=request.get("NextToken"),
            permits=lambda each: context.permits(f"sagemaker:Describe{resource.member}", each.summary.get("arn", "")),
        )
        named = {*properties_of(wanted.expression), wanted.sort_by}
        tagged = any(each.casefold().startswith("tags") for each in named)
        found, token = await search(self._records, self._searched(resource, tagged=tagged), wanted)
        results = [{resource.member: self._shown(resource, record)} for record in found]
        return page_reply("Results", results, token)

    async def get_search_suggestions(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if request["Resource"] in _CANNOT_EXIST:
            return {"PropertyNameSuggestions": []}
        hint = request.get("SuggestionQuery", {}).get("PropertyNameQuery", {}).get("PropertyNameHint", "").casefold()
        names = sorted(name for name in _resource(request["Resource"]).properties if name.casefold().startswith(hint))
        return {"PropertyNameSuggestions": [{"PropertyName": name} for name in names[:_SUGGESTIONS]]}

    def _searched(self, resource: _Resource, *, tagged: bool) -> Searched:
        def view(record: Record) -> Mapping[str, Any]:
            shown = self._shown(resource, record, tagged=tagged)
            return {**shown, **dict(_by_name(shown))}

        return Searched(
            kind=resource.kind,
            naming=resource.naming,
            properties=resource.properties,
            summarize=resource.summarize,
            summarized=resource.summarized,
            view=view,
        )

    def _shown(self, resource: _Resource, record: Record, *, tagged: bool = True) -> dict[str, Any]:
        """Return the description of a record, by default with its tags, which are another record."""
        shown = dict(resource.describe(record))
        tags = self._tags.of(record.summary["arn"]) if tagged else {}
        if tags:
            shown["Tags"] = [{"Key": key, "Value": value} for key, value in tags.items()]
        if resource.kind == TRIAL_COMPONENT:
            shown["Parents"] = experiments.parents_of(record)
        return shown


def _resource(name: str) -> _Resource:
    resource = _RESOURCES.get(name)
    if resource is None:
        raise ValidationException(
            f"Value {name!r} at 'resource' is not allowed: this version searches {', '.join(sorted(_RESOURCES))};"
            " use the List operation of the resource"
        )
    return resource


def _by_name(shown: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the properties whose entries are searched by name. The value under an empty name is the entry's own."""
    if "Tags" in shown:
        yield "Tags", {each["Key"]: each["Value"] for each in shown["Tags"]}
    if "FinalMetricDataList" in shown:
        yield "Metrics", {each["MetricName"]: each["Value"] for each in shown["FinalMetricDataList"]}
    if "Metrics" in shown:
        yield "Metrics", {each["MetricName"]: {**each, "": each["Last"]} for each in shown["Metrics"]}
    if "Parameters" in shown:
        yield (
            "Parameters",
            {name: {**each, "": next(iter(each.values()), None)} for name, each in shown["Parameters"].items()},
        )
    for member in ("InputArtifacts", "OutputArtifacts"):
        if member in shown:
            yield member, {name: {**each, "": each["Value"]} for name, each in shown[member].items()}
