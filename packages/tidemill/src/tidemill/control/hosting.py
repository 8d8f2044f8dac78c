"""Models, endpoint configurations and endpoints: create, look up, list, delete."""

import contextlib
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.admission import check_s3_uri, refusal
from tidemill.control.endpoints.updates import limit_of, resized, retaining, updated
from tidemill.control.endpoints.variants import check_variants, deployment_of
from tidemill.control.registry.containers import container_of
from tidemill.control.registry.packages import ModelRegistry
from tidemill.control.resources import (
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    endpoint_record,
    page_of,
    removal_record,
    resource_record,
)
from tidemill.control.tags import check_tags, delete_tags, insert_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.frameworks import Frameworks
from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Resource
from tidemill.core.images import parse_image
from tidemill.core.names import ACCOUNT_ID, sagemaker_arn
from tidemill.errors import AwsError, StateCorrupt, ValidationException
from tidemill.store.records.base import Query, Record, RecordExists, RecordStore, Summary, Transaction

_TAKES_REQUESTS = (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING)
_TITLES = {MODEL: "model", ENDPOINT_CONFIG: "endpoint configuration", ENDPOINT: "endpoint"}

_Tags = Sequence[Mapping[str, str]]


class Hosting:
    """The models and endpoints of the account.

    Args:
        records: Stores models, configurations and endpoints.
        wake: Called with a new or changed endpoint.
        frameworks: Selects the environments of endpoints. Default: without the setting ``images``.
    """

    def __init__(
        self,
        records: RecordStore,
        *,
        region: str,
        clock: Clock,
        wake: Callable[[Endpoint], None],
        frameworks: Frameworks | None = None,
    ) -> None:
        self._records = records
        self._region = region
        self._clock = clock
        self._wake = wake
        self._frameworks = frameworks or Frameworks()
        self._package = ModelRegistry(records, region=region, clock=clock).package
        self._cache = _EndpointCache(records)

    async def create_model(self, request: Mapping[str, Any], *, tags: _Tags = ()) -> Resource:
        """Store a model's container definition.

        Args:
            request: The members of CreateModel without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The model has several containers or none, an image that cannot be served, a malformed
                ModelDataUrl, a model package that does not exist or is not approved, or a taken name.
        """
        given = _container(request)
        container = container_of(given, self._package)
        try:
            self._frameworks.of_serving(container.get("Image", ""))
        except ValueError as error:
            raise refusal("primaryContainer.image", container.get("Image"), str(error)) from error
        url = container.get("ModelDataUrl", "")
        check_s3_uri(url, "primaryContainer.modelDataUrl")
        if container.get("Mode") == "MultiModel" and url.endswith(".tar.gz"):
            raise ValidationException(
                f"Value {url!r} at 'primaryContainer.modelDataUrl' is not allowed: the models of a multi-model endpoint"
                " lie below a prefix; give that, e.g. 's3://bucket/models/'"
            )
        if container.get("Mode") == "MultiModel" and parse_image(container.get("Image", "")).serves_python_handlers:
            raise ValidationException(
                f"Value {container['Image']!r} at 'primaryContainer.image' is not allowed: the Python-based kind of"
                " endpoint has one model; use a tensorflow-inference image for Mode MultiModel"
            )
        model = self._resource(MODEL, request["ModelName"], request)
        if container is not given:
            model = replace(model, container=container)
        checked_tags = check_tags(tags)
        with _taken(MODEL, model.arn):
            await self._records.change(
                lambda transaction: _insert(transaction, resource_record(MODEL, model), model.arn, checked_tags),
                grows=True,
            )
        return model

    async def create_config(self, request: Mapping[str, Any], *, tags: _Tags = ()) -> Resource:
        """Store an endpoint configuration.

        Args:
            request: The members of CreateEndpointConfig without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: A variant cannot be served, its model does not exist, or the name is taken.
        """
        _check_capture(request.get("DataCaptureConfig"))
        _check_asynchronous(request.get("AsyncInferenceConfig"))
        variants = request["ProductionVariants"]
        check_variants(variants)
        config = self._resource(ENDPOINT_CONFIG, request["EndpointConfigName"], request)
        checked_tags = check_tags(tags)

        def insert(transaction: Transaction) -> None:
            for variant in variants:
                self._existing(transaction, MODEL, variant["ModelName"])
            _insert(transaction, resource_record(ENDPOINT_CONFIG, config), config.arn, checked_tags)

        with _taken(ENDPOINT_CONFIG, config.arn):
            await self._records.change(insert, grows=True)
        return config

    async def create_endpoint(self, request: Mapping[str, Any], *, tags: _Tags = ()) -> Endpoint:
        """Create an endpoint; its status is Creating until its servers answer.

        The name of a Deleting endpoint may be reused: its servers drain under the old endpoint's id while those of the
        new endpoint start.

        Args:
            request: The members of CreateEndpoint without its tags.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The configuration or its model does not exist, or the name is taken.
        """
        name = request["EndpointName"]
        checked_tags = check_tags(tags)
        deployment_config = request.get("DeploymentConfig", {})

        def insert(transaction: Transaction) -> Endpoint:
            deployment = self._deployment(transaction, request["EndpointConfigName"], deployment_config)
            endpoint = Endpoint(
                name=name,
                arn=sagemaker_arn(ENDPOINT, name, region=self._region),
                endpoint_id=secrets.token_hex(16),
                created_ms=deployment.begun_ms,
                starting=deployment,
                deployment_config=deployment_config,
            )
            _free_name(transaction, name)
            _insert(transaction, endpoint_record(endpoint), endpoint.arn, checked_tags)
            return endpoint

        with _taken(ENDPOINT, sagemaker_arn(ENDPOINT, name, region=self._region)):
            endpoint = await self._records.change(insert, grows=True)
        faults.point("control.endpoint.created")
        self._wake(endpoint)
        return endpoint

    async def update_endpoint(self, request: Mapping[str, Any]) -> Endpoint:
        """Change the configuration of an endpoint.

        Its status is Updating, and the old instances serve, until all instances of the new configuration answer.

        Args:
            request: The members of UpdateEndpoint.

        Raises:
            ValidationException: Endpoint, configuration or model does not exist, or the endpoint is not in service.
        """
        given = None if request.get("RetainDeploymentConfig") else request.get("DeploymentConfig", {})

        def update(transaction: Transaction, endpoint: Endpoint) -> Endpoint:
            config = endpoint.deployment_config if given is None else given
            deployment = self._deployment(transaction, request["EndpointConfigName"], config)
            deployment = retaining(deployment, request, serving=endpoint.serving)
            return updated(endpoint, deployment, config=given)

        return await self._update_endpoint(request["EndpointName"], update)

    async def resize_endpoint(
        self, request: Mapping[str, Any], *, along: Callable[[Transaction, Endpoint], None] | None = None
    ) -> Endpoint:
        """Change weights and instance counts. The endpoint's status is Updating until all instances answer.

        Args:
            request: The members of UpdateEndpointWeightsAndCapacities.
            along: Gets the transaction and the endpoint before the change. What it writes is in the same commit; it
                refuses the change by an exception. Default: nothing.

        Raises:
            ValidationException: The endpoint or a variant does not exist, or the endpoint is not in service.
        """

        def update(transaction: Transaction, endpoint: Endpoint) -> Endpoint:
            if along is not None:
                along(transaction, endpoint)
            serving = endpoint.serving or Deployment(config_name="", variants=(), begun_ms=0)
            begun = updated(endpoint, serving, config=None)
            wanted = request["DesiredWeightsAndCapacities"]
            return replace(begun, starting=resized(serving, wanted, at_ms=self._clock.now_ms()))

        return await self._update_endpoint(request["EndpointName"], update)

    async def delete(self, kind: str, name: str) -> None:
        """Delete a model or a configuration, and its tags.

        Raises:
            ValidationException: There is no model or configuration of that name.
        """

        def delete(transaction: Transaction) -> None:
            record = transaction.delete(kind, name)
            if record is None:
                raise self._missing(kind, name)
            delete_tags(transaction, sagemaker_arn(kind, name, region=self._region))

        await self._records.change(delete)

    async def delete_endpoint(self, name: str) -> None:
        """Delete an endpoint. It stays listed as Deleting until its servers have drained or its name is taken.

        Raises:
            ValidationException: There is no endpoint of that name, or it is Deleting already.
        """
        try:
            record = await self._records.update(ENDPOINT, name, _deleting)
        except StateCorrupt:
            # What it owns is unknown. The sweep at the next start ends instances without an endpoint.
            await self.delete(ENDPOINT, name)
            return
        if record is None:
            raise self._missing(ENDPOINT, name)
        faults.point("control.endpoint.deleting")
        self._wake(Endpoint.from_document(record.document))

    def record(self, kind: str, name: str) -> Record:
        """Return a stored record.

        Raises:
            ValidationException: There is no such record. The message has the "Could not find" that clients look for.
        """
        record = self._records.get(kind, name)
        if record is None:
            raise self._missing(kind, name)
        return record

    def get(self, kind: str, name: str) -> Resource:
        """Return a model or configuration. Raises as `record`.

        Args:
            kind: `MODEL` or `ENDPOINT_CONFIG`.
        """
        return Resource.from_document(self.record(kind, name).document)

    def endpoint(self, name: str) -> Endpoint:
        """Return an endpoint. Raises as `record`.

        Args:
            name: Name of the endpoint.
        """
        endpoint = self._cache.get(name)
        if endpoint is None:
            raise self._missing(ENDPOINT, name)
        return endpoint

    def in_service(self, name: str) -> Endpoint:
        """Return an endpoint that accepts requests.

        Raises:
            AwsError: ValidationError, if the endpoint does not exist or takes no requests now.
        """
        try:
            endpoint = self.endpoint(name)
        except ValidationException:
            raise AwsError(f"Endpoint {name} of account {ACCOUNT_ID} not found.", code="ValidationError") from None
        if endpoint.status not in _TAKES_REQUESTS:
            raise AwsError(
                f"Endpoint {name} of account {ACCOUNT_ID} is {endpoint.status}, not InService; wait for it first",
                code="ValidationError",
            )
        return endpoint

    async def list(self, kind: str, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of summaries, and the token of the next page (None on the last page).

        Raises:
            ValidationException: The service has not issued this token for this query.
        """
        return await page_of(self._records, kind, query)

    def _resource(self, kind: str, name: str, request: Mapping[str, Any]) -> Resource:
        return Resource(
            name=name,
            arn=sagemaker_arn(kind, name, region=self._region),
            request=dict(request),
            created_ms=self._clock.now_ms(),
        )

    async def _update_endpoint(self, name: str, update: Callable[[Transaction, Endpoint], Endpoint]) -> Endpoint:
        def work(transaction: Transaction) -> Record | None:
            return transaction.update(
                ENDPOINT, name, lambda record: endpoint_record(update(transaction, _endpoint(record)))
            )

        record = await self._records.change(work, grows=True)
        if record is None:
            raise self._missing(ENDPOINT, name)
        faults.point("control.endpoint.updating")
        self._wake(_endpoint(record))
        return _endpoint(record)

    def _deployment(self, transaction: Transaction, config_name: str, config: Mapping[str, Any]) -> Deployment:
        return deployment_of(
            self._existing(transaction, ENDPOINT_CONFIG, config_name),
            model_of=lambda name: self._existing(transaction, MODEL, name),
            at_ms=self._clock.now_ms(),
            limit_s=limit_of(config),
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


class _EndpointCache:
    """Caches endpoints until any endpoint's record changes, so that a request to a model need not read a record."""

    def __init__(self, records: RecordStore) -> None:
        self._records = records
        self._generation: int | None = None
        self._endpoints: dict[str, Endpoint] = {}

    def get(self, name: str) -> Endpoint | None:
        """Return the stored endpoint of that name, or None if there is no such endpoint."""
        generation = self._records.generation(ENDPOINT)
        if generation is None or generation != self._generation:
            self._endpoints.clear()
            self._generation = generation
        known = self._endpoints.get(name)
        if known is not None:
            return known
        record = self._records.get(ENDPOINT, name)
        if record is None:
            return None
        endpoint = _endpoint(record)
        if generation is not None and generation == self._records.generation(ENDPOINT):
            self._endpoints[name] = endpoint
        return endpoint


@contextlib.contextmanager
def _taken(kind: str, arn: str) -> Generator[None]:
    """Turn RecordExists into the ValidationException that SageMaker raises here; training jobs raise another error."""
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
    """Move a Deleting endpoint from its name to its id, without its tags, so that a new endpoint can take the name."""
    record = transaction.get(ENDPOINT, name)
    endpoint = Endpoint.from_document(record.document) if record else None
    if endpoint is not None and endpoint.status is EndpointStatus.DELETING:
        transaction.delete(ENDPOINT, name)
        transaction.insert(removal_record(endpoint))
        delete_tags(transaction, endpoint.arn)


def _container(request: Mapping[str, Any]) -> Mapping[str, Any]:
    primary = [request["PrimaryContainer"]] if "PrimaryContainer" in request else []
    containers = [*primary, *request.get("Containers", [])]
    if len(containers) != 1:
        raise ValidationException(
            f"Value {len(containers)} at 'containers' is not allowed: a model has exactly one container here;"
            " give PrimaryContainer"
        )
    return containers[0]


def _check_capture(config: Mapping[str, Any] | None) -> None:
    if config is not None:
        check_s3_uri(config["DestinationS3Uri"], "dataCaptureConfig.destinationS3Uri")


def _check_asynchronous(config: Mapping[str, Any] | None) -> None:
    if config is None:
        return
    at, output = "asyncInferenceConfig.outputConfig", config["OutputConfig"]
    if "S3OutputPath" not in output:
        raise refusal(f"{at}.s3OutputPath", None, "say where results go")
    for member in ("S3OutputPath", "S3FailurePath"):
        if member in output:
            check_s3_uri(output[member], f"{at}.{member[0].lower()}{member[1:]}")


def _endpoint(record: Record) -> Endpoint:
    return Endpoint.from_document(record.document)


def _deleting(record: Record) -> Record:
    endpoint = Endpoint.from_document(record.document)
    if endpoint.status is EndpointStatus.DELETING:
        raise ValidationException(f'Cannot update in-progress endpoint "{endpoint.arn}": it is being deleted')
    return endpoint_record(replace(endpoint, status=EndpointStatus.DELETING))
