"""The default ``output_fn`` of Python-based endpoints."""

import importlib
import json
from typing import Any

from tidemill_serving.errors import Code, RequestError

_JSON = ("application/json", "*/*")
_BYTES = "application/octet-stream"


def default_output(result: Any, accept: str) -> str | bytes:
    """Serialize a result.

    Args:
        result: The model's response message, or what ``predict_fn`` returned.
        accept: ``application/json`` or ``*/*``: protobuf's JSON for a message, plain JSON for anything else.
            ``application/octet-stream``: the serialized message.

    Raises:
        RequestError: 406 if the type is not supported.
        TypeError: The result cannot be serialized as that type.
    """
    accepted = [each.partition(";")[0].strip().lower() for each in accept.split(",")]
    is_message = hasattr(result, "SerializeToString")
    if any(each in _JSON for each in accepted):
        if is_message:
            return str(importlib.import_module("google.protobuf.json_format").MessageToJson(result))
        return json.dumps(result, default=_plain)
    if _BYTES in accepted:
        if is_message:
            return bytes(result.SerializeToString())
        raise TypeError(f"a {type(result).__name__} is no message: define output_fn, or accept application/json")
    raise RequestError(
        Code.INVALID_ARGUMENT,
        f"Unsupported accept type: {accept}; accept {_JSON[0]} or {_BYTES}, or define output_fn",
        http_status=406,
    )


def _plain(value: Any) -> Any:
    if hasattr(value, "numpy"):  # a tensor
        value = value.numpy()
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no JSON form: define output_fn")
