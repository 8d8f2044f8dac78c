"""InvokeEndpoint: a request for a model, passed on to the endpoint's server and back."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.endpoints import EndpointDriver
from tidemill.control.hosting import Hosting
from tidemill.control.invoker import Answer
from tidemill.control.plan import ENDPOINT_LOG_GROUP
from tidemill.core.hosting import Endpoint, EndpointStatus
from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError, ValidationException
from tidemill.wire.exchange import Context, Handler

__all__ = ["RuntimeService"]

_PASSED_ON = {
    "ContentType": "content-type",
    "Accept": "accept",
    "CustomAttributes": "x-amzn-sagemaker-custom-attributes",
}


class RuntimeService:
    """Amazon SageMaker Runtime.

    Args:
        hosting: Knows the endpoints.
        endpoints: Reach their servers.
        region: For links to logs.
        timeout_s: Longest time that a model may take.
    """

    def __init__(self, hosting: Hosting, endpoints: EndpointDriver, *, region: str, timeout_s: float) -> None:
        self._hosting = hosting
        self._endpoints = endpoints
        self._region = region
        self._timeout_s = timeout_s

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"InvokeEndpoint": self.invoke}

    async def invoke(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        endpoint = self._in_service(request["EndpointName"])
        variant = endpoint.variant["VariantName"]
        wanted = request.get("TargetVariant", variant)
        if wanted != variant:
            raise _invalid(f"Variant {wanted!r} is not found on endpoint {endpoint.name}; it has {variant!r}")
        headers = {header: request[member] for member, header in _PASSED_ON.items() if request.get(member)}
        answer = await self._endpoints.invoke(
            endpoint, request.get("Body", b""), headers=headers, timeout_s=self._timeout_s
        )
        if answer.status >= 400:
            raise self._model_error(endpoint, answer)
        reply = {
            "Body": answer.body,
            "ContentType": answer.headers.get("content-type", "application/octet-stream"),
            "InvokedProductionVariant": variant,
        }
        attributes = answer.headers.get("x-amzn-sagemaker-custom-attributes")
        return reply | ({"CustomAttributes": attributes} if attributes else {})

    def _in_service(self, name: str) -> Endpoint:
        try:
            endpoint = self._hosting.endpoint(name)
        except ValidationException:
            raise _invalid(f"Endpoint {name} of account {ACCOUNT_ID} not found.") from None
        if endpoint.status is not EndpointStatus.IN_SERVICE:
            raise _invalid(
                f"Endpoint {name} of account {ACCOUNT_ID} is {endpoint.status}, not InService; wait for it first"
            )
        return endpoint

    def _model_error(self, endpoint: Endpoint, answer: Answer) -> AwsError:
        text = answer.body.decode("utf-8", "replace")
        group = ENDPOINT_LOG_GROUP + endpoint.name
        return AwsError(
            f'Received client error ({answer.status}) from primary with message "{text}". The model\'s log is the'
            f" group {group}",
            code="ModelError",
            status=424,
            members={
                "OriginalStatusCode": answer.status,
                "OriginalMessage": text,
                "LogStreamArn": f"arn:aws:logs:{self._region}:{ACCOUNT_ID}:log-group:{group}",
            },
        )


def _invalid(message: str) -> AwsError:
    return AwsError(message, code="ValidationError", status=400)
