"""The predict method: convert a JSON body to arrays for one signature, and its outputs to JSON.

The row form (``instances``) lists examples, the columnar form (``inputs``) has whole tensors. The answer has the same
form as the request: ``predictions`` or ``outputs``.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from tidemill_serving.engine import Array, LoadedModel, Signature
from tidemill_serving.errors import RequestError, invalid
from tidemill_serving.rest.json_text import parse, shown
from tidemill_serving.rest.native_library import load_native_json
from tidemill_serving.rest.numbers import list_text
from tidemill_serving.rest.numeric import NumericReader, PredictRequest
from tidemill_serving.rest.tensors import failed_row, is_bytes_object, tensor, tensor_of_rows

__all__ = [
    "BYTES_SUFFIX",
    "DEFAULT_SIGNATURE",
    "PredictRequest",
    "answer",
    "answer_frame",
    "find_signature",
    "read_document",
    "read_request",
    "signature_name",
]

DEFAULT_SIGNATURE = "serving_default"
BYTES_SUFFIX = "_bytes"
"""End of the names of outputs whose strings are answered in base64."""
_ROWS = "instances"
_COLUMNS = "inputs"
_ROWS_BEGIN = b'{\n    "predictions": '
_COLUMNS_BEGIN = b'{\n    "outputs": '
_Member = tuple[bytes, Array, bool]  # member of an answer: name with quotes and colon, value, whether bytes are b64

# Readers reuse their buffers for small bodies, which only the event loop's thread reads.
_readers: MutableMapping[LoadedModel, NumericReader] = WeakKeyDictionary()


def read_request(body: bytes, model: LoadedModel) -> PredictRequest:
    """Read a predict body.

    Raises:
        RequestError: With TF Serving's error text.
    """
    reader = _numeric_reader(model)
    numeric = reader.read(body) if reader is not None else None
    return read_document(body, model) if numeric is None else numeric


def read_document(body: bytes, model: LoadedModel) -> PredictRequest:
    """Read a predict body without the native library.

    Raises:
        RequestError: With TF Serving's error text.
    """
    document = parse(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    signature = find_signature(document, model)
    row_form = _is_row_form(document)
    if row_form:
        return PredictRequest(signature, _feeds_of_rows(document, signature), row_form)
    return PredictRequest(signature, _feeds_of_columns(document[_COLUMNS], signature), row_form)


def find_signature(document: Mapping[str, Any], model: LoadedModel) -> Signature:
    """Return the signature that a body names, or the default one if it names none.

    Raises:
        RequestError: INVALID_ARGUMENT, there is no such signature, or it cannot be served.
    """
    name = signature_name(document)
    signature = model.signatures.get(name)
    if signature is not None and signature.json_fault is None:
        return signature
    if signature is not None:
        raise invalid(f"{signature.json_fault}; or call it by gRPC (signature {name})")
    if name in model.unusable:
        raise invalid(f"{model.unusable[name]} (signature {name})")
    served = [key for key, each in model.signatures.items() if each.json_fault is None]
    known = ", ".join(f'"{key}"' for key in served) or "none that can be served"
    raise invalid(f'Serving signature name: "{name}" not found in signature def; the model has: {known}')


def signature_name(document: Mapping[str, Any]) -> str:
    """Return the name of the signature that a body calls.

    Raises:
        RequestError: INVALID_ARGUMENT, the name is no string.
    """
    name = document.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise invalid(f"JSON Value: {shown(name)} 'signature_name' key must be a string value.")
    return name or DEFAULT_SIGNATURE


def answer(request: PredictRequest, outputs: Sequence[Array]) -> bytes:
    """Return the JSON answer in TF Serving's layout.

    Raises:
        RequestError: INVALID_ARGUMENT, the outputs cannot be split into rows.
    """
    signature, _, row_form = request
    if len(outputs) == 1:
        (alias,) = signature.outputs
        (array,) = outputs
        text = list_text(array, as_bytes=alias.endswith(BYTES_SUFFIX))
        if array.ndim:
            text = text[:-1] + b"\n    ]"
        elif row_form:
            raise _without_rows(alias)
    else:
        named = list(zip(signature.outputs, outputs, strict=True))
        text = _row_objects(named) if row_form else _object_text(_members(named, indent="    "), indent=b"    ")
    return (_ROWS_BEGIN if row_form else _COLUMNS_BEGIN) + text + b"\n}"


def answer_frame(*, row_form: bool) -> tuple[bytes, bytes]:
    """Return the parts of an answer with one output before the list of its rows, and after the last row.

    Args:
        row_form: Whether the request listed rows (``instances``) instead of columns (``inputs``).

    Returns:
        Text before and after the rows.
    """
    return (_ROWS_BEGIN if row_form else _COLUMNS_BEGIN), b"\n    ]\n}"


def _numeric_reader(model: LoadedModel) -> NumericReader | None:
    """Return the model's fast parser, created at its first request, or None without the native library."""
    reader = _readers.get(model)
    if reader is None:
        library = load_native_json()
        if isinstance(library, str):
            return None
        reader = _readers[model] = NumericReader(model.signatures, default=DEFAULT_SIGNATURE, library=library)
    return reader


def _is_row_form(document: Mapping[str, Any]) -> bool:
    if _ROWS in document and _COLUMNS in document:
        raise invalid(
            f"JSON Value: {shown(document)} Not formatted correctly expecting only one of '{_COLUMNS}' or '{_ROWS}'"
            " keys to exist "
        )
    if _ROWS not in document and _COLUMNS not in document:
        raise invalid(f"Missing '{_COLUMNS}' or '{_ROWS}' key")
    return _ROWS in document


def _feeds_of_rows(document: Mapping[str, Any], signature: Signature) -> list[Array]:
    rows = document[_ROWS]
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {shown(document)} Expecting '{_ROWS}' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {shown(document)} No values in '{_ROWS}' array")
    if _is_named(rows[0]):
        return _feeds_of_named_rows(rows, signature)
    if len(signature.inputs) != 1:
        raise invalid(
            f"JSON Value: {shown(document)} {_ROWS} is a plain list, but expecting list of objects as multiple input"
            " tensors required as per tensorinfo_map"
        )
    return [tensor_of_rows(rows, next(iter(signature.inputs.values())))]


def _feeds_of_named_rows(rows: list[Any], signature: Signature) -> list[Array]:
    names = signature.inputs.keys()
    for index, row in enumerate(rows):
        if isinstance(row, dict) and row.keys() == names:
            continue
        if not _is_named(row):
            raise invalid(f"Expecting object but got list/value: element {index} of '{_ROWS}' is {shown(row)}")
        unknown = next((key for key in row if key not in names), None)
        if unknown is not None:
            error = invalid(f"JSON object: {shown(row)} has no named input of the signature: {','.join(names)}")
            raise failed_row(index, error, key=unknown)
        raise invalid(
            f"Failed to process element: {index} of '{_ROWS}' list. JSON object: {shown(row)} keys must be equal to:"
            f" {','.join(names)}"
        )
    return [tensor_of_rows([row[name] for row in rows], spec, key=name) for name, spec in signature.inputs.items()]


def _feeds_of_columns(value: Any, signature: Signature) -> list[Array]:
    if len(signature.inputs) == 1 and not _is_named(value):
        return [tensor(value, next(iter(signature.inputs.values())))]
    if not _is_named(value):
        raise invalid(f"JSON Value: {shown(value)} is not an object: name each of {','.join(signature.inputs)}")
    for name in signature.inputs:
        if name not in value:
            raise invalid(f"Missing named input: {name} in '{_COLUMNS}' object.")
    unknown = sorted(value.keys() - signature.inputs.keys())
    if unknown:
        raise invalid(
            f"input size does not match signature: {len(value)}!={len(signature.inputs)}; unknown inputs:"
            f" {','.join(unknown)}, expected: {','.join(signature.inputs)}"
        )
    return [tensor(value[name], spec) for name, spec in signature.inputs.items()]


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and not is_bytes_object(value)


def _check_rows(named: Sequence[tuple[str, Array]]) -> None:
    rows = named[0][1].shape[0] if named[0][1].ndim else 0
    for alias, array in named:
        if not array.ndim:
            raise _without_rows(alias)
        if array.shape[0] != rows:
            raise invalid(f"Tensor name: {alias} has inconsistent batch size: {array.shape[0]} expecting: {rows}")


def _without_rows(alias: str) -> RequestError:
    return invalid(f"Tensor name: {alias} has no shape information ")


def _row_objects(named: Sequence[tuple[str, Array]]) -> bytes:
    _check_rows(named)
    indent = "        "
    members = _members(named, indent=indent)
    rows = [
        _object_text(
            [(prefix, array[index, ...], as_bytes) for prefix, array, as_bytes in members], indent=indent.encode()
        )
        for index in range(named[0][1].shape[0])
    ]
    return b"[\n        " + b",\n        ".join(rows) + b"\n    ]"


def _members(named: Sequence[tuple[str, Array]], *, indent: str) -> list[_Member]:
    return [
        (indent.encode() + b"    " + orjson.dumps(alias) + b": ", array, alias.endswith(BYTES_SUFFIX))
        for alias, array in named
    ]


def _object_text(members: Sequence[_Member], *, indent: bytes) -> bytes:
    texts = [prefix + list_text(array, as_bytes=as_bytes) for prefix, array, as_bytes in members]
    return b"{\n" + b",\n".join(texts) + b"\n" + indent + b"}"
