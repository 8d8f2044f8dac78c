"""Models, endpoint configurations and endpoints on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.hosting import ENDPOINT, ENDPOINT_CONFIG, MODEL, Hosting
from tidemill.core.hosting import Endpoint, EndpointStatus, Resource
from tidemill.services.sagemaker.listing import query_of
from tidemill.services.times import when
from tidemill.store.base import Record
from tidemill.wire.exchange import Context, Handler

__all__ = ["HostingHandlers"]


class HostingHandlers:
    """Create, describe, list and delete what serves models."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "CreateModel": self.create_model,
            "DescribeModel": self.describe_model,
            "ListModels": self.list_models,
            "DeleteModel": self.delete_model,
            "CreateEndpointConfig": self.create_config,
            "DescribeEndpointConfig": self.describe_config,
            "ListEndpointConfigs": self.list_configs,
            "DeleteEndpointConfig": self.delete_config,
            "CreateEndpoint": self.create_endpoint,
            "DescribeEndpoint": self.describe_endpoint,
            "ListEndpoints": self.list_endpoints,
            "DeleteEndpoint": self.delete_endpoint,
        }

    async def create_model(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"ModelArn": (await self._hosting.create_model(request, tags=tags)).arn}

    async def describe_model(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        model = self._hosting.get(MODEL, request["ModelName"])
        return {"EnableNetworkIsolation": False, **_echo(model), "ModelArn": model.arn}

    async def list_models(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._list(MODEL, request, "Models", _model_summary)

    async def delete_model(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._hosting.delete(MODEL, request["ModelName"])
        return {}

    async def create_config(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"EndpointConfigArn": (await self._hosting.create_config(request, tags=tags)).arn}

    async def describe_config(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        config = self._hosting.get(ENDPOINT_CONFIG, request["EndpointConfigName"])
        return {**_echo(config), "EndpointConfigArn": config.arn}

    async def list_configs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._list(ENDPOINT_CONFIG, request, "EndpointConfigs", _config_summary)

    async def delete_config(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._hosting.delete(ENDPOINT_CONFIG, request["EndpointConfigName"])
        return {}

    async def create_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"EndpointArn": (await self._hosting.create_endpoint(request, tags=tags)).arn}

    async def describe_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        record = self._hosting.record(ENDPOINT, request["EndpointName"])
        return _endpoint_description(record)

    async def list_endpoints(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._list(ENDPOINT, request, "Endpoints", _endpoint_summary)

    async def delete_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._hosting.delete_endpoint(request["EndpointName"])
        return {}

    async def _list(self, kind: str, request: dict[str, Any], member: str, summary: Any) -> Mapping[str, Any]:
        records, token = await self._hosting.list(kind, query_of(request))
        reply: dict[str, Any] = {member: [summary(record) for record in records]}
        return reply | ({"NextToken": token} if token else {})


def _echo(resource: Resource) -> dict[str, Any]:
    return {**resource.request, "CreationTime": when(resource.created_ms)}


def _model_summary(record: Record) -> dict[str, Any]:
    model = Resource.from_document(record.document)
    return {"ModelName": model.name, "ModelArn": model.arn, "CreationTime": when(model.created_ms)}


def _config_summary(record: Record) -> dict[str, Any]:
    config = Resource.from_document(record.document)
    return {
        "EndpointConfigName": config.name,
        "EndpointConfigArn": config.arn,
        "CreationTime": when(config.created_ms),
    }


def _endpoint_summary(record: Record) -> dict[str, Any]:
    endpoint = Endpoint.from_document(record.document)
    return {
        "EndpointName": endpoint.name,
        "EndpointArn": endpoint.arn,
        "CreationTime": when(endpoint.created_ms),
        "LastModifiedTime": when(record.modified_ms),
        "EndpointStatus": str(endpoint.status),
    }


def _endpoint_description(record: Record) -> dict[str, Any]:
    endpoint = Endpoint.from_document(record.document)
    return {
        **_endpoint_summary(record),
        "EndpointConfigName": endpoint.config_name,
        # The member is left out until there is a variant: its shape does not allow an empty list.
        **({"ProductionVariants": [_variant(endpoint)]} if endpoint.status is EndpointStatus.IN_SERVICE else {}),
        **({"FailureReason": endpoint.failure_reason} if endpoint.failure_reason else {}),
    }


def _variant(endpoint: Endpoint) -> dict[str, Any]:
    container = endpoint.model.get("PrimaryContainer") or endpoint.model["Containers"][0]
    weight = endpoint.variant.get("InitialVariantWeight", 1.0)
    image = container.get("Image", "")
    return {
        "VariantName": endpoint.variant["VariantName"],
        "DeployedImages": [
            {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": when(endpoint.created_ms)}
        ],
        "CurrentWeight": weight,
        "DesiredWeight": weight,
        "CurrentInstanceCount": len(endpoint.log_streams),
        "DesiredInstanceCount": len(endpoint.log_streams),
    }
