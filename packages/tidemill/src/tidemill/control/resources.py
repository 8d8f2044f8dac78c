"""Convert resources to records, and list their summaries by pages."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Protocol

from tidemill.control.search.pages import walk
from tidemill.core.async_invocation import AsyncInvocation
from tidemill.core.experiments import TrialComponent
from tidemill.core.hosting import Endpoint, Resource
from tidemill.core.registry import RegisteredModel
from tidemill.errors import ValidationException
from tidemill.store.records.base import Query, Record, RecordStore, Summary

MODEL = "model"
ARTIFACT = "artifact"
EXPERIMENT = "experiment"
TRIAL = "experiment-trial"
TRIAL_COMPONENT = "experiment-trial-component"
MODEL_PACKAGE = "model-package"
MODEL_PACKAGE_GROUP = "model-package-group"
ENDPOINT_CONFIG = "endpoint-config"
ENDPOINT = "endpoint"
ENDPOINT_REMOVAL = "endpoint-removal"
"""Kind of an endpoint whose name was taken by a new endpoint while its servers drain; its record is named by its id."""
TRAINING_JOB = "training-job"
PROCESSING_JOB = "processing-job"
TRANSFORM_JOB = "transform-job"
TUNING_JOB = "hyper-parameter-tuning-job"
PIPELINE = "pipeline"
PIPELINE_VERSION = "pipeline-version"
"""Kind of a definition of a pipeline; its record is named ``pipeline/NAME/version/NUMBER``."""
PIPELINE_EXECUTION = "pipeline-execution"
"""Kind of an execution; its record is named ``pipeline/NAME/execution/ID``."""
STEP_RESULT = "pipeline-step-result"
"""Kind of a step that succeeded and may be reused; its record is named by the pipeline's id and the arguments."""
ASYNC_INVOCATION = "async-invocation"
"""Kind of a request of an asynchronous endpoint that has no result yet."""

TITLES = {
    MODEL: "Model",
    ARTIFACT: "Artifact",
    EXPERIMENT: "Experiment",
    TRIAL: "Trial",
    TRIAL_COMPONENT: "TrialComponent",
    MODEL_PACKAGE: "ModelPackage",
    MODEL_PACKAGE_GROUP: "ModelPackageGroup",
    ENDPOINT_CONFIG: "EndpointConfig",
    ENDPOINT: "Endpoint",
    TRAINING_JOB: "TrainingJob",
    PROCESSING_JOB: "ProcessingJob",
    TRANSFORM_JOB: "TransformJob",
    TUNING_JOB: "HyperParameterTuningJob",
    PIPELINE: "Pipeline",
    PIPELINE_EXECUTION: "PipelineExecution",
}
"""By kind, its name in SageMaker's operations, members and messages, e.g. ``DescribeModel`` and ``ModelName``."""

RUNS = (TRAINING_JOB, PROCESSING_JOB, TRANSFORM_JOB, TUNING_JOB, PIPELINE_EXECUTION)
"""Kinds of what runs to an end: jobs, and executions of pipelines."""


class Stored(Protocol):
    """A resource that lists show by its summary."""

    @property
    def name(self) -> str:
        """Name of its record, unless that is given otherwise."""
        ...

    @property
    def created_ms(self) -> int:
        """Time of its creation, in milliseconds since the epoch."""
        ...

    def to_document(self) -> dict[str, Any]:
        """Return the JSON-able form for the store."""
        ...

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show."""
        ...


def record_of(kind: str, resource: Stored, *, name: str = "", status: str = "") -> Record:
    """Return a resource as a record.

    Args:
        name: Name of the record. Default: that of the resource.
        status: By which lists filter. Default: none.
    """
    return Record(
        kind=kind,
        name=name or resource.name,
        status=status,
        created_ms=resource.created_ms,
        modified_ms=resource.created_ms,
        summary=resource.to_summary(),
        document=resource.to_document(),
    )


async def page_of(records: RecordStore, kind: str, query: Query) -> tuple[tuple[Summary, ...], str | None]:
    """Return one page of the records' summaries, and the token of the next page (None on the last page).

    Args:
        query: Filters, order, size and position of the page.

    Raises:
        ValidationException: The token was not issued for this query.
    """
    try:
        page = await records.summaries(kind, query)
    except ValueError as error:
        raise ValidationException(f"Value {query.after!r} at 'nextToken' is not valid: {error}") from error
    return page.records, page.next_token


def async_invocation_record(invocation: AsyncInvocation) -> Record:
    """Return a request to an asynchronous endpoint as a record.

    Args:
        invocation: The request.
    """
    return _record(ASYNC_INVOCATION, invocation.invocation_id, "", invocation.created_ms, invocation.to_document())


def endpoint_record(endpoint: Endpoint) -> Record:
    """Return an endpoint as a record.

    Args:
        endpoint: The endpoint.
    """
    record = _record(ENDPOINT, endpoint.name, str(endpoint.status), endpoint.created_ms, endpoint.to_document())
    return replace(record, summary={"arn": endpoint.arn})


def removal_record(endpoint: Endpoint) -> Record:
    """Return an endpoint that is being deleted as a record that does not occupy its name.

    Args:
        endpoint: An endpoint that is being deleted.
    """
    return _record(
        ENDPOINT_REMOVAL, endpoint.endpoint_id, str(endpoint.status), endpoint.created_ms, endpoint.to_document()
    )


def resource_record(kind: str, resource: Resource) -> Record:
    """Return a model or an endpoint configuration as a record.

    Args:
        resource: Model or configuration.
    """
    record = _record(kind, resource.name, "", resource.created_ms, resource.to_document())
    return replace(record, summary={"arn": resource.arn})


def package_record(package: RegisteredModel) -> Record:
    """Return a model package as a record. Its status is its approval, by which lists filter.

    Args:
        package: The package.
    """
    return record_of(MODEL_PACKAGE, package, status=package.approval)


def component_record(component: TrialComponent) -> Record:
    """Return a trial component as a record. Its status is its PrimaryStatus.

    Args:
        component: The component.
    """
    status = component.members.get("Status", {}).get("PrimaryStatus", "")
    return record_of(TRIAL_COMPONENT, component, status=status)


def _record(kind: str, name: str, status: str, created_ms: int, document: dict[str, Any]) -> Record:
    return Record(kind=kind, name=name, status=status, created_ms=created_ms, modified_ms=created_ms, document=document)


async def sound_records(records: RecordStore, kind: str, query: Query) -> AsyncIterator[Record]:
    """Yield all records that a query selects, in its order, except those that are damaged.

    Args:
        query: Order and filters; its limit is not used.
    """
    async for each in walk(records, kind, query, with_documents=True):
        assert isinstance(each, Record)
        yield each
