"""One request of an asynchronous endpoint, in the form in which it is stored until its result is stored."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.core.documents import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncInvocation(Document):
    """A queued InvokeEndpointAsync.

    Attributes:
        invocation_id: Hexadecimal id; names the result unless the client does.
        inference_id: The client's InferenceId, or a generated one.
        endpoint_id: Id of the endpoint, which distinguishes it from a later one of the same name.
        headers: Headers of the request to the model.
        input: S3 URI of the body.
        output: S3 URI of the result.
        failure: S3 URI of the error, if the request fails; empty without S3FailurePath.
        expires_ms: Time at which the request fails if it has not started, in milliseconds since the epoch.
        timeout_s: Time limit of the model's answer, in seconds.
    """

    invocation_id: str
    inference_id: str
    endpoint: str
    endpoint_id: str
    headers: Mapping[str, str]
    input: str
    output: str
    failure: str
    created_ms: int
    expires_ms: int
    timeout_s: int
