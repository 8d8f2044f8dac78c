"""Models, endpoint configurations and endpoints: create, look up, list, delete."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.admission import check_s3_uri
from tidemill.control.resources import endpoint_record, removal_record, resource_record
from tidemill.control.tags import check_tags, delete_tags, insert_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint, EndpointStatus, Resource
from tidemill.core.images import parse_image
from tidemill.core.names import sagemaker_arn
from tidemill.errors import ValidationException
from tidemill.store.base import Query, Record, RecordExists, RecordStore, Transaction

__all__ = ["ENDPOINT", "ENDPOINT_CONFIG", "MODEL", "Hosting"]

MODEL = "model"
ENDPOINT_CONFIG = "endpoint-config"
ENDPOINT = "endpoint"

_TITLES = {MODEL: "model", ENDPOINT_CONFIG: "endpoint configuration", ENDPOINT: "endpoint"}
_MAX_INSTANCES = 8

_Tags = Sequence[Mapping[str, str]]


class Hosting:
    """The models and endpoints of the account.

    Args:
        records: Where they are kept.
        region: For ARNs.
        clock: Time.
        wake: Called with an endpoint that is new or has changed.
    """

    def __init__(self, records: RecordStore, *, region: str, clock: Clock, wake: Callable[[Endpoint], None]) -> None:
        self._records = records
        self._region = region
        self._clock = clock
        self._wake = wake

    async def create_model(self, request: Mapping[str, Any], *, tags: _Tags = ()) -> Resource:
        """Keep a model's container definition.

        Args:
            request: The members of CreateModel without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

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
        model = self._resource(MODEL, request["ModelName"], request)
        checked_tags = check_tags(tags)
        with _taken(MODEL, model.arn):
            await self._records.change(
                lambda transaction: _insert(transaction, resource_record(MODEL, model), model.arn, checked_tags),
                grows=True,
            )
        return model

    async def create_config(self, request: Mapping[str, Any], *, tags: _Tags = ()) -> Resource:
        """Keep an endpoint configuration.

        Args:
            request: The members of CreateEndpointConfig without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: A variant cannot be served, its model does not exist, or the name is taken.
        """
        _check_capture(request.get("DataCaptureConfig"))
        variant = _variant(request)
        config = self._resource(ENDPOINT_CONFIG, request["EndpointConfigName"], request)
        checked_tags = check_tags(tags)

        def insert(transaction: Transaction) -> None:
            self._existing(transaction, MODEL, variant["ModelName"])
            _insert(transaction, resource_record(ENDPOINT_CONFIG, config), config.arn, checked_tags)

        with _taken(ENDPOINT_CONFIG, config.arn):
            await self._records.change(insert, grows=True)
        return config

    async def create_endpoint(self, request: Mapping[str, Any], *, tags: _Tags = ()) -> Endpoint:
        """Accept an endpoint; it is Creating until its server answers.

        The name of an endpoint that is being deleted is free: the old servers drain under the id of their instance,
        while those of the new endpoint start.

        Args:
            request: The members of CreateEndpoint without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The configuration or its model does not exist, or the name is taken.
        """
        name = request["EndpointName"]
        checked_tags = check_tags(tags)
        instance_id, at_ms = secrets.token_hex(16), self._clock.now_ms()

        def insert(transaction: Transaction) -> Endpoint:
            config = self._existing(transaction, ENDPOINT_CONFIG, request["EndpointConfigName"])
            model = self._existing(transaction, MODEL, _variant(config.request)["ModelName"])
            endpoint = self._endpoint_of(config, model, name=name, instance_id=instance_id, at_ms=at_ms)
            _free_name(transaction, name)
            _insert(transaction, endpoint_record(endpoint), endpoint.arn, checked_tags)
            return endpoint

        with _taken(ENDPOINT, sagemaker_arn(ENDPOINT, name, region=self._region)):
            endpoint = await self._records.change(insert, grows=True)
        faults.point("control.endpoint.created")
        self._wake(endpoint)
        return endpoint

    async def delete(self, kind: str, name: str) -> None:
        """Delete a model or a configuration, and its tags.

        Raises:
            ValidationException: There is none.
        """

        def delete(transaction: Transaction) -> None:
            record = transaction.delete(kind, name)
            if record is None:
                raise self._missing(kind, name)
            delete_tags(transaction, record.document["arn"])

        await self._records.change(delete)

    async def delete_endpoint(self, name: str) -> None:
        """Ask an endpoint to go; it is Deleting until its server has drained, or a new one takes its name.

        Raises:
            ValidationException: There is none, or it is Deleting already.
        """
        record = await self._records.update(ENDPOINT, name, _deleting)
        if record is None:
            raise self._missing(ENDPOINT, name)
        faults.point("control.endpoint.deleting")
        self._wake(Endpoint.from_document(record.document))

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

    def _resource(self, kind: str, name: str, request: Mapping[str, Any]) -> Resource:
        return Resource(
            name=name,
            arn=sagemaker_arn(kind, name, region=self._region),
            request=dict(request),
            created_ms=self._clock.now_ms(),
        )

    def _endpoint_of(self, config: Resource, model: Resource, *, name: str, instance_id: str, at_ms: int) -> Endpoint:
        variant = _variant(config.request)
        return Endpoint(
            name=name,
            arn=sagemaker_arn(ENDPOINT, name, region=self._region),
            config_name=config.name,
            instance_id=instance_id,
            variant=variant,
            model=model.request,
            log_streams=tuple(
                f"{variant['VariantName']}/i-{instance_id[:12]}{index:05x}"
                for index in range(variant.get("InitialInstanceCount", 1))
            ),
            created_ms=at_ms,
        )

    def _existing(self, transaction: Transaction, kind: str, name: str) -> Resource:
        record = transaction.get(kind, name)
        if record is None:
            raise self._missing(kind, name)
        return Resource.from_document(record.document)

    def _missing(self, kind: str, name: str) -> ValidationException:
        return ValidationException(
            f'Could not find {_TITLES[kind]} "{sagemaker_arn(kind, name, region=self._region)}".'
        )


@contextlib.contextmanager
def _taken(kind: str, arn: str) -> Iterator[None]:
    """Around an insert: a taken name is a ValidationException here, unlike for training jobs."""
    try:
        yield
    except RecordExists as error:
        raise ValidationException(
            f'Cannot create already existing {_TITLES[kind]} "{arn}": choose another name or delete it first'
        ) from error


def _insert(transaction: Transaction, record: Record, arn: str, tags: Mapping[str, str]) -> None:
    transaction.insert(record)
    insert_tags(transaction, arn, tags, at_ms=record.created_ms)


def _free_name(transaction: Transaction, name: str) -> None:
    """Keep an endpoint that is being deleted under its instance id, so that another can have its name."""
    record = transaction.get(ENDPOINT, name)
    endpoint = Endpoint.from_document(record.document) if record else None
    if endpoint is not None and endpoint.status is EndpointStatus.DELETING:
        transaction.delete(ENDPOINT, name)
        transaction.insert(removal_record(endpoint))


def _container(request: Mapping[str, Any]) -> Mapping[str, Any]:
    primary = [request["PrimaryContainer"]] if "PrimaryContainer" in request else []
    containers = [*primary, *request.get("Containers", [])]
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
    if "ModelName" not in variant:
        raise ValidationException(
            "Value None at 'productionVariants.1.member.modelName' is not allowed: there are no inference components;"
            " give the name of a model"
        )
    count = variant.get("InitialInstanceCount", 1)
    if not 1 <= count <= _MAX_INSTANCES:
        raise ValidationException(
            f"Value {count} at 'productionVariants.1.member.initialInstanceCount' is not allowed:"
            f" between 1 and {_MAX_INSTANCES}"
        )
    return variant


def _check_capture(config: Mapping[str, Any] | None) -> None:
    """SageMaker captures unless it is told not to."""
    if config is not None and config.get("EnableCapture", True):
        raise ValidationException(
            f"Value {dict(config)!r} at 'dataCaptureConfig' is not allowed: requests and replies are not captured;"
            " leave it out, or say EnableCapture=false"
        )


def _deleting(record: Record) -> Record:
    endpoint = Endpoint.from_document(record.document)
    if endpoint.status is EndpointStatus.DELETING:
        raise ValidationException(f'Cannot update in-progress endpoint "{endpoint.arn}": it is being deleted')
    return endpoint_record(replace(endpoint, status=EndpointStatus.DELETING))
