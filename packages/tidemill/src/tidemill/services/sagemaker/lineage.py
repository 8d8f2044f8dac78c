"""Artifacts and associations on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.experiments.lineage import Lineage
from tidemill.control.resources import ARTIFACT
from tidemill.core.lineage import LineageArtifact, artifact_id
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.callers import user_of
from tidemill.services.sagemaker.listing import arn_of, page_reply, query_of
from tidemill.services.times import when
from tidemill.store.records.base import Query, Summary
from tidemill.wire.exchange import Context

_FILTERS = ("SourceArn", "DestinationArn", "SourceType", "DestinationType", "AssociationType")


class LineageHandlers(Operations):
    """Create, describe, list, update, delete and associate artifacts."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage

    async def create_artifact(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        created = await self._lineage.create(request, caller=context.caller.arn, tags=tags)
        return {"ArtifactArn": created.arn}

    async def describe_artifact(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        record = self._lineage.record(ARTIFACT, _id(request))
        artifact = LineageArtifact.from_document(record.document)
        return {
            **artifact.members,
            "ArtifactArn": artifact.arn,
            "CreationTime": when(artifact.created_ms),
            "CreatedBy": user_of(artifact.created_by),
            "LastModifiedTime": when(record.modified_ms),
            **({"LastModifiedBy": user_of(artifact.modified_by)} if artifact.modified_by else {}),
        }

    async def list_artifacts(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        found, token = await self._lineage.list(
            _query(request), uri=request.get("SourceUri"), kind=request.get("ArtifactType")
        )
        return page_reply("ArtifactSummaries", [_artifact_summary(each) for each in found], token)

    async def update_artifact(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        updated = await self._lineage.update(_id(request), request, caller=context.caller.arn)
        return {"ArtifactArn": updated.arn}

    async def delete_artifact(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"ArtifactArn": await self._lineage.delete(_id(request))}

    async def add_association(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        source, destination = request["SourceArn"], request["DestinationArn"]
        kind = request.get("AssociationType")
        await self._lineage.associate(source, destination, kind=kind, caller=context.caller.arn)
        return {"SourceArn": source, "DestinationArn": destination}

    async def delete_association(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        source, destination = request["SourceArn"], request["DestinationArn"]
        await self._lineage.disassociate(source, destination)
        return {"SourceArn": source, "DestinationArn": destination}

    async def list_associations(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        filters = {member: request[member] for member in _FILTERS if member in request}
        order = request.get("SortBy", "CreationTime")
        found, token = await self._lineage.associations(_query(request), filters=filters, order=order)
        return page_reply("AssociationSummaries", [_association_summary(each) for each in found], token)


def _id(request: Mapping[str, Any]) -> str:
    """Return the id of the artifact that a request names by its ARN, or by its Source."""
    if "ArtifactArn" in request:
        return request["ArtifactArn"].rpartition("/")[2]
    if "Source" not in request:
        raise ValidationException("Value None at 'artifactArn' is not allowed: give ArtifactArn or Source")
    return artifact_id(request["Source"])


def _query(request: Mapping[str, Any]) -> Query:
    times = {"CreationTimeAfter": request.get("CreatedAfter"), "CreationTimeBefore": request.get("CreatedBefore")}
    return query_of({**request, **times, "SortBy": "CreationTime"})


def _artifact_summary(artifact: Summary) -> dict[str, Any]:
    return {
        **artifact.summary.get("shown", {}),
        "ArtifactArn": arn_of(artifact),
        "CreationTime": when(artifact.created_ms),
        "LastModifiedTime": when(artifact.modified_ms),
    }


def _association_summary(association: Summary) -> dict[str, Any]:
    shown = association.summary
    return {**shown, "CreatedBy": user_of(shown["CreatedBy"]), "CreationTime": when(association.created_ms)}
