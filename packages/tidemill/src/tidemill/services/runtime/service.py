"""InvokeEndpoint: forwards a request to a server of the endpoint, and its answer to the client."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tidemill.control.async_queue import AsyncQueue
from tidemill.control.endpoints import EndpointDriver
from tidemill.control.endpoints.traffic import ModelCall
from tidemill.control.hosting import Hosting
from tidemill.control.invoker import Answer
from tidemill.control.plan import ENDPOINT_LOG_GROUP, DataMissing
from tidemill.core.hosting import Endpoint
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.spans import Spans
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.runtime.asynchronous import AsyncHandlers
from tidemill.services.runtime.invocation_span import InvocationSpan
from tidemill.services.runtime.passed_on import headers_of
from tidemill.wire.exchange import Context, Handler

_PART_BYTES = 64 * 1024


class RuntimeService(Operations):
    """Amazon SageMaker Runtime.

    Args:
        hosting: Finds the endpoints.
        endpoints: Sends requests to their servers.
        queue: Queues the requests of asynchronous endpoints.
        region: The region in links to logs.
        timeout_s: Maximum seconds for the model's answer.
        spans: Gets a span of each request to a model. Default: none are made.
    """

    def __init__(
        self,
        hosting: Hosting,
        endpoints: EndpointDriver,
        queue: AsyncQueue,
        *,
        region: str,
        timeout_s: float,
        spans: Spans | None = None,
    ) -> None:
        self._hosting = hosting
        self._endpoints = endpoints
        self._region = region
        self._timeout_s = timeout_s
        self._spans = spans
        self._asynchronous = AsyncHandlers(hosting, queue)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {**super().handlers, **self._asynchronous.handlers}

    async def invoke_endpoint(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name, target = request["EndpointName"], request.get("TargetModel", "")
        span = InvocationSpan(self._spans, name)
        call = ModelCall(
            body=request.get("Body", b""),
            headers={**headers_of(request), **span.headers},
            timeout_s=self._timeout_s,
            variant=request.get("TargetVariant", ""),
            target=target,
            inference_id=request.get("InferenceId", ""),
        )
        try:
            answer, variant = await self._endpoints.invoke(lambda: self._in_service(name), call)
            span.end(variant=variant.name, status=answer.status)
        except AwsError as error:
            span.end(failure=error.message)
            raise
        except DataMissing as error:
            raise _invalid(f"Failed to download model data of TargetModel {target!r}: {error}") from error
        if answer.status >= 400:
            raise self._model_error(name, answer)
        reply = {
            "Body": answer.body,
            "ContentType": answer.headers.get("content-type", "application/octet-stream"),
            "InvokedProductionVariant": variant.name,
        }
        attributes = answer.headers.get("x-amzn-sagemaker-custom-attributes")
        return reply | ({"CustomAttributes": attributes} if attributes else {})

    async def invoke_endpoint_with_response_stream(
        self, request: dict[str, Any], context: Context
    ) -> Mapping[str, Any]:
        """Answer with a stream. Servers answer as a whole, so the first part comes when the answer is complete."""
        reply = await self.invoke_endpoint(request, context)
        return {**reply, "Body": _parts(reply["Body"])}

    def _in_service(self, name: str) -> Endpoint:
        endpoint = self._hosting.in_service(name)
        if endpoint.serving is not None and endpoint.serving.asynchronous is not None:
            raise _invalid(f"Endpoint {name} is asynchronous; call InvokeEndpointAsync")
        return endpoint

    def _model_error(self, name: str, answer: Answer) -> AwsError:
        text = answer.body.decode("utf-8", "replace")
        group = ENDPOINT_LOG_GROUP + name
        return AwsError(
            f"{answer.failure}. The model's log is the group {group}",
            code="ModelError",
            members={
                "OriginalStatusCode": answer.status,
                "OriginalMessage": text,
                "LogStreamArn": f"arn:aws:logs:{self._region}:{ACCOUNT_ID}:log-group:{group}",
            },
        )


async def _parts(body: bytes) -> AsyncIterator[Mapping[str, Any]]:
    for start in range(0, len(body), _PART_BYTES):
        yield {"PayloadPart": {"Bytes": body[start : start + _PART_BYTES]}}


def _invalid(message: str) -> AwsError:
    return AwsError(message, code="ValidationError")
