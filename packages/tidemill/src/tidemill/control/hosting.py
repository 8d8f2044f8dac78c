"""Models, endpoint configurations and endpoints: create, look up, list, delete."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.admission import check_s3_uri
from tidemill.control.resources import endpoint_record, resource_record
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint, EndpointStatus, Resource
from tidemill.core.images import parse_image
from tidemill.core.names import sagemaker_arn
from tidemill.errors import ValidationException
from tidemill.store.base import Query, Record, RecordExists, RecordStore

__all__ = ["ENDPOINT", "ENDPOINT_CONFIG", "MODEL", "Hosting"]

MODEL = "model"
ENDPOINT_CONFIG = "endpoint-config"
ENDPOINT = "endpoint"

_TITLES = {MODEL: "model", ENDPOINT_CONFIG: "endpoint configuration", ENDPOINT: "endpoint"}
_MAX_INSTANCES = 8


class Hosting:
    """The models and endpoints of the account.

    Args:
        records: Where they are kept.
        region: For ARNs.
        clock: Time.
        wake: Called with the name of an endpoint that wants attention.
    """

    def __init__(self, records: RecordStore, *, region: str, clock: Clock, wake: Callable[[str], None]) -> None:
        self._records = records
        self._region = region
        self._clock = clock
        self._wake = wake

    async def create_model(self, request: Mapping[str, Any]) -> Resource:
        """Keep a model's container definition.

        Raises:
            ValidationException: No single container, its ModelDataUrl is malformed, or the name is taken.
        """
        container = _container(request)
        check_s3_uri(container.get("ModelDataUrl", ""), "primaryContainer.modelDataUrl")
        if parse_image(container.get("Image", "")).serves_python_handlers:
            raise ValidationException(
                f"Value {container['Image']!r} at 'primaryContainer.image' is not allowed: this version serves the"
                " TensorFlow-Serving kind of endpoint; use a tensorflow-inference image"
            )
        return await self._create(MODEL, request["ModelName"], request)

    async def create_config(self, request: Mapping[str, Any]) -> Resource:
        """Keep an endpoint configuration.

        Raises:
            ValidationException: A variant cannot be served, its model does not exist, or the name is taken.
        """
        if request.get("KmsKeyId"):
            raise ValidationException(
                f"Value {request['KmsKeyId']!r} at 'kmsKeyId' is not allowed: there is no key ring to encrypt with"
            )
        variant = _variant(request)
        self.get(MODEL, variant["ModelName"])
        return await self._create(ENDPOINT_CONFIG, request["EndpointConfigName"], request)

    async def create_endpoint(self, request: Mapping[str, Any]) -> Endpoint:
        """Accept an endpoint; it is Creating until its server answers.

        Raises:
            ValidationException: The configuration or its model does not exist, or the name is taken.
        """
        name = request["EndpointName"]
        config = self.get(ENDPOINT_CONFIG, request["EndpointConfigName"])
        variant = _variant(config.request)
        model = self.get(MODEL, variant["ModelName"])
        instance_id = secrets.token_hex(16)
        endpoint = Endpoint(
            name=name,
            arn=sagemaker_arn("endpoint", name, region=self._region),
            config_name=config.name,
            instance_id=instance_id,
            variant=variant,
            model=model.request,
            log_streams=tuple(
                f"{variant['VariantName']}/i-{instance_id[:12]}{index:05x}"
                for index in range(variant.get("InitialInstanceCount", 1))
            ),
            created_ms=self._clock.now_ms(),
        )
        await self._insert(endpoint_record(endpoint), endpoint.arn)
        faults.point("control.endpoint.created")
        self._wake(name)
        return endpoint

    async def delete(self, kind: str, name: str) -> None:
        """Delete a model or a configuration.

        Raises:
            ValidationException: There is none.
        """
        if await self._records.delete(kind, name) is None:
            raise self._missing(kind, name)

    async def delete_endpoint(self, name: str) -> None:
        """Ask an endpoint to go; it is Deleting until its server has drained.

        Raises:
            ValidationException: There is none, or it is Deleting already.
        """
        endpoint = self.endpoint(name)
        if endpoint.status is EndpointStatus.DELETING:
            raise ValidationException(f'Cannot update in-progress endpoint "{endpoint.arn}": it is being deleted')
        await self._records.update(ENDPOINT, name, _deleting)
        faults.point("control.endpoint.deleting")
        self._wake(name)

    def record(self, kind: str, name: str) -> Record:
        """The stored record.

        Raises:
            ValidationException: There is none (its text has the "Could not find" that clients look for).
        """
        record = self._records.get(kind, name)
        if record is None:
            raise self._missing(kind, name)
        return record

    def get(self, kind: str, name: str) -> Resource:
        """A model or configuration; raises as `record`."""
        return Resource.from_document(self.record(kind, name).document)

    def endpoint(self, name: str) -> Endpoint:
        """An endpoint; raises as `record`."""
        return Endpoint.from_document(self.record(ENDPOINT, name).document)

    async def list(self, kind: str, query: Query) -> tuple[tuple[Record, ...], str | None]:
        """One page of records and the token of the next.

        Raises:
            ValidationException: The token is not one of ours for this query.
        """
        try:
            page = await self._records.list(kind, query)
        except ValueError as error:
            raise ValidationException(f"Value {query.after!r} at 'nextToken' is not valid: {error}") from error
        return page.records, page.next_token

    async def _create(self, kind: str, name: str, request: Mapping[str, Any]) -> Resource:
        resource = Resource(
            name=name,
            arn=sagemaker_arn(kind, name, region=self._region),
            request=dict(request),
            created_ms=self._clock.now_ms(),
        )
        await self._insert(resource_record(kind, resource), resource.arn)
        return resource

    async def _insert(self, record: Record, arn: str) -> None:
        try:
            await self._records.insert(record)
        except RecordExists as error:
            # SageMaker answers ValidationException here, unlike for training jobs.
            raise ValidationException(
                f'Cannot create already existing {_TITLES[record.kind]} "{arn}": choose another name or delete it first'
            ) from error

    def _missing(self, kind: str, name: str) -> ValidationException:
        return ValidationException(
            f'Could not find {_TITLES[kind]} "{sagemaker_arn(kind, name, region=self._region)}".'
        )


def _container(request: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = [request["PrimaryContainer"]] if "PrimaryContainer" in request else request.get("Containers", [])
    if len(containers) != 1:
        raise ValidationException(
            f"Value {len(containers)} at 'containers' is not allowed: a model has exactly one container here;"
            " give PrimaryContainer"
        )
    return containers[0]


def _variant(request: Mapping[str, Any]) -> Mapping[str, Any]:
    variants = request["ProductionVariants"]
    if len(variants) != 1:
        raise ValidationException(
            f"Value {len(variants)} at 'productionVariants' is not allowed: this version serves one variant"
        )
    variant = variants[0]
    if "ServerlessConfig" in variant:
        raise ValidationException("'productionVariants.1.member.serverlessConfig' is not offered: give InstanceType")
    count = variant.get("InitialInstanceCount", 1)
    if not 1 <= count <= _MAX_INSTANCES:
        raise ValidationException(
            f"Value {count} at 'productionVariants.1.member.initialInstanceCount' is not allowed:"
            f" between 1 and {_MAX_INSTANCES}"
        )
    return variant


def _deleting(record: Record) -> Record:
    endpoint = Endpoint.from_document(record.document)
    return endpoint_record(replace(endpoint, status=EndpointStatus.DELETING))
