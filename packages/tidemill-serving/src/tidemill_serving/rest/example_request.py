"""Requests that fit a model, made from the names, types and shapes in its signatures. No model runs for them."""

import json
import math
import shlex
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tidemill_serving.engine import LoadedModel, Signature, TensorSpec
from tidemill_serving.errors import RequestError
from tidemill_serving.rest.examples import check_examples_signature
from tidemill_serving.rest.predict import BYTES_SUFFIX, DEFAULT_SIGNATURE

_MOST_VALUES = 32  # a larger example is written as the expression that makes it
_MOST_SENT = 10_000_000  # more values do not fit into a request of the usual size
_METHODS = {"tensorflow/serving/classify": "classify", "tensorflow/serving/regress": "regress"}
_NO_FEATURES: dict[str, Any] = {"examples": [{}]}
_TEXT = "text"
_TEXT_AS_BYTES = {"b64": "dGV4dA=="}
_SERIALIZED = "examples"  # name of the input in signatures of estimators
_EMPTY_EXAMPLE = {"b64": ""}  # serialized; without features


class ExampleRequest(NamedTuple):
    """A request to a model.

    Attributes:
        verb: ``predict``, ``classify`` or ``regress``.
        body: The body; None if it has so many values that only `program` can describe it.
        program: Program of Python that prints the body; empty if there is a body.
    """

    verb: str
    body: dict[str, Any] | None
    program: str = ""


def example_request(model: LoadedModel) -> ExampleRequest | None:
    """Return a request for the default signature, or for the first one if there is no default.

    Returns:
        None if JSON can call no signature, or if the inputs are too large for a request.
    """
    signatures = {key: each for key, each in model.signatures.items() if each.json_fault is None}
    signature = signatures.get(DEFAULT_SIGNATURE) or next(iter(signatures.values()), None)
    if signature is None:
        return None
    verb = _METHODS.get(signature.method_name)
    if verb is not None and has_examples(signature, verb=verb):
        return ExampleRequest(verb, examples_body(signature))
    body = predict_body(signature)
    if body is not None:
        return ExampleRequest("predict", body)
    if _num_values(signature) > _MOST_SENT:
        return None
    inputs = ", ".join(
        f"{name!a}: {_expression(_leaf(name, spec, signature), spec)}" for name, spec in _inputs(signature)
    )
    named = f'"signature_name": {signature.key!a}, ' if signature.key != DEFAULT_SIGNATURE else ""
    return ExampleRequest("predict", None, f'import json; print(json.dumps({{{named}"inputs": {{{inputs}}}}}))')


def predict_body(signature: Signature) -> dict[str, Any] | None:
    """Return a body for the method ``predict``; None if the inputs have many values.

    The body has rows if those of a request and of its answer belong together by their shapes.
    """
    if _num_values(signature) > _MOST_VALUES:
        return None
    values = {name: _nested(_leaf(name, spec, signature), _sizes(spec)) for name, spec in _inputs(signature)}
    if not signature.batchable:
        return _named(signature, {"inputs": values})
    if len(values) == 1:
        return _named(signature, {"instances": next(iter(values.values()))})
    return _named(signature, {"instances": [{name: value[0] for name, value in values.items()}]})


def examples_body(signature: Signature) -> dict[str, Any]:
    """Return a body for the methods ``classify`` and ``regress``.

    Its example has no features: their names are in the model's graph, not in its signature.
    """
    return _named(signature, _NO_FEATURES)


def has_examples(signature: Signature, *, verb: str) -> bool:
    """Return whether a signature can be called by ``classify`` or ``regress``.

    Args:
        verb: The method.
    """
    try:
        check_examples_signature(signature, verb=verb)
    except RequestError:
        return False
    return True


def example_command(name: str, example: ExampleRequest, *, address: str) -> str:
    """Return a command line of the shell that sends a request.

    Args:
        name: Name of the model.
        address: Where REST is served: ``http://HOST:PORT``, or ``unix:PATH``.

    Returns:
        One line, whatever the names are.
    """
    socket, curl = address.removeprefix("unix:"), "curl"
    if socket != address:
        curl, address = f"curl --unix-socket {shlex.quote(socket)}", "http://localhost"
    url = f"{address}/v1/models/{quoted_name(name)}:{example.verb}"
    if example.body is None:
        return f"python3 -c {shlex.quote(example.program)} | {curl} -d @- {shlex.quote(url)}"
    return f"{curl} -d {shlex.quote(json.dumps(example.body))} {shlex.quote(url)}"


def quoted_name(name: str) -> str:
    """Return the name of a model or a label as a part of a path."""
    return urllib.parse.quote(name, safe="", errors="surrogateescape")


def _named(signature: Signature, body: Mapping[str, Any]) -> dict[str, Any]:
    if signature.key == DEFAULT_SIGNATURE:
        return dict(body)
    return {"signature_name": signature.key, **body}


def _inputs(signature: Signature) -> list[tuple[str, TensorSpec]]:
    return list(signature.inputs.items())


def _num_values(signature: Signature) -> int:
    return sum(math.prod(_sizes(spec)) for spec in signature.inputs.values())


def _sizes(spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape of an example: 1 for unknown dimensions, a vector for an unknown rank."""
    return (1,) if spec.shape is None else tuple(1 if size == -1 else size for size in spec.shape)


def _leaf(name: str, spec: TensorSpec, signature: Signature) -> Any:
    kind = spec.dtype.kind
    if spec.type_name == "string":
        if signature.method_name in _METHODS or name == _SERIALIZED:
            return _EMPTY_EXAMPLE
        return _TEXT_AS_BYTES if name.endswith(BYTES_SUFFIX) else _TEXT
    if kind == "b":
        return True
    return 1 if kind in "iu" else 0.5


def _nested(value: Any, sizes: Sequence[int]) -> Any:
    return [_nested(value, sizes[1:])] * sizes[0] if sizes else value


def _expression(leaf: Any, spec: TensorSpec) -> str:
    text = repr(leaf)
    for size in reversed(_sizes(spec)):
        text = f"[{text}]" if size == 1 else f"[{text}] * {size}"
    return text
