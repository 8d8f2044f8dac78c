"""JSON Schemas of the bodies and answers of TensorFlow Serving's methods, made from signatures."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tidemill_serving.engine import Signature, TensorSpec
from tidemill_serving.rest.predict import BYTES_SUFFIX, DEFAULT_SIGNATURE

_TEXT = {"type": "string"}
_BYTES = {
    "type": "object",
    "properties": {"b64": {"type": "string", "contentEncoding": "base64"}},
    "required": ["b64"],
    "additionalProperties": False,
}
_FEATURES = {"type": "object", "description": "The features of an example: values or lists of values, by their names"}


def request_schemas(signature: Signature) -> list[dict[str, Any]]:
    """Return the schemas of the bodies that ``predict`` accepts for a signature: with rows, and with columns."""
    made = []
    if _has_rows(signature):
        item = _row(signature.inputs, is_answer=False)
        made.append(_asked(signature, "instances", {"type": "array", "minItems": 1, "items": item}))
    made.append(_asked(signature, "inputs", _columns(signature.inputs, is_answer=False)))
    return made


def answer_schemas(signature: Signature) -> list[dict[str, Any]]:
    """Return the schemas of the answers, in the order of `request_schemas`."""
    made = []
    if _has_rows(signature):
        predictions = {"type": "array", "items": _row(signature.outputs, is_answer=True)}
        made.append(_object({"predictions": predictions}))
    made.append(_object({"outputs": _columns(signature.outputs, is_answer=True)}))
    return made


def examples_schema(keys: Sequence[str]) -> dict[str, Any]:
    """Return the schema of the body of ``classify`` and ``regress``.

    Args:
        keys: The signatures that can be called.
    """
    schema = _object({"examples": {"type": "array", "minItems": 1, "items": _FEATURES}})
    schema["properties"] |= {"context": _FEATURES, "signature_name": {"enum": list(keys)}}
    if DEFAULT_SIGNATURE not in keys:
        schema["required"].append("signature_name")
    return schema


def results_schema(verb: str) -> dict[str, Any]:
    """Return the schema of the answer of a method.

    Args:
        verb: ``classify``: pairs of label and score for each example; ``regress``: a number for each.
    """
    pair = {"type": "array", "prefixItems": [_TEXT, {"type": "number"}], "minItems": 2, "maxItems": 2}
    result = {"type": "number"} if verb == "regress" else {"type": "array", "items": pair}
    return _object({"results": {"type": "array", "items": result}})


def _has_rows(signature: Signature) -> bool:
    """Return whether requests and answers can be split into rows: no tensor has rank 0."""
    specs = [*signature.inputs.values(), *signature.outputs.values()]
    return bool(signature.inputs) and all(spec.shape is None or len(spec.shape) > 0 for spec in specs)


def _asked(signature: Signature, member: str, values: Mapping[str, Any]) -> dict[str, Any]:
    schema = _object({member: values}) | {"title": f"{signature.key}, {member}"}
    schema["properties"]["signature_name"] = {"const": signature.key}
    if signature.key != DEFAULT_SIGNATURE:
        schema["required"].append("signature_name")
    return schema


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _row(specs: Mapping[str, TensorSpec], *, is_answer: bool) -> dict[str, Any]:
    """Return the schema of a row: of the value of the only tensor, or of an object by the tensors' names."""
    return _named({name: _value(name, spec, skipped=1, is_answer=is_answer) for name, spec in specs.items()}, is_answer)


def _columns(specs: Mapping[str, TensorSpec], *, is_answer: bool) -> dict[str, Any]:
    return _named({name: _value(name, spec, skipped=0, is_answer=is_answer) for name, spec in specs.items()}, is_answer)


def _named(values: dict[str, Any], is_answer: bool) -> dict[str, Any]:
    if len(values) != 1:
        return _object(values)
    (alone,) = values.values()
    return alone if is_answer else {"anyOf": [alone, _object(values)]}


def _value(name: str, spec: TensorSpec, *, skipped: int, is_answer: bool) -> dict[str, Any]:
    """Return the schema of a tensor, without its first ``skipped`` dimensions."""
    if spec.shape is None:
        return {"description": f"{spec.type_name}, any shape"}
    schema: dict[str, Any] = _leaf(name, spec, is_answer=is_answer)
    for size in reversed(spec.shape[skipped:]):
        sizes: dict[str, Any] = {} if size == -1 else {"minItems": size, "maxItems": size}
        schema = _array(schema) | sizes
    return schema | {"description": f"{spec.type_name}, shape {list(spec.shape)}"}


def _array(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _leaf(name: str, spec: TensorSpec, *, is_answer: bool) -> dict[str, Any]:
    if spec.type_name == "string":
        if is_answer:
            return _BYTES if name.endswith(BYTES_SUFFIX) else _TEXT
        return {"anyOf": [_TEXT, _BYTES]}
    if spec.dtype.kind == "b":
        return {"type": "boolean"}
    if spec.dtype.kind in "iu":
        limits = np.iinfo(spec.dtype)
        return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}
    return {"type": "number"}
