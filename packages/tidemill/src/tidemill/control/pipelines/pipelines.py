"""Pipelines: create, update, look up, list, delete. Each definition is kept as a version, which executions refer to."""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.pipelines.definition import PipelineDefinition, parse_definition
from tidemill.control.resources import PIPELINE, PIPELINE_EXECUTION, PIPELINE_VERSION, STEP_RESULT, page_of, record_of
from tidemill.control.search.pages import walk
from tidemill.control.tags import check_tags, delete_tags, insert_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.names import sagemaker_arn
from tidemill.core.pipelines import ExecutionStatus, PipelineResource
from tidemill.errors import ConflictException, ResourceNotFound, ValidationException
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import Query, Record, RecordStore, Summary, Transaction

_MAX_DEFINITION_BYTES = 1024 * 1024
_REMEMBERED = 64


def version_name(pipeline: str, version: int) -> str:
    """Return the name of the record of a version.

    Args:
        version: Number of the version, from 1.
    """
    return f"pipeline/{pipeline}/version/{version}"


def missing_pipeline(name: str) -> ResourceNotFound:
    """Return the error for a pipeline that does not exist.

    Args:
        name: Its name or ARN.
    """
    return ResourceNotFound(f"Pipeline {name!r} does not exist; ListPipelines shows those that do")


def described(request: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the fields of a pipeline or an execution that a request gives.

    Args:
        request: The members of the request.
        kind: ``Pipeline`` or ``PipelineExecution``, with which the members begin.
    """
    members = {"display_name": f"{kind}DisplayName", "description": f"{kind}Description"}
    found = {field: request[member] for field, member in members.items() if member in request}
    if "ParallelismConfiguration" in request:
        found["max_parallel"] = request["ParallelismConfiguration"]["MaxParallelExecutionSteps"]
    return found


class Pipelines:
    """The pipelines of the account.

    Args:
        records: Stores pipelines and their versions.
        objects: Holds definitions that a request names by S3 location.
    """

    def __init__(self, records: RecordStore, objects: ObjectStore, *, region: str, clock: Clock) -> None:
        self._records = records
        self._objects = objects
        self._region = region
        self._clock = clock
        self._parsed: dict[tuple[str, int], PipelineDefinition] = {}

    async def create(
        self, request: Mapping[str, Any], *, creator: str, tags: Sequence[Mapping[str, str]] = ()
    ) -> PipelineResource:
        """Store a new pipeline, its first version and its tags.

        Args:
            request: The members of CreatePipeline without its tags.
            creator: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Returns:
            The pipeline; the one that an earlier request with the same ClientRequestToken created.

        Raises:
            ValidationException: The definition cannot be executed, or the name is taken.
        """
        checked_tags = check_tags(tags)
        definition = await self._definition_text(request)
        if definition is None:
            raise ValidationException(
                "Neither PipelineDefinition nor PipelineDefinitionS3Location is given; give one of them"
            )
        parse_definition(definition)
        name, now_ms = request["PipelineName"], self._clock.now_ms()
        new = PipelineResource(
            name=name,
            arn=sagemaker_arn(PIPELINE, name, region=self._region),
            pipeline_id=secrets.token_hex(16),
            role=request["RoleArn"],
            version=1,
            token=request["ClientRequestToken"],
            creator=creator,
            modifier=creator,
            created_ms=now_ms,
            **described(request, "Pipeline"),
        )

        def create(transaction: Transaction) -> PipelineResource:
            record = transaction.get(PIPELINE, name)
            if record is not None:
                present = PipelineResource.from_document(record.document)
                if present.token == new.token:
                    return present
                raise ValidationException(
                    f"Pipeline names must be unique: a pipeline {name!r} ({present.arn}) already exists; choose another"
                    " name, or call UpdatePipeline"
                )
            transaction.insert(record_of(PIPELINE, new))
            transaction.insert(_version_record(new, definition, at_ms=now_ms))
            insert_tags(transaction, new.arn, checked_tags, at_ms=now_ms)
            return new

        return await self._records.change(create, grows=True)

    async def update(self, request: Mapping[str, Any], *, modifier: str) -> PipelineResource:
        """Change a pipeline. Another definition becomes a new version; executions keep theirs.

        Args:
            modifier: ARN of the caller.

        Raises:
            ResourceNotFound: There is no such pipeline.
            ValidationException: The definition cannot be executed.
        """
        name, now_ms = request["PipelineName"], self._clock.now_ms()
        definition = await self._definition_text(request)
        if definition is not None:
            parse_definition(definition)

        def update(transaction: Transaction) -> PipelineResource:
            record = transaction.get(PIPELINE, name)
            if record is None:
                raise missing_pipeline(name)
            new = replace(
                PipelineResource.from_document(record.document), modifier=modifier, **described(request, "Pipeline")
            )
            new = replace(new, role=request.get("RoleArn", new.role))
            version = transaction.get(PIPELINE_VERSION, version_name(name, new.version))
            if definition is not None and (version is None or version.document["definition"] != definition):
                new = replace(new, version=new.version + 1)
                transaction.insert(_version_record(new, definition, at_ms=now_ms))
            transaction.update(PIPELINE, name, lambda _: record_of(PIPELINE, new))
            return new

        return await self._records.change(update, grows=True)

    def record(self, name: str) -> Record:
        """Return the record of a pipeline.

        Args:
            name: Its name or ARN.

        Raises:
            ResourceNotFound: There is no such pipeline.
        """
        short = name.rpartition("/")[2]
        record = self._records.get(PIPELINE, short)
        if record is None or (short != name and record.document["arn"] != name):
            raise missing_pipeline(name)
        return record

    def get(self, name: str) -> PipelineResource:
        """Return a pipeline; raises the errors of `record`.

        Args:
            name: Its name or ARN.
        """
        return PipelineResource.from_document(self.record(name).document)

    def version(self, pipeline: str, version: int) -> Record:
        """Return the record of a version; its document has the definition's text.

        Raises:
            ResourceNotFound: There is no such version.
        """
        record = self._records.get(PIPELINE_VERSION, version_name(pipeline, version))
        if record is None:
            raise ResourceNotFound(
                f"Pipeline {pipeline!r} has no version {version}; ListPipelineVersions shows those that it has"
            )
        return record

    def definition(self, pipeline: str, version: int) -> PipelineDefinition:
        """Return the parsed definition of a version; raises the errors of `version`."""
        document = self.version(pipeline, version).document
        key = (document["pipeline_id"], version)
        if key not in self._parsed:
            if len(self._parsed) >= _REMEMBERED:
                self._parsed.clear()
            self._parsed[key] = parse_definition(document["definition"])
        return self._parsed[key]

    async def list(self, query: Query, *, prefix: str = "") -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of pipelines and the token of the next page.

        Args:
            prefix: Begin of the names.

        Raises:
            ValidationException: The token was not issued for this query.
        """
        pattern = f"^{re.escape(prefix)}" if prefix else ""
        return await page_of(self._records, PIPELINE, replace(query, name_pattern=pattern))

    async def versions(self, pipeline: str, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of the versions of a pipeline and the token of the next page.

        Raises:
            ValidationException: The token was not issued for this query.
        """
        query = replace(query, name_contains=version_name(pipeline, 0).removesuffix("0"))
        return await page_of(self._records, PIPELINE_VERSION, query)

    async def delete(self, name: str) -> PipelineResource:
        """Delete a pipeline with its versions, executions and reusable results. Jobs and models stay.

        Args:
            name: Its name or ARN.

        Raises:
            ResourceNotFound: There is no such pipeline.
            ConflictException: An execution has not ended.
        """
        while True:
            pipeline = self.get(name)
            owned = {
                PIPELINE_VERSION: await self._names(PIPELINE_VERSION, f"pipeline/{pipeline.name}/"),
                PIPELINE_EXECUTION: await self._names(PIPELINE_EXECUTION, f"pipeline/{pipeline.name}/"),
                STEP_RESULT: await self._names(STEP_RESULT, f"{pipeline.pipeline_id}/"),
            }

            def delete(transaction: Transaction, seen: PipelineResource = pipeline, all_names: Any = owned) -> bool:
                record = transaction.get(PIPELINE, seen.name)
                if record is None or PipelineResource.from_document(record.document) != seen:
                    return False  # an execution or a version was added meanwhile
                _refuse_running(transaction, seen, all_names[PIPELINE_EXECUTION])
                for kind, names in all_names.items():
                    for each in names:
                        transaction.delete(kind, each)
                transaction.delete(PIPELINE, seen.name)
                delete_tags(transaction, seen.arn)
                return True

            faults.point("control.pipelines.delete.before")
            if await self._records.change(delete):
                return pipeline

    async def _names(self, kind: str, part: str) -> Sequence[str]:
        return [each.name async for each in walk(self._records, kind, Query(name_contains=part, sort_by="name"))]

    async def _definition_text(self, request: Mapping[str, Any]) -> str | None:
        """Return the definition that a request contains or names; None if it has none."""
        text, place = request.get("PipelineDefinition"), request.get("PipelineDefinitionS3Location")
        if place is None:
            return text
        if text is not None:
            raise ValidationException("PipelineDefinition and PipelineDefinitionS3Location are given; give one of them")
        uri = f"s3://{place['Bucket']}/{place['ObjectKey']}"
        info = self._objects.head(place["Bucket"], place["ObjectKey"])
        if info is None or info.size_bytes > _MAX_DEFINITION_BYTES:
            why = "there is no such object" if info is None else f"it has more than {_MAX_DEFINITION_BYTES} bytes"
            raise ValidationException(f"Value {uri!r} at 'pipelineDefinitionS3Location' is not allowed: {why}")
        try:
            return (await self._objects.read_bytes(info)).decode()
        except UnicodeDecodeError as error:
            raise ValidationException(
                f"Value {uri!r} at 'pipelineDefinitionS3Location' is not allowed: it is not UTF-8 ({error})"
            ) from error


def _version_record(pipeline: PipelineResource, definition: str, *, at_ms: int) -> Record:
    return Record(
        kind=PIPELINE_VERSION,
        name=version_name(pipeline.name, pipeline.version),
        created_ms=at_ms,
        modified_ms=at_ms,
        summary={"arn": pipeline.arn, "version": pipeline.version, "execution": ""},
        document={"pipeline_id": pipeline.pipeline_id, "definition": definition},
    )


def _refuse_running(transaction: Transaction, pipeline: PipelineResource, names: Sequence[str]) -> None:
    for name in names:
        record = transaction.get(PIPELINE_EXECUTION, name)
        if record is not None and not ExecutionStatus(record.status).terminal:
            raise ConflictException(
                f"The pipeline {pipeline.name!r} cannot be deleted: its execution {record.document['execution_id']!r}"
                f" is {record.status}; stop it, and wait for its end"
            )
