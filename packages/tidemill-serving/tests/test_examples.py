"""Classify and regress on models that TensorFlow 2 exported, whose signatures all have the method name of predict."""

import base64
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py


def call(server: Server, verb: str, body: dict[str, Any]) -> Any:
    return server.request("POST", f"/v1/models/examples:{verb}", body)


def test_the_exported_signatures_have_the_method_name_of_predict(server: Server) -> None:
    metadata = server.get("/v1/models/examples/metadata").json["metadata"]["signature_def"]["signature_def"]
    names = {metadata[key]["method_name"] for key in ("regress", "classify")}
    assert names == {"tensorflow/serving/predict"}


@pytest.mark.parametrize(
    ("signature", "examples", "results"),
    [
        ("regress", [{"decimal": 1.5, "whole": 2, "text": "tide"}, {}], [7.5, 0.0]),
        ("regress", [{"decimal": [1.5], "text": [{"b64": "AAE="}]}], [3.5]),
        ("regress", [{"whole": True}, {"whole": [False]}], [1.0, 0.0]),
        ("regress", [{"whole": []}, {"text": []}, {"unknown": 1}], [0.0, 0.0, 0.0]),
        ("regress_column", [{"decimal": -0.5}, {"whole": 3}], [-0.5, 3.0]),
        ("regress_whole", [{"whole": 2**63 - 1}, {"whole": -(2**63)}], [2**63 - 1, -(2**63)]),
    ],
)
def test_regress_returns_a_number_for_each_example(
    server: Server, signature: str, examples: list[dict[str, Any]], results: list[float]
) -> None:
    answer = call(server, "regress", {"signature_name": signature, "examples": examples})
    assert (answer.status, answer.json) == (200, {"results": results})


@pytest.mark.parametrize(
    ("signature", "result"),
    [
        ("classify", [["more", 2.5], ["less", -2.5]]),
        ("classes", [["more", 0.0], ["less", 0.0]]),
        ("scores", [["", 2.5], ["", -2.5]]),
    ],
)
def test_classify_returns_labels_and_scores_for_each_example(server: Server, signature: str, result: list[Any]) -> None:
    body = {"signature_name": signature, "examples": [{"whole": 1}, {}], "context": {"decimal": 1.5}}
    answer = call(server, "classify", body)
    assert (answer.status, answer.json["results"][0]) == (200, result)
    assert len(answer.json["results"]) == 2


@pytest.mark.parametrize(
    ("verb", "signature", "text"),
    [
        ("regress", "other", "No regression outputs found in SignatureDef: the signature other has the outputs "),
        ("regress", "regress_text", "Expected outputs Tensor of float type, but it is string"),
        ("regress", "regress_wide", "Expected output Tensor shape to be either [batch_size] or [batch_size 1] with 1"),
        ("regress", "regress_mean", "Expected output Tensor shape to be either [batch_size] or [batch_size 1] with 1"),
        ("regress", "numbers", "Expected the input Tensor x of the signature numbers to be a string"),
        ("regress", "two", "Expected one input Tensor, a string of serialized examples, in the signature two"),
        ("classify", "other", 'Expected classification signature outputs to contain at least one of "classes" or "sc'),
        ("classify", "numbered", "Expected classes Tensor of string type, but it is int64"),
        ("classify", "uneven", "Expected Tensor shape: [batch_size num_classes] with 1 rows, but got: classes [1, 1]"),
        ("classify", "flat", "Expected Tensor shape: [batch_size num_classes] with 1 rows, but got: scores [1]"),
        ("classify", "absent", 'Serving signature name: "absent" not found in signature def'),
    ],
)
def test_a_signature_that_is_not_one_for_examples_is_refused(
    server: Server, verb: str, signature: str, text: str
) -> None:
    answer = call(server, verb, {"signature_name": signature, "examples": [{"decimal": 1.0}]})
    assert answer.status == 400
    assert answer.error.startswith(text)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "Expecting 'examples' to be list/array"),
        ({"examples": {"whole": 1}}, "Expecting 'examples' to be list/array"),
        ({"examples": []}, "No values in 'examples' array"),
        ({"examples": [5]}, "Example must be JSON object, but element 0 of 'examples' is 5"),
        ({"examples": [{}, [1]]}, "Example must be JSON object, but element 1 of 'examples' is [1]"),
        ({"context": [1]}, "Example must be JSON object, but the 'context' is [1]"),
        ({"examples": [], "context": {"whole": [1, "a"]}}, "feature: whole expecting type: int64"),
        ({"signature_name": 5, "context": [1]}, "JSON Value: 5 'signature_name' key must be a string value."),
        ({"signature_name": "absent"}, "Expecting 'examples' to be list/array"),
        ({"examples": [{}], "context": [1]}, "Example must be JSON object, but the 'context' is [1]"),
        ({"examples": [{"whole": None}]}, "whole has element with unexpected JSON type: Null"),
        ({"examples": [{"whole": [1, {"a": 1}]}]}, "whole has element with unexpected JSON type: Object"),
        ({"examples": [{"whole": [[1]]}]}, "whole has element with unexpected JSON type: Array"),
        ({"examples": [{"whole": [1, 1.5]}]}, "feature: whole expecting type: int64"),
        ({"examples": [{"decimal": [1.5, 1]}]}, "feature: decimal expecting type: float"),
        ({"examples": [{"text": ["a", True]}]}, "feature: text expecting type: string"),
        ({"examples": [{"text": {"b64": "%"}}]}, "Unable to base64 decode"),
        ({"examples": [{"whole": 2**63}]}, "Only int64_t is supported"),
        ({"examples": [{"whole": 10**40}]}, "Only int64_t is supported"),
        ({"examples": [{"whole": [1, -(2**63) - 1]}]}, "Only int64_t is supported"),
        ({"examples": [{"whole": 1.5}]}, "Name: <unknown>, Key: whole, Index: 0.  Data types don't match"),
        ({"examples": [{"whole": [1, 2]}]}, "Name: <unknown>, Key: whole, Index: 0.  Number of int64 values != exp"),
    ],
)
def test_examples_that_cannot_be_read_are_refused(server: Server, body: dict[str, Any], text: str) -> None:
    answer = call(server, "regress", {"signature_name": "regress", **body})
    assert answer.status == 400
    assert answer.error.startswith(text)


def test_the_default_signature_is_called_where_none_is_named(server: Server) -> None:
    refused = call(server, "regress", {"examples": [{"whole": 1}]})
    assert refused.error.startswith('Serving signature name: "serving_default" not found in signature def; the model')


@pytest.mark.parametrize("signature", ["{verb}_x_to_y", "tensorflow/serving/{verb}"])
@pytest.mark.parametrize(
    ("verb", "results"),
    [("regress", [3.5, 4.0]), ("classify", [[["", 3.5]], [["", 4.0]]])],
    ids=["regress", "classify"],
)
def test_the_graph_decides_that_an_input_is_a_string_of_examples(
    server: Server, signature: str, verb: str, results: list[Any]
) -> None:
    """The signatures of this model declare their examples as floats."""
    body = {"signature_name": signature.format(verb=verb), "examples": [{"x": 1.0}, {"x": 2.0}]}
    answer = server.request("POST", f"/v1/models/half_plus_three:{verb}", body)
    assert (answer.status, answer.json) == (200, {"results": results})


def test_predict_takes_the_type_that_the_graph_has(server: Server) -> None:
    example = bytes.fromhex("0a0f0a0d0a0178120812060a040000803f")  # x = 1.0
    inputs = {"inputs": [{"b64": base64.b64encode(example).decode()}]}
    answer = server.predict("half_plus_three", {"signature_name": "regress_x_to_y", "inputs": inputs})
    assert (answer.status, answer.json) == (200, {"outputs": [[3.5]]})
