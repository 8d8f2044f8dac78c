"""The default ``input_fn`` of Python-based endpoints."""

import importlib
import json
from typing import Any

from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.messages.definitions import messages

_JSON, _CSV, _BYTES = "application/json", "text/csv", "application/octet-stream"


def default_input(data: Any, content_type: str, *, request_kind: str) -> Any:
    """Parse a request body.

    Args:
        data: Text if the content type is JSON or CSV, otherwise bytes.
        content_type: ``application/json``: a TensorProto in protobuf's JSON, or any other JSON. ``text/csv``: the
            numbers of the first line. ``application/octet-stream``: a serialized request message.
        request_kind: Name of the message that bytes are, e.g. ``PredictRequest``.

    Raises:
        RequestError: 415 if the content type is not supported, 400 if the body is not valid for its type.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON:
        return _from_json(data)
    if kind == _CSV:
        return _from_csv(data)
    if kind == _BYTES:
        return _from_bytes(data, getattr(messages(), request_kind))
    raise RequestError(
        Code.INVALID_ARGUMENT,
        f"Unsupported content type: {content_type}; send {_JSON}, {_CSV} or {_BYTES}, or define input_fn",
        http_status=415,
    )


def _from_json(text: str) -> Any:
    json_format = importlib.import_module("google.protobuf.json_format")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is no JSON: {error}") from error
    if isinstance(document, dict) and "dtype" in document:
        try:
            return json_format.ParseDict(document, messages().TensorProto())
        except json_format.ParseError:
            return document  # not a TensorProto, but an object of the user's with the same key
    return document


def _from_csv(text: str) -> list[float]:
    line = text.lstrip("\ufeff").splitlines()[0] if text.strip() else ""
    try:
        return [_number(field) for field in line.split(",")]
    except ValueError as error:
        raise invalid(f"the first line of the CSV body is no list of numbers: {error}") from error


def _number(field: str) -> float:
    if not field.isascii() or "_" in field:  # Python reads digits of other alphabets, and 1_000
        raise ValueError(f"could not convert string to float: {field!r}")
    return float(field)


def _from_bytes(data: bytes, kind: Any) -> Any:
    try:
        return kind.FromString(data)
    except Exception as error:  # protobuf's DecodeError lives in a module that depends on its implementation
        raise invalid(f"the body is no {kind.DESCRIPTOR.name}: {error}") from error
