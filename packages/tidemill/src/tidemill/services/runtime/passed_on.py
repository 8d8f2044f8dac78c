"""Members of a SageMaker Runtime request that are forwarded to the model's server as headers."""

from collections.abc import Mapping
from typing import Any

_PASSED_ON = {
    "ContentType": "content-type",
    "Accept": "accept",
    "CustomAttributes": "x-amzn-sagemaker-custom-attributes",
}


def headers_of(request: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for the model's server.

    Args:
        request: Members of InvokeEndpoint.

    Returns:
        Only those that are set.
    """
    return {header: request[member] for member, header in _PASSED_ON.items() if request.get(member)}
