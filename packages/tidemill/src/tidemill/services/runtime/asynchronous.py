"""InvokeEndpointAsync: a request whose answer is stored later, as an object in S3."""

import secrets
import uuid
from collections.abc import Mapping
from typing import Any

from tidemill.control.async_queue import AsyncQueue
from tidemill.control.hosting import Hosting
from tidemill.core.async_invocation import AsyncInvocation
from tidemill.core.names import S3Uri
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.runtime.passed_on import headers_of
from tidemill.wire.exchange import Context

_TTL_S = 6 * 3600
_TIMEOUT_S = 15 * 60


class AsyncHandlers(Operations):
    """Queues the requests of asynchronous endpoints.

    Args:
        hosting: Finds the endpoints.
        queue: Stores requests until they are answered.
    """

    def __init__(self, hosting: Hosting, queue: AsyncQueue) -> None:
        self._hosting = hosting
        self._queue = queue

    async def invoke_endpoint_async(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        endpoint = self._hosting.in_service(request["EndpointName"])
        config = endpoint.serving.asynchronous if endpoint.serving else None
        if config is None:
            raise _invalid(
                f"Endpoint {endpoint.name} is not asynchronous; call InvokeEndpoint, or give its configuration an"
                " AsyncInferenceConfig"
            )
        now_ms, name = self._queue.now_ms(), secrets.token_hex(16)
        output, failure = config["OutputConfig"]["S3OutputPath"], config["OutputConfig"].get("S3FailurePath", "")
        invocation = AsyncInvocation(
            invocation_id=name,
            inference_id=request.get("InferenceId") or str(uuid.uuid4()),
            endpoint=endpoint.name,
            endpoint_id=endpoint.endpoint_id,
            headers=headers_of(request),
            input=_input(request),
            output=str(S3Uri.parse(output) / f"{name}.out"),
            failure=str(S3Uri.parse(failure) / f"{name}-error.out") if failure else "",
            created_ms=now_ms,
            expires_ms=now_ms + request.get("RequestTTLSeconds", _TTL_S) * 1000,
            timeout_s=request.get("InvocationTimeoutSeconds", _TIMEOUT_S),
        )
        await self._queue.submit(invocation)
        return {
            "InferenceId": invocation.inference_id,
            "OutputLocation": invocation.output,
            **({"FailureLocation": invocation.failure} if invocation.failure else {}),
        }


def _input(request: Mapping[str, Any]) -> str:
    location = request.get("InputLocation", "")
    try:
        return str(S3Uri.parse(location))
    except ValueError as error:
        raise _invalid(f"Value {location!r} at 'inputLocation' is not allowed: {error}") from error


def _invalid(message: str) -> AwsError:
    return AwsError(message, code="ValidationError")
