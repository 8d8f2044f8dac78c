"""The classify and regress methods: JSON features become serialized Examples for signatures that parse them.

A signature of these methods has one string input and, for classify, the outputs ``classes`` and ``scores`` (either may
be missing), for regress the output ``outputs``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidemill_serving.engine import Array, Signature
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import invalid
from tidemill_serving.rest.json_text import json_type, parse, shown
from tidemill_serving.rest.numbers import list_text
from tidemill_serving.rest.predict import find_signature
from tidemill_serving.rest.tensors import is_bytes_object, string_value

__all__ = ["ExamplesRequest", "answer_examples", "read_examples"]

_METHOD_PREFIX = "tensorflow/serving/"
_NAMES = {"classify": "classification", "regress": "regression"}


@dataclass(frozen=True, slots=True)
class ExamplesRequest:
    """Serialized examples for a signature of the method ``classify`` or ``regress``."""

    signature: Signature
    feeds: list[Array]
    verb: str


def read_examples(body: bytes, signatures: Mapping[str, Signature], *, verb: str) -> ExamplesRequest:
    """Read a classify or regress body.

    Raises:
        RequestError: INVALID_ARGUMENT, the body or the signature is not one for examples.
    """
    document = parse(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    signature = find_signature(document, signatures)
    if signature.method_name != _METHOD_PREFIX + verb or len(signature.inputs) != 1:
        raise invalid(
            f"Expected {_NAMES[verb]} signature method_name to be {_METHOD_PREFIX}{verb}. Was: {signature.method_name};"
            " use the predict method for this signature"
        )
    examples = document.get("examples")
    if not isinstance(examples, list):
        raise invalid(f"JSON Value: {shown(document)} Expecting 'examples' to be an list/array")
    if not examples:
        raise invalid(f"JSON Value: {shown(document)} No values in 'examples' array")
    context = document.get("context", {})
    if not isinstance(context, dict):
        raise invalid(f"JSON Value: {shown(context)} 'context' is not an object")
    serialized = np.empty(len(examples), dtype=object)
    for index, features in enumerate(examples):
        if not isinstance(features, dict):
            raise invalid(f"Example: {index} JSON Value: {shown(features)} Is not object")
        serialized[index] = _serialize({**context, **features}, index=index)
    return ExamplesRequest(signature, [serialized], verb)


def answer_examples(request: ExamplesRequest, outputs: Sequence[Array]) -> bytes:
    """The JSON answer: ``results`` with a list of [label, score] pairs, or with a number, for each example.

    Raises:
        RequestError: INVALID_ARGUMENT, the outputs are not those of the method.
    """
    named = dict(zip(request.signature.outputs, outputs, strict=True))
    rows = len(request.feeds[0])
    text = _regressions(named, rows) if request.verb == "regress" else _classifications(named, rows)
    return ('{\n    "results": ' + text[:-1] + "\n    ]\n}").encode()


def _serialize(features: Mapping[str, Any], *, index: int) -> bytes:
    example = open_wheel().example.Example()
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        kind = _kind(values, name=name, index=index)
        target = getattr(example.features.feature[name], kind).value
        target.extend([string_value(item) for item in values] if kind == "bytes_list" else values)
    return bytes(example.SerializeToString())


def _kind(values: list[Any], *, name: str, index: int) -> str:
    kinds = {_kind_of(value, name=name, index=index) for value in values}
    if len(kinds) > 1:
        raise invalid(
            f"Example: {index} Unable to set feature: {name}: mixed types in JSON Value: {shown(values)}; all values"
            " of a feature must be decimals, whole numbers or strings"
        )
    return kinds.pop() if kinds else "float_list"


def _kind_of(value: Any, *, name: str, index: int) -> str:
    if isinstance(value, float):
        return "float_list"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return "int64_list"
    if isinstance(value, str) or is_bytes_object(value):
        return "bytes_list"
    raise invalid(
        f"Example: {index} Unable to set feature: {name}: JSON Value: {shown(value)} of type {json_type(value)}"
    )


def _classifications(named: Mapping[str, Array], rows: int) -> str:
    classes, scores = named.get("classes"), named.get("scores")
    one = classes if classes is not None else scores
    if one is None or any(array is not None and array.shape != one.shape for array in (classes, scores)):
        raise invalid("Expected classification signature outputs to be classes and scores of one shape")
    if one.ndim != 2 or one.shape[0] != rows:
        raise invalid(f"Expected classification outputs of shape [{rows}, classes] but got: {list(one.shape)}")
    labels = classes if classes is not None else np.full(one.shape, b"", dtype=object)
    values = scores if scores is not None else np.zeros(one.shape, dtype=np.float32)
    return "[" + ", ".join(_pairs(labels[row], values[row]) for row in range(rows)) + "]"


def _pairs(labels: Array, scores: Array) -> str:
    pairs = (
        f"[{list_text(label, as_bytes=False)[1:-1]}, {list_text(score, as_bytes=False)[1:-1]}]"
        for label, score in zip(np.split(labels, len(labels)), np.split(scores, len(scores)), strict=True)
    )
    return "[" + ", ".join(pairs) + "]"


def _regressions(named: Mapping[str, Array], rows: int) -> str:
    outputs = named.get("outputs")
    if outputs is None or outputs.size != rows:
        shape = None if outputs is None else list(outputs.shape)
        raise invalid(f"Expected a regression output 'outputs' of one number for each example but got: {shape}")
    return list_text(outputs.reshape(rows), as_bytes=False)
