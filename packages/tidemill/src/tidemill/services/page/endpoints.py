"""DescribeEndpointInstances and DescribeServedModels: the servers of an endpoint, and their models' signatures."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.endpoints import EndpointDriver
from tidemill.control.endpoints.signatures import ModelSignature, ServedModel, SignatureTensor
from tidemill.control.hosting import Hosting
from tidemill.control.invoker import Unreachable
from tidemill.control.plan import DataMissing
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.errors import AwsError, ValidationException
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context

__all__ = ["EndpointOperations"]


class EndpointOperations(Operations):
    """Describes what serves an endpoint.

    Args:
        endpoints: Asks their servers.
    """

    def __init__(self, hosting: Hosting, endpoints: EndpointDriver) -> None:
        self._hosting = hosting
        self._endpoints = endpoints

    async def describe_endpoint_instances(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        endpoint = self._hosting.endpoint(request["EndpointName"])
        return {"Variants": [self._variant(each) for each in _variants(endpoint)]}

    async def describe_served_models(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """DescribeServedModels. A server that does not run is not started for it, and no model is loaded."""
        endpoint = self._hosting.endpoint(request["EndpointName"])
        variant = _chosen(endpoint, request.get("VariantName", ""))
        if variant is None:
            return {"Models": []}
        try:
            found = await self._endpoints.served.of(variant, target=request.get("TargetModel", ""))
        except (Unreachable, TimeoutError, ValueError, DataMissing) as error:
            raise AwsError(
                f"the server of variant {variant.name!r} does not describe its models: {error or 'it is busy'}",
                code="ModelError",
            ) from error
        return {"VariantName": variant.name, "Models": [_model(each) for each in found]}

    def _variant(self, variant: Variant) -> dict[str, Any]:
        return {
            "VariantName": variant.name,
            "ModelName": variant.request["ModelName"],
            "MultiModel": variant.is_multi_model,
            "Serverless": variant.serverless is not None,
            "Instances": [self._instance(each) for each in variant.instances],
        }

    def _instance(self, instance: Instance) -> dict[str, Any]:
        return {
            "LogStreamName": instance.log_stream,
            "CreationTime": when(instance.created_ms),
            "Ready": instance.ready,
            "RequestsInFlight": self._endpoints.in_flight(instance),
        }


def _variants(endpoint: Endpoint) -> tuple[Variant, ...]:
    serving = endpoint.serving.variants if endpoint.serving is not None else ()
    starting = endpoint.starting.variants if endpoint.starting is not None else ()
    return (*serving, *(each for each in starting if each.name not in {one.name for one in serving}))


def _chosen(endpoint: Endpoint, name: str) -> Variant | None:
    """Return the named variant, or the first that serves; None if none serves yet."""
    serving = endpoint.serving.variants if endpoint.serving is not None else ()
    if not name or not serving:
        return serving[0] if serving else None
    found = next((each for each in serving if each.name == name), None)
    if found is None:
        known = ", ".join(repr(each.name) for each in serving)
        raise ValidationException(f"Value {name!r} at 'variantName' is not allowed: the endpoint has {known}")
    return found


def _model(model: ServedModel) -> dict[str, Any]:
    return {
        "Name": model.name,
        "Versions": [{"Version": number, "State": state} for number, state in model.versions.items()],
        "Signatures": [_signature(each) for each in model.signatures],
    }


def _signature(signature: ModelSignature) -> dict[str, Any]:
    return {
        "Name": signature.name,
        "Method": signature.method,
        "Inputs": [_tensor(each) for each in signature.inputs],
        "Outputs": [_tensor(each) for each in signature.outputs],
    }


def _tensor(tensor: SignatureTensor) -> dict[str, Any]:
    return {
        "Name": tensor.name,
        "Type": tensor.type,
        **({"Shape": list(tensor.shape)} if tensor.shape is not None else {}),
    }
