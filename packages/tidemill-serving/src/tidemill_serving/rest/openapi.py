"""A description of the REST API in the form of OpenAPI 3.1, made from the signatures of the loaded models."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import orjson

from tidemill_serving import __version__
from tidemill_serving.engine import Signature
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.rest.example_request import (
    example_request,
    examples_body,
    has_examples,
    predict_body,
    quoted_name,
)
from tidemill_serving.rest.invocations import CONTENT_TYPES
from tidemill_serving.rest.json_schema import answer_schemas, examples_schema, request_schemas, results_schema

OPENAPI_PATH = "/openapi.json"
_JSON = "application/json"
_NO_FEATURES = "An example without features: add those that the model parses, as {NAME: VALUE}"
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "What is wrong"}},
    "required": ["error"],
}
_ANYTHING: dict[str, Any] = {"schema": {}}
_ERRORS = {
    "Invalid": "The request does not fit the API or the model",
    "NotFound": "There is no such model or version",
    "Overloaded": "Too many requests wait, or the server shuts down: send it again after the time in Retry-After",
    "Failed": "Any other failure",
}
_RESPONSES = {"400": "Invalid", "404": "NotFound", "503": "Overloaded", "default": "Failed"}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}}
_VERSION = {"X-Tidemill-Model-Version": {"description": "Version that answered", "schema": {"type": "integer"}}}
_ATTRIBUTES = {
    "name": "X-Amzn-SageMaker-Custom-Attributes",
    "in": "header",
    "description": "tfs-model-name=NAME,tfs-model-version=N,tfs-method=predict|classify|regress; each may be omitted",
    "schema": {"type": "string"},
}
_MODEL_NAME = {"name": "model_name", "in": "path", "required": True, "schema": {"type": "string"}}


class InvocationKind(Enum):
    """What answers ``/invocations``."""

    NONE = "none"  # the server is no endpoint's container
    MODEL = "model"
    CODE = "code"
    MULTI_MODEL = "multi-model"


def openapi_body(registry: Registry, *, invocations: InvocationKind, metrics_path: str | None) -> bytes:
    """Return the document for the versions that are loaded now.

    Args:
        metrics_path: Path of the metrics, if there are any.
    """
    paths = _server_paths(metrics_path) | _invocation_paths(registry, invocations)
    for name in registry.names:
        paths |= _model_paths(registry, name)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Models served by tidemill", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "responses": {key: _error(key, text) for key, text in _ERRORS.items()},
        },
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2)


def _error(key: str, description: str) -> dict[str, Any]:
    content = {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "description": description,
        "content": content,
        **({"headers": _RETRY_AFTER} if key == "Overloaded" else {}),
    }


def _server_paths(metrics_path: str | None) -> dict[str, Any]:
    what = {
        "/v1/models": "List the models, and the states of their versions",
        "/monitoring/scheduling": "Show how signatures use the processors",
        OPENAPI_PATH: "Return this document",
    }
    paths = {path: _get(text, [], _answer()) for path, text in what.items()}
    for path, text in (
        ("/healthz", "Check that the server runs"),
        ("/readyz", "Check that the server accepts requests"),
        ("/ping", "Check that the default model, or the endpoint's code, can be called"),
    ):
        paths[path] = _get(text, [], {"description": "Yes"})
    if metrics_path is not None:
        content = {"text/plain": {"schema": {"type": "string"}}}
        paths[metrics_path] = _get("Return metrics for Prometheus", [], {"description": "OK", "content": content})
    return paths


def _invocation_paths(registry: Registry, invocations: InvocationKind) -> dict[str, Any]:
    if invocations is InvocationKind.MODEL:
        return {"/invocations": {"post": _invocation_of_default(registry)}}
    anything = {"description": "OK", "content": {"*/*": _ANYTHING}}
    body = {"content": {"*/*": _ANYTHING}}
    if invocations is InvocationKind.CODE:
        post = _operation("Call the endpoint's code, which reads the body", [], anything) | {"requestBody": body}
        return {"/invocations": {"post": post}}
    if invocations is InvocationKind.NONE:
        return {}
    path, named = "/models/{model_name}", {"parameters": [_MODEL_NAME]}
    texts = {"type": "string"}
    load = _object({"model_name": texts, "url": texts | {"description": "Directory of the model"}})
    post = _posted("Load a model", [], _content(load, {}), _answer())
    invoke = _operation("Call a model, or its code", [], anything) | {"requestBody": body, "parameters": [_ATTRIBUTES]}
    delete = _operation("Unload a model", [], _answer())
    return {
        "/models": {"get": _operation("List the loaded models", [], _answer()), "post": post},
        path: {**_get("Return the states of a model's versions", [], _answer()), "delete": delete, **named},
        f"{path}/invoke": {"post": invoke, **named},
    }


def _invocation_of_default(registry: Registry) -> dict[str, Any]:
    loaded = registry.loaded(registry.default_name)
    example = example_request(next(iter(loaded.values())).model) if loaded else None
    examples: dict[str, Any] = {}
    if example is not None and example.body is not None and example.verb == "predict":
        examples = {"default model": {"value": example.body}}
    content: dict[str, Any] = {kind.decode(): _ANYTHING for kind in CONTENT_TYPES}
    content |= _content({}, examples)
    summary = f"Call the default model, {_shown(registry.default_name)}, or the one that a header names"
    return _posted(summary, [], content, _answer()) | {"parameters": [_ATTRIBUTES]}


def _model_paths(registry: Registry, name: str) -> dict[str, Any]:
    """Return the paths of a model: without a version, by version, and by label."""
    base, loaded = f"/v1/models/{quoted_name(name)}", registry.loaded(name)
    if not loaded:
        return {}
    labels, name = registry.labels(name), _shown(name)
    newest = next(iter(loaded.values()))
    paths = _version_paths(base, newest, name, f"{name}, newest version ({newest.version.version})")
    for number, servable in loaded.items():
        paths |= _version_paths(f"{base}/versions/{number}", servable, name, f"{name}, version {number}")
    for label, number in labels.items():
        if number in loaded:
            what = f"{name}, label {label} (version {number})"
            paths |= _version_paths(f"{base}/labels/{quoted_name(label)}", loaded[number], name, what)
    return paths


def _shown(name: str) -> str:
    """Return a name that UTF-8 can encode: that of a directory may be any bytes."""
    return name.encode("utf-8", "replace").decode()


def _version_paths(path: str, servable: Servable, tag: str, what: str) -> dict[str, Any]:
    tags = [tag]
    signatures = [each for each in servable.model.signatures.values() if each.json_fault is None]
    paths = {
        path: _get(f"Return the state of {what}", tags, _answer()),
        f"{path}/metadata": _get(f"Return the signatures of {what}", tags, _answer(headers=_VERSION)),
    }
    if signatures:
        paths[f"{path}:predict"] = {"post": _predict(what, tags, signatures)}
    for verb in ("classify", "regress"):
        found = [each for each in signatures if has_examples(each, verb=verb)]
        if found:
            paths[f"{path}:{verb}"] = {"post": _examples(verb, what, tags, found)}
    return paths


def _predict(what: str, tags: list[str], signatures: Iterable[Signature]) -> dict[str, Any]:
    asks: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    examples: dict[str, Any] = {}
    for signature in signatures:
        asks += request_schemas(signature)
        answers += [each for each in answer_schemas(signature) if each not in answers]
        body = predict_body(signature)
        if body is not None:
            examples[signature.key] = {"value": body}
    answer = _answer({"anyOf": answers}, headers=_VERSION)
    return _posted(f"Predict by {what}", tags, _content({"anyOf": asks}, examples), answer)


def _examples(verb: str, what: str, tags: list[str], signatures: list[Signature]) -> dict[str, Any]:
    examples = {each.key: {"summary": _NO_FEATURES, "value": examples_body(each)} for each in signatures}
    schema = examples_schema([each.key for each in signatures])
    answer = _answer(results_schema(verb), headers=_VERSION)
    return _posted(f"{verb.capitalize()} by {what}", tags, _content(schema, examples), answer)


def _get(summary: str, tags: list[str], answer: Mapping[str, Any]) -> dict[str, Any]:
    return {"get": _operation(summary, tags, answer)}


def _operation(summary: str, tags: list[str], answer: Mapping[str, Any]) -> dict[str, Any]:
    errors = {status: {"$ref": f"#/components/responses/{key}"} for status, key in _RESPONSES.items()}
    return {"summary": summary, "tags": tags, "responses": {"200": answer, **errors}}


def _posted(summary: str, tags: list[str], content: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    return _operation(summary, tags, answer) | {"requestBody": {"required": True, "content": content}}


def _content(schema: Mapping[str, Any], examples: Mapping[str, Any]) -> dict[str, Any]:
    return {_JSON: {"schema": schema, **({"examples": examples} if examples else {})}}


def _answer(schema: Mapping[str, Any] | None = None, *, headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "OK", "content": {_JSON: {"schema": schema or {"type": "object"}}}}
    return answer if headers is None else answer | {"headers": headers}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
