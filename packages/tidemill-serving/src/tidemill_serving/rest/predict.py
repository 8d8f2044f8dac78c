"""The predict method: a JSON body becomes arrays for one signature, arrays become the answer's JSON.

Row form (``instances``) lists examples, columnar form (``inputs``) gives whole tensors. The answer has the form of the
request: ``predictions`` or ``outputs``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tidemill_serving.engine import Array, LoadedModel, Signature, TensorSpec
from tidemill_serving.errors import invalid
from tidemill_serving.rest.json_text import parse, shown
from tidemill_serving.rest.numbers import list_text
from tidemill_serving.rest.numeric import MIN_BYTES, read_numeric
from tidemill_serving.rest.tensors import failed_row, is_bytes_object, tensor, tensor_of_rows

__all__ = ["DEFAULT_SIGNATURE", "PredictRequest", "answer", "find_signature", "read_request"]

DEFAULT_SIGNATURE = "serving_default"
_ROWS = "instances"
_COLUMNS = "inputs"
_BYTES_SUFFIX = "_bytes"
_Member = tuple[str, Array, bool]  # of an object in the answer: its name up to the colon, its value, bytes as b64


@dataclass(frozen=True, slots=True)
class PredictRequest:
    """What a body asks for: arrays in the order of the signature's inputs, and the form of the answer."""

    signature: Signature
    feeds: list[Array]
    row_form: bool


def read_request(body: bytes, model: LoadedModel) -> PredictRequest:
    """Read a predict body.

    Raises:
        RequestError: With TF Serving's text for what is wrong.
    """
    if len(body) >= MIN_BYTES:
        fast = _read_numeric_request(body, model.signatures)
        if fast is not None:
            return fast
    document = parse(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    signature = find_signature(document, model)
    row_form = _is_row_form(document)
    if row_form:
        return PredictRequest(signature, _feeds_of_rows(document, signature), row_form)
    return PredictRequest(signature, _feeds_of_columns(document[_COLUMNS], signature), row_form)


def find_signature(document: Mapping[str, Any], model: LoadedModel) -> Signature:
    """The signature that a body names, else the default one.

    Raises:
        RequestError: INVALID_ARGUMENT: the message lists what the model has, or why the signature cannot be served.
    """
    name = document.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise invalid(f"JSON Value: {shown(name)} 'signature_name' key must be a string value.")
    name = name or DEFAULT_SIGNATURE
    signature = model.signatures.get(name)
    if signature is not None:
        return signature
    if name in model.unusable:
        raise invalid(f"{model.unusable[name]} (signature {name})")
    known = ", ".join(f'"{key}"' for key in model.signatures) or "none that can be served"
    raise invalid(f'Serving signature name: "{name}" not found in signature def; the model has: {known}')


def answer(request: PredictRequest, outputs: Sequence[Array]) -> bytes:
    """The JSON answer, laid out as TF Serving does.

    Raises:
        RequestError: INVALID_ARGUMENT, the outputs cannot be put in rows.
    """
    named = list(zip(request.signature.outputs, outputs, strict=True))
    if request.row_form:
        _check_rows(named)
    if len(named) == 1:
        alias, array = named[0]
        text = list_text(array, as_bytes=alias.endswith(_BYTES_SUFFIX))
        if array.ndim:
            text = text[:-1] + "\n    ]"
    elif request.row_form:
        text = _row_objects(named)
    else:
        text = _object_text(_members(named, indent="    "), indent="    ")
    key = "predictions" if request.row_form else "outputs"
    return ('{\n    "' + key + '": ' + text + "\n}").encode()


def _read_numeric_request(body: bytes, signatures: Mapping[str, Signature]) -> PredictRequest | None:
    def only_input(name: str | None) -> TensorSpec | None:
        signature = signatures.get(name or DEFAULT_SIGNATURE)
        if signature is None or len(signature.inputs) != 1:
            return None
        return next(iter(signature.inputs.values()))

    read = read_numeric(body, only_input)
    if read is None:
        return None
    return PredictRequest(signatures[read.signature_name or DEFAULT_SIGNATURE], [read.array], read.data_key == _ROWS)


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
            raise invalid(f"Tensor name: {alias} has no shape information ")
        if array.shape[0] != rows:
            raise invalid(f"Tensor name: {alias} has inconsistent batch size: {array.shape[0]} expecting: {rows}")


def _row_objects(named: Sequence[tuple[str, Array]]) -> str:
    indent = "        "
    members = _members(named, indent=indent)
    rows = [
        _object_text([(prefix, array[index, ...], as_bytes) for prefix, array, as_bytes in members], indent=indent)
        for index in range(named[0][1].shape[0])
    ]
    return "[\n        " + ",\n        ".join(rows) + "\n    ]"


def _members(named: Sequence[tuple[str, Array]], *, indent: str) -> list[_Member]:
    return [
        (f"{indent}    {orjson.dumps(alias).decode()}: ", array, alias.endswith(_BYTES_SUFFIX))
        for alias, array in named
    ]


def _object_text(members: Sequence[_Member], *, indent: str) -> str:
    texts = [prefix + list_text(array, as_bytes=as_bytes) for prefix, array, as_bytes in members]
    return "{\n" + ",\n".join(texts) + "\n" + indent + "}"
