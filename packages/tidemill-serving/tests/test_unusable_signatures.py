"""Signatures that JSON cannot represent: logged, refused when called, and without effect on the model's others.

gRPC serves complex tensors: see grpc_api/test_prediction_service.py.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py
REASONS = {
    "complex64": "tensor type: complex64 of input x has no JSON form; export a signature whose real and",
    "complex128": "tensor type: complex128 of input x has no JSON form; export a signature whose real and",
    "complex_output": "tensor type: complex64 of output y has no JSON form; export a signature whose real and",
    "qint8": "tensor type: qint8 of input x has no JSON form; export a signature that casts it to a plain type",
    "quint16": "tensor type: quint16 of input x has no JSON form; export a signature that casts it to a plain type",
    "variant": "tensor type: variant of input x has no JSON form; it is a handle inside TensorFlow's runtime: export",
    "resource": "tensor type: resource of input x has no JSON form; it is a handle inside TensorFlow's runtime: export",
    "ragged": "output y is a ragged tensor; export a signature that returns a dense one (RaggedTensor.to_tensor pads",
    "sparse": "output y is a sparse tensor; export a signature that returns a dense one (tf.sparse.to_dense)",
    "sparse_input": "input s is a sparse tensor; export a signature that takes a dense one (tf.sparse.to_dense)",
    "no_outputs": "it has no outputs to answer with; export a signature that returns a tensor",
}


@pytest.mark.parametrize("signature", REASONS)
def test_a_call_gets_the_reason_and_what_to_export(server: Server, signature: str) -> None:
    for body in ({"instances": [1.0]}, {"inputs": [1.0]}, {"instances": [0.5] * 200}):
        answer = server.predict("unusable", {"signature_name": signature, **body})
        assert answer.status == 400
        assert answer.error.startswith(REASONS[signature])
        assert answer.error.endswith(f"(signature {signature})")
    regress = {"signature_name": signature, "examples": [{"x": 1.0}]}
    refused = server.request("POST", "/v1/models/unusable:regress", regress)
    assert (refused.status, refused.error) == (400, answer.error)


def test_other_signatures_of_the_model_answer(server: Server) -> None:
    assert server.predict("unusable", {"instances": [1.0]}).json == {"predictions": [1.0]}
    unknown = server.predict("unusable", {"signature_name": "absent", "instances": [1.0]})
    assert unknown.error.endswith('the model has: "serving_default"')


def test_metadata_shows_all_signatures(server: Server) -> None:
    metadata = server.get("/v1/models/unusable/metadata")
    assert metadata.status == 200
    assert metadata.json["metadata"]["signature_def"]["signature_def"].keys() >= {"serving_default", *REASONS}


def test_the_log_names_each_unusable_signature_once_when_the_model_is_loaded(start: Any, models: Path) -> None:
    server = start(models / "unusable")
    server.predict("model", {"signature_name": "ragged", "instances": [1.0]})
    assert server.terminate() == 0
    line = re.compile(r"signature\.(?:unusable|grpc_only) model=model version=1 signature=(\w+) reason=(.*)")
    reports = [match.groups() for match in map(line.fullmatch, server.log) if match]
    assert sorted(name for name, _ in reports) == sorted(REASONS)
    for name, reason in reports:
        assert json.loads(reason).startswith(REASONS[name])
