"""Models, endpoint configurations and endpoints on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.hosting import ENDPOINT, ENDPOINT_CONFIG, MODEL, Hosting
from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Resource, Variant
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import page_reply, query_of, row_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

_MESSAGE_LIMIT = 1024


class HostingHandlers(Operations):
    """Handlers for models, endpoint configurations and endpoints."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

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

    async def create_endpoint_config(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"EndpointConfigArn": (await self._hosting.create_config(request, tags=tags)).arn}

    async def describe_endpoint_config(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        config = self._hosting.get(ENDPOINT_CONFIG, request["EndpointConfigName"])
        return {**_echo(config), "EndpointConfigArn": config.arn}

    async def list_endpoint_configs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._list(ENDPOINT_CONFIG, request, "EndpointConfigs", _config_summary)

    async def delete_endpoint_config(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._hosting.delete(ENDPOINT_CONFIG, request["EndpointConfigName"])
        return {}

    async def create_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"EndpointArn": (await self._hosting.create_endpoint(request, tags=tags)).arn}

    async def describe_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        record = self._hosting.record(ENDPOINT, request["EndpointName"])
        return endpoint_description(record)

    async def list_endpoints(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._list(ENDPOINT, request, "Endpoints", endpoint_summary)

    async def update_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"EndpointArn": (await self._hosting.update_endpoint(request)).arn}

    async def update_endpoint_weights_and_capacities(
        self, request: dict[str, Any], context: Context
    ) -> Mapping[str, Any]:
        return {"EndpointArn": (await self._hosting.resize_endpoint(request)).arn}

    async def delete_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._hosting.delete_endpoint(request["EndpointName"])
        return {}

    async def _list(self, kind: str, request: dict[str, Any], member: str, summary: Any) -> Mapping[str, Any]:
        found, token = await self._hosting.list(kind, query_of(request))
        return page_reply(member, [summary(each) for each in found], token)


def _echo(resource: Resource) -> dict[str, Any]:
    return {**resource.request, "CreationTime": when(resource.created_ms)}


def _model_summary(model: Summary) -> dict[str, Any]:
    return row_of("Model", model, changes=False, status=False)


def _config_summary(config: Summary) -> dict[str, Any]:
    return row_of("EndpointConfig", config, changes=False, status=False)


def endpoint_summary(endpoint: Summary) -> dict[str, Any]:
    """Return what lists show of an endpoint.

    Args:
        endpoint: The summary.
    """
    return row_of("Endpoint", endpoint)


def endpoint_description(record: Record) -> dict[str, Any]:
    """Return the description of an endpoint.

    Args:
        record: The stored endpoint.
    """
    endpoint = Endpoint.from_document(record.document)
    shown = endpoint.status in (EndpointStatus.IN_SERVICE, EndpointStatus.UPDATING) and endpoint.serving is not None
    optional = {
        # The member is omitted until there is a variant: the shape does not allow an empty list.
        "ProductionVariants": _variants(endpoint) if shown else None,
        "DataCaptureConfig": _capture(endpoint),
        "AsyncInferenceConfig": endpoint.serving.asynchronous if endpoint.serving else None,
        "PendingDeploymentSummary": _pending(endpoint),
        "LastDeploymentConfig": endpoint.deployment_config,
        "FailureReason": endpoint.failure_reason,
    }
    return {
        **endpoint_summary(record),
        "EndpointConfigName": endpoint.config_name,
        **{name: value for name, value in optional.items() if value},
    }


def _variants(endpoint: Endpoint) -> list[dict[str, Any]]:
    """Return the serving variants with their desired weights and counts. An update of weights and counts is shown, an
    update to another configuration is not."""
    serving, starting = endpoint.serving, endpoint.starting
    resizes = serving is not None and starting is not None and not _replaces(endpoint)
    shown = []
    for variant in serving.variants if serving else ():
        desired = (starting.find(variant.name) if starting and resizes else None) or variant
        shown.append(
            {
                **_variant(variant, endpoint),
                **({"CurrentServerlessConfig": variant.serverless} if variant.serverless else {}),
                "CurrentWeight": variant.weight,
                "DesiredWeight": desired.weight,
                "CurrentInstanceCount": sum(each.ready for each in variant.instances),
                "DesiredInstanceCount": desired.count,
            }
        )
    return shown


def _capture(endpoint: Endpoint) -> dict[str, Any] | None:
    config = endpoint.serving.capture if endpoint.serving else None
    if config is None:
        return None
    return {
        "EnableCapture": True,
        "CaptureStatus": "Started",
        "CurrentSamplingPercentage": config["InitialSamplingPercentage"],
        "DestinationS3Uri": config["DestinationS3Uri"],
        "KmsKeyId": config.get("KmsKeyId", ""),
    }


def _replaces(endpoint: Endpoint) -> bool:
    """Return whether another configuration is being started, and not the same one with other counts."""
    if endpoint.serving is None or endpoint.starting is None:
        return False
    kept = {each.key for each in endpoint.serving.instances}
    return not any(each.key in kept for each in endpoint.starting.instances)


def _pending(endpoint: Endpoint) -> dict[str, Any] | None:
    starting: Deployment | None = endpoint.starting
    if starting is None or not (endpoint.status is EndpointStatus.CREATING or _replaces(endpoint)):
        return None
    variants = [
        {
            **_variant(variant, endpoint),
            "DesiredWeight": variant.weight,
            "CurrentInstanceCount": sum(each.ready for each in variant.instances),
            "DesiredInstanceCount": variant.count,
        }
        for variant in starting.variants
    ]
    return {
        "EndpointConfigName": starting.config_name,
        "ProductionVariants": variants,
        "StartTime": when(starting.begun_ms),
    }


def _variant(variant: Variant, endpoint: Endpoint) -> dict[str, Any]:
    image = variant.container.get("Image", "")
    waits = endpoint.waits or {}
    status = [
        {
            "Status": "Creating",
            "StatusMessage": f"Waiting for machines: {waits[each.job_id]}"[:_MESSAGE_LIMIT],
            "StartTime": when(each.created_ms),
        }
        for each in variant.instances
        if each.job_id in waits
    ][:1]
    return {
        "VariantName": variant.name,
        **({"VariantStatus": status} if status else {}),
        "DeployedImages": [
            {"SpecifiedImage": image, "ResolvedImage": image, "ResolutionTime": when(endpoint.created_ms)}
        ],
    }
