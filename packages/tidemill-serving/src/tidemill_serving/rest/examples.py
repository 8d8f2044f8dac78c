"""The classify and regress methods: convert JSON features to serialized Examples for signatures that parse them.

A signature is accepted by its inputs and outputs, and by its method name only if an option says so, since TensorFlow 2
exports every signature with the method name of predict. It needs one string input; for classify the output ``classes``
or ``scores`` or both, for regress the output ``outputs``. The answer omits other outputs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tidemill_serving.engine import Array, LoadedModel, Signature, TensorSpec
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import failed_precondition, invalid
from tidemill_serving.rest.json_text import json_type, parse, shown
from tidemill_serving.rest.numbers import list_text
from tidemill_serving.rest.predict import find_signature, signature_name
from tidemill_serving.rest.tensors import FLOAT_TYPES, is_bytes_object, string_value

_EXAMPLES = "examples"
_CONTEXT = "context"
CLASSES, SCORES = "classes", "scores"
OUTPUTS = "outputs"
_FIELDS = {"float": "float_list", "int64": "int64_list", "string": "bytes_list"}


@dataclass(frozen=True, slots=True)
class ExamplesRequest:
    """Serialized examples for a signature of the method ``classify`` or ``regress``."""

    signature: Signature
    feeds: list[Array]
    verb: str


def read_examples(body: bytes, model: LoadedModel, *, verb: str) -> ExamplesRequest:
    """Parse the body of a classify or regress request.

    Raises:
        RequestError: INVALID_ARGUMENT or FAILED_PRECONDITION, the body or the signature does not fit the method.
    """
    document = parse(body, keep_integers=True)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    serialized = _read_examples(document)
    signature = find_signature(document, model)
    check_examples_signature(signature, verb=verb)
    return ExamplesRequest(signature, [serialized], verb)


def _read_examples(document: Mapping[str, Any]) -> Array:
    """Serialize the examples of a body, each with the context's features that it does not have itself.

    Of several mistakes TF Serving names that of the signature's name first, then of the context, then of the examples.
    """
    signature_name(document)
    context = _features(document.get(_CONTEXT, {}), where=f"the '{_CONTEXT}'")
    _serialize(context)
    examples = document.get(_EXAMPLES)
    if not isinstance(examples, list):
        raise invalid(f"Expecting '{_EXAMPLES}' to be list/array: a list of objects of features. {shown(document)}")
    if not examples:
        raise invalid(f"No values in '{_EXAMPLES}' array: {shown(document)}")
    serialized = np.empty(len(examples), dtype=object)
    for index, example in enumerate(examples):
        serialized[index] = _serialize({**context, **_features(example, where=f"element {index} of '{_EXAMPLES}'")})
    return serialized


def answer_examples(request: ExamplesRequest, outputs: Sequence[Array]) -> bytes:
    """Return the JSON answer: ``results`` has, per example, a list of [label, score] pairs or a number.

    Raises:
        RequestError: INVALID_ARGUMENT, the shapes of the outputs do not fit the number of examples.
    """
    named = dict(zip(request.signature.outputs, outputs, strict=True))
    rows = len(request.feeds[0])
    text = _regressions(named, rows) if request.verb == "regress" else _classifications(named, rows)
    return ('{\n    "results": ' + text[:-1] + "\n    ]\n}").encode()


def check_examples_signature(signature: Signature, *, verb: str) -> None:
    """Check that a signature takes examples and has the outputs of a method.

    Raises:
        RequestError: INVALID_ARGUMENT or FAILED_PRECONDITION.
    """
    method = f"tensorflow/serving/{verb}"
    if signature.checks_method and signature.method_name != method:
        kind = "regression" if verb == "regress" else "classification"
        raise invalid(f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}")
    if len(signature.inputs) != 1:
        raise invalid(
            f"Expected one input Tensor, a string of serialized examples, in the signature {signature.key}; it has"
            f" {_listed(signature.inputs)}. Use the predict method"
        )
    ((alias, spec),) = signature.inputs.items()
    if spec.type_name != "string":
        raise invalid(
            f"Expected the input Tensor {alias} of the signature {signature.key} to be a string of serialized examples,"
            f" but it is {spec.type_name}. Use the predict method"
        )
    if verb == "regress":
        _check_regression(signature)
    else:
        _check_classification(signature)


def _check_regression(signature: Signature) -> None:
    spec = signature.outputs.get(OUTPUTS)
    if spec is None:
        raise failed_precondition(
            f"No regression outputs found in SignatureDef: the signature {signature.key} has the outputs"
            f' {_listed(signature.outputs)}, none of them "{OUTPUTS}". Use the predict method, or export it with an'
            " output of that name"
        )
    _check_numbers(spec, OUTPUTS, signature=signature)


def _check_classification(signature: Signature) -> None:
    classes, scores = signature.outputs.get(CLASSES), signature.outputs.get(SCORES)
    if classes is None and scores is None:
        raise failed_precondition(
            f'Expected classification signature outputs to contain at least one of "{CLASSES}" or "{SCORES}"; the'
            f" signature {signature.key} has {_listed(signature.outputs)}. Use the predict method, or export it with"
            " outputs of these names"
        )
    if classes is not None and classes.type_name != "string":
        raise failed_precondition(
            f"Expected classes Tensor of string type, but it is {classes.type_name} in the signature {signature.key}:"
            " export it with tf.strings.as_string(classes), or use the predict method"
        )
    if scores is not None:
        _check_numbers(scores, SCORES, signature=signature)


def _check_numbers(spec: TensorSpec, alias: str, *, signature: Signature) -> None:
    if spec.type_name not in FLOAT_TYPES and spec.dtype.kind not in "iu":
        raise failed_precondition(
            f"Expected {alias} Tensor of float type, but it is {spec.type_name} in the signature {signature.key}:"
            " export it as tf.float32, or use the predict method"
        )


def _listed(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f'"{alias}"' for alias in specs) or "none"


def _features(value: Any, *, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise invalid(f"Example must be JSON object, but {where} is {shown(value)}")
    return value


def _serialize(features: Mapping[str, Any]) -> bytes:
    example = _example_class()()
    for name, value in features.items():
        feature = example.features.feature[name]
        values = value if isinstance(value, list) else [value]
        if not values:
            continue  # a feature without values has no kind, and every parser accepts that
        kind = _kind_of(values[0], name=name)
        getattr(feature, _FIELDS[kind]).value.extend([_checked(item, kind, name=name) for item in values])
    return bytes(example.SerializeToString())


@cache
def _example_class() -> Any:
    return open_wheel().example.Example


def _checked(value: Any, kind: str, *, name: str) -> Any:
    if _kind_of(value, name=name) != kind:
        raise invalid(f"feature: {name} expecting type: {kind} as of its first value, but got: {shown(value)}")
    if kind == "string":
        return string_value(value)
    if kind == "int64" and not -(2**63) <= value < 2**63:
        raise invalid(f"Only int64_t is supported for whole numbers; feature: {name} got: {shown(value)}")
    return int(value) if kind == "int64" else value


def _kind_of(value: Any, *, name: str) -> str:
    if isinstance(value, float):
        return "float"
    if isinstance(value, int):  # booleans too
        return "int64"
    if isinstance(value, str) or is_bytes_object(value):
        return "string"
    raise invalid(f"{name} has element with unexpected JSON type: {json_type(value)} (JSON Value: {shown(value)})")


def _classifications(named: Mapping[str, Array], rows: int) -> str:
    classes, scores = named.get(CLASSES), named.get(SCORES)
    shapes = {array.shape for array in (classes, scores) if array is not None}
    shape = shapes.pop()
    if shapes or len(shape) != 2 or shape[0] != rows:
        got = " and ".join(f"{alias} {list(named[alias].shape)}" for alias in (CLASSES, SCORES) if alias in named)
        raise invalid(f"Expected Tensor shape: [batch_size num_classes] with {rows} rows, but got: {got}")
    labels = classes if classes is not None else np.full(shape, b"", dtype=object)
    values = scores if scores is not None else np.zeros(shape, dtype=np.float32)
    return "[" + ", ".join(_pairs(labels[row], values[row]) for row in range(rows)) + "]"


def _pairs(labels: Array, scores: Array) -> str:
    pairs = (
        f"[{list_text(labels[index : index + 1], as_bytes=False)[1:-1].decode()},"
        f" {list_text(scores[index : index + 1], as_bytes=False)[1:-1].decode()}]"
        for index in range(len(labels))
    )
    return "[" + ", ".join(pairs) + "]"


def _regressions(named: Mapping[str, Array], rows: int) -> str:
    outputs = named[OUTPUTS]
    if outputs.shape not in ((rows,), (rows, 1)):
        raise invalid(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size 1] with {rows} rows, but got:"
            f" {list(outputs.shape)}"
        )
    return list_text(outputs.reshape(rows), as_bytes=False).decode()
