"""How domain objects are kept as records."""

from typing import Any

from tidemill.core.hosting import Endpoint, Resource
from tidemill.core.training import TrainingJob
from tidemill.store.base import Record

__all__ = [
    "ENDPOINT_REMOVAL",
    "TRAINING_JOB",
    "endpoint_record",
    "job_record",
    "removal_record",
    "resource_record",
]

ENDPOINT_REMOVAL = "endpoint-removal"
"""Kind of an endpoint that is being deleted and whose name a new endpoint has taken; named by its instance id."""
TRAINING_JOB = "training-job"


def job_record(job: TrainingJob) -> Record:
    """A training job as a record."""
    return _record(TRAINING_JOB, job.name, str(job.status), job.created_ms, job.to_document())


def endpoint_record(endpoint: Endpoint) -> Record:
    """An endpoint as a record."""
    return _record("endpoint", endpoint.name, str(endpoint.status), endpoint.created_ms, endpoint.to_document())


def removal_record(endpoint: Endpoint) -> Record:
    """An endpoint that is being deleted, as a record that leaves its name free."""
    return _record(
        ENDPOINT_REMOVAL, endpoint.instance_id, str(endpoint.status), endpoint.created_ms, endpoint.to_document()
    )


def resource_record(kind: str, resource: Resource) -> Record:
    """A model or an endpoint configuration as a record."""
    return _record(kind, resource.name, "", resource.created_ms, resource.to_document())


def _record(kind: str, name: str, status: str, created_ms: int, document: dict[str, Any]) -> Record:
    return Record(kind=kind, name=name, status=status, created_ms=created_ms, modified_ms=created_ms, document=document)
