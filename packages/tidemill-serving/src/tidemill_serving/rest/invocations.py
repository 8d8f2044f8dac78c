"""``POST /invocations`` without an inference script: convert the body for the model, and format the answer.

As in SageMaker's container, regular expressions on the text decide the conversion. Clients rely on the consequences,
e.g. that ``[1, 2, 5]`` is one instance and not three.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.http.message import JSON_TYPE, Response
from tidemill_serving.rest.target import version_number

_HAS_DATA_KEY = re.compile(rb'"(?:instances|inputs|examples)"\s*:')
_IS_JSON_LINES = re.compile(rb"[}\]]\s*[{\[]")
_LINE_END = re.compile(r"\r\n|\n|\r")  # str.splitlines would also split at other characters
_NUMBER = re.compile(r"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))([eE][+-]?[0-9]+)?")
_JSON_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_JSON_NUMBERS = re.compile(rf"{_JSON_NUMBER}(?:,{_JSON_NUMBER})*")
_NPY_TYPE = b"application/x-npy"  # arrays, which `npy` reads
_BLANKS = re.compile(r"\s*")
_METHODS = ("predict", "classify", "regress")


@dataclass(frozen=True, slots=True)
class CustomAttributes:
    """The attributes of the header ``X-Amzn-SageMaker-Custom-Attributes`` that the server uses."""

    model_name: str | None = None
    model_version: int | None = None
    method: str = "predict"


def read_attributes(header: bytes) -> CustomAttributes:
    """Parse the header; unknown attributes are ignored.

    Raises:
        RequestError: INVALID_ARGUMENT, the version is not a number or the method does not exist.
    """
    given: dict[str, str] = {}
    for attribute in header.decode("latin-1").split(","):
        key, _, value = attribute.partition("=")
        given[key.strip()] = value.strip()
    version = given.get("tfs-model-version", "")
    method = given.get("tfs-method", "predict")
    if method not in _METHODS:
        raise invalid(f"tfs-method={method} is not one of {', '.join(_METHODS)}")
    name = given.get("tfs-model-name", "")
    return CustomAttributes(name or None, version_number(version) if version else None, method)


def to_predict_body(body: bytes, content_type: bytes) -> bytes:
    """Convert the body of an invocation to TF Serving's JSON.

    Raises:
        RequestError: 415, the content type requires an inference script.
    """
    read = _READERS.get(content_type)
    if read is None:
        raise unsupported_media_type(content_type)
    return read(body)


def unsupported_media_type(content_type: bytes) -> RequestError:
    """Return the error for a content type; the header ``Accept-Post`` lists the supported types.

    Args:
        content_type: The request's Content-Type, or empty.

    Returns:
        HTTP status 415.
    """
    return RequestError(
        Code.INVALID_ARGUMENT,
        f"Unsupported Media Type: {content_type.decode('latin-1') or 'Unknown'}",
        http_status=415,
        headers=(("Accept-Post", b", ".join(CONTENT_TYPES).decode()),),
    )


def finished(response: Response, accept: bytes) -> Response:
    """Format an answer according to the Accept header: JSON types get JSON without line breaks.

    Args:
        response: The response in TF Serving's format.
        accept: The request's Accept header, or empty.

    Returns:
        The same response unless Accept asks for JSON without line breaks.
    """
    if b"application/json" not in accept and b"application/jsonlines" not in accept:
        return response
    first = accept.partition(b",")[0].strip()
    return response._replace(body=response.body.replace(b"\n", b""), content_type=first or JSON_TYPE)


def _from_json(body: bytes) -> bytes:
    if not body.strip():
        return b""  # if it were wrapped, it would be an empty list; unwrapped, the parser reports the error
    if _HAS_DATA_KEY.search(body):
        return body
    if _IS_JSON_LINES.search(body):
        lines = [line for line in body.splitlines() if line.strip()]
        if len(lines) == 1:
            return b'{"instances":' + lines[0] + b"}"
        return b'{"instances":[' + b",".join(lines) + b"]}"
    if body.lstrip().startswith(b"[["):
        return b'{"instances":' + body + b"}"
    return b'{"instances":[' + body + b"]}"


def _from_csv(body: bytes) -> bytes:
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(f"The CSV body is not UTF-8: byte {error.start} cannot be decoded") from error
    rows = [_csv_row(line) for line in _LINE_END.split(text) if line.strip()]
    if not rows:
        return b""
    return ('{"instances":[' + ",".join(rows) + "]}").encode()


def _csv_row(line: str) -> str:
    line = line.strip()
    if _JSON_NUMBERS.fullmatch(line):
        return f"[{line}]" if "," in line else line
    fields = _csv_fields(line)
    first, first_is_quoted = fields[0]
    all_text = not first_is_quoted and not _NUMBER.fullmatch(first)
    values = [
        json.dumps(field) if all_text or quoted or not _NUMBER.fullmatch(field) else _json_number(field)
        for field, quoted in fields
    ]
    return f"[{','.join(values)}]" if len(values) > 1 else values[0]


def _csv_fields(line: str) -> list[tuple[str, bool]]:
    """Return the fields of a line, each with whether it was quoted."""
    fields: list[tuple[str, bool]] = []
    position = 0
    while True:
        position = _skip_blanks(line, position)
        if line.startswith('"', position):
            field, position = _quoted_field(line, position + 1)
            fields.append((field, True))
        else:
            begin, comma = position, line.find(",", position)
            position = len(line) if comma < 0 else comma
            fields.append((line[begin:position].strip(), False))
        if position == len(line):
            return fields
        position += 1


def _quoted_field(line: str, begin: int) -> tuple[str, int]:
    """Return the field after an opening quote, and the position of its comma or of the end of the line."""
    end = line.find('"', begin)
    while end >= 0 and line.startswith('"', end + 1):
        end = line.find('"', end + 2)
    behind = _skip_blanks(line, end + 1)
    if end < 0 or line[behind : behind + 1] not in ("", ","):
        raise invalid(f"The CSV line {line[:256]!r} has a quoted field that does not end before a comma")
    return line[begin:end].replace('""', '"'), behind


def _skip_blanks(line: str, position: int) -> int:
    match = _BLANKS.match(line, position)
    return position if match is None else match.end()


def _json_number(text: str) -> str:
    """Return a number in JSON's format: no plus sign, no leading zeros, digits on both sides of the point."""
    match = _NUMBER.fullmatch(text)
    assert match is not None
    sign, whole, fraction, bare_fraction, exponent = match.groups()
    digits = fraction or bare_fraction
    return (
        sign.replace("+", "") + ((whole or "").lstrip("0") or "0") + (f".{digits}" if digits else "") + (exponent or "")
    )


_READERS: Mapping[bytes, Callable[[bytes], bytes]] = {
    b"application/json": _from_json,
    b"application/jsonlines": _from_json,
    b"application/jsons": _from_json,
    b"text/csv": _from_csv,
}
"""Converters from a body to TF Serving's JSON, by content type."""
CONTENT_TYPES = (*_READERS, _NPY_TYPE)
"""Content types of an invocation without an inference script."""
