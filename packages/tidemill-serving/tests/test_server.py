"""A real server with real models: the contract of a TensorFlow-Serving-based endpoint."""

import base64
import contextlib
import json
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Server = Any  # a ServerProcess of conftest.py
DEADLINE_S = 30

# Predict


def test_the_answer_is_laid_out_as_tensorflow_serving_does(server: Server) -> None:
    answer = server.predict("half_plus/versions/123", {"instances": [1.0, 2.0, 5.0]})
    assert answer.status == 200
    assert answer.body == b'{\n    "predictions": [2.5, 3.0, 4.5\n    ]\n}'
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-tidemill-model-version"] == "123"


def test_without_compiler_and_library_python_writes_the_same_bytes(
    server: Server, models: Path, start: Any, tmp_path: Path
) -> None:
    environment = {"CXX": "none", "TIDEMILL_NATIVE_DIR": str(tmp_path)}
    plain = start(models, environment=environment)
    assert "CXX" in plain.line("json.python")
    assert server.line("json.native", "source=compiled")
    for model, body in (
        ("half_plus", {"instances": [1.0, 1 / 3, -0.0, 1e30, 5e-324]}),
        ("half_plus", {"inputs": {"x": [float("nan"), float("inf")]}}),
        ("two_inputs", {"instances": [{"a": 2, "b": [3, 4]}, {"b": [1, 1], "a": 0.5}]}),
        ("two_inputs", {"instances": [{"a": 2, "b": [3, 4]}, {"a": 0.5, "b": [1]}]}),
    ):
        assert plain.predict(model, body).body == server.predict(model, body).body


def test_without_a_version_the_highest_answers(server: Server) -> None:
    answer = server.predict("half_plus", {"instances": [1.0]})
    assert answer.json == {"predictions": [3.5]}
    assert answer.headers["x-tidemill-model-version"] == "124"


@pytest.mark.parametrize(
    ("model", "body", "expected"),
    [
        ("half_plus", '{"instances": [1]}', {"predictions": [3.5]}),
        ("half_plus", '{"inputs": [1, 2]}', {"outputs": [3.5, 4.0]}),
        ("half_plus", '{"inputs": {"x": [1]}}', {"outputs": [3.5]}),
        ("half_plus", '{"instances": [{"x": 1}, {"x": 2}]}', {"predictions": [3.5, 4.0]}),
        ("half_plus", '{"signature_name": "serving_default", "instances": [1]}', {"predictions": [3.5]}),
        ("half_plus", '{"signature_name": "", "instances": [1]}', {"predictions": [3.5]}),
        (
            "two_inputs",
            '{"instances": [{"a": 2, "b": [3, 4]}, {"a": 0.5, "b": [1, 1]}]}',
            {"predictions": [{"scaled": 14.0, "total": 7}, {"scaled": 1.0, "total": 2}]},
        ),
        (
            "two_inputs",
            '{"inputs": {"a": [2], "b": [[3, 4]]}}',
            {"outputs": {"scaled": [14.0], "total": [7]}},
        ),
        (
            "text",
            '{"instances": ["h\\u00e9", {"b64": "aGk="}]}',
            {
                "predictions": [
                    {"length": 3, "same": "hé", "same_bytes": {"b64": base64.b64encode("hé".encode()).decode()}},
                    {"length": 2, "same": "hi", "same_bytes": {"b64": "aGk="}},
                ]
            },
        ),
        ("words", '{"instances": ["slack", "tide"]}', {"predictions": [2, -1]}),
        ("tensorflow_1", '{"instances": [1, 2]}', {"predictions": [2.5, 3.0]}),
        ("tensorflow_1", '{"instances": [[1], [2]]}', {"predictions": [[2.5], [3.0]]}),
        ("mean", '{"instances": [1, 2, 6]}', {"predictions": [3.0]}),
        ("spin", '{"inputs": 0}', {"outputs": 256.0}),
        ("types", '{"signature_name": "float64", "instances": [0.1]}', {"predictions": [0.1]}),
        ("types", '{"signature_name": "float16", "instances": [[0.5]]}', {"predictions": [[0.5]]}),
        ("types", '{"signature_name": "bfloat16", "instances": [0.5]}', {"predictions": [0.5]}),
        ("types", '{"signature_name": "int8", "inputs": -128}', {"outputs": -128}),
        ("types", '{"signature_name": "int64", "instances": [9007199254740993]}', {"predictions": [9007199254740993]}),
        ("types", '{"signature_name": "uint8", "instances": [255]}', {"predictions": [255]}),
        ("types", '{"signature_name": "bool", "instances": [[true], [false]]}', {"predictions": [[True], [False]]}),
        ("types", '{"signature_name": "float32", "instances": [[], []]}', {"predictions": [[], []]}),
    ],
)
def test_predict_accepts_rows_and_columns_of_every_type(
    server: Server, model: str, body: str, expected: dict[str, Any]
) -> None:
    answer = server.predict(model, body)
    assert (answer.status, answer.json) == (200, expected)


def test_rows_of_several_outputs_are_laid_out_one_object_after_the_other(server: Server) -> None:
    answer = server.predict("two_inputs", {"instances": [{"a": 2, "b": [3, 4]}]})
    assert answer.body.decode() == (
        '{\n    "predictions": [\n        {\n            "scaled": 14.0,\n            "total": 7\n        }\n    ]\n}'
    )


def test_nan_and_infinity_are_read_and_written_as_bare_tokens(server: Server) -> None:
    answer = server.predict("types", '{"signature_name": "float32", "instances": [NaN, Infinity, -Infinity, 1e39]}')
    assert answer.body == b'{\n    "predictions": [NaN, Infinity, -Infinity, Infinity\n    ]\n}'


def test_a_keras_3_model_answers_as_in_keras(server: Server, models: Path) -> None:
    data = np.load(models / "mlp.npz")
    answer = server.predict("mlp", {"instances": data["rows"].tolist()})
    np.testing.assert_allclose(answer.json["predictions"], data["answers"], atol=1e-6)


def test_a_big_body_uses_the_fast_path_with_the_same_answer(server: Server) -> None:
    image = np.random.default_rng(3).random((1, 64, 64, 3)).round(4)
    answer = server.predict("types", {"signature_name": "float32", "instances": image.tolist()})
    assert answer.status == 200
    np.testing.assert_array_equal(np.array(answer.json["predictions"], np.float32), image.astype(np.float32))


@pytest.mark.parametrize(
    ("model", "body", "status", "text"),
    [
        ("half_plus", "", 400, "JSON Parse error: The document is empty"),
        ("half_plus", '{"instances": [1', 400, "JSON Parse error: "),
        ("half_plus", '{"instances": [inf]}', 400, "JSON Parse error: Invalid value. at offset: 15"),
        ("half_plus", "[1, 2]", 400, "JSON Value: [1,2] Is not object"),
        ("half_plus", '"' + "a" * 400 + '"', 400, 'JSON Value: "' + "a" * 255 + " Is not object"),
        ("half_plus", "{}", 400, "Missing 'inputs' or 'instances' key"),
        (
            "half_plus",
            '{"instances": [1], "inputs": [1]}',
            400,
            'JSON Value: {"instances":[1],"inputs":[1]} Not formatted correctly expecting only one of'
            " 'inputs' or 'instances' keys to exist ",
        ),
        (
            "half_plus",
            '{"instances": 5}',
            400,
            "JSON Value: {\"instances\":5} Expecting 'instances' to be an list/array",
        ),
        ("half_plus", '{"instances": []}', 400, "JSON Value: {\"instances\":[]} No values in 'instances' array"),
        (
            "half_plus",
            '{"instances": [1, "a"]}',
            400,
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"a\" Type: String"
            " is not of expected type: float",
        ),
        (
            "two_inputs",
            '{"instances": [{"a": 1, "b": [1, 2]}, {"a": "x", "b": [1, 2]}]}',
            400,
            "Failed to process element: 1 key: a of 'instances' list. Error: INVALID_ARGUMENT: ",
        ),
        (
            "two_inputs",
            '{"instances": [{"a": 1}]}',
            400,
            "Failed to process element: 0 of 'instances' list. JSON object: {\"a\":1} keys must be equal to: a,b",
        ),
        (
            "two_inputs",
            '{"instances": [{"a": 1, "b": [1, 2], "junk": 1}]}',
            400,
            "Failed to process element: 0 key: junk of 'instances' list. Error: INVALID_ARGUMENT: JSON object: ",
        ),
        ("half_plus", '{"instances": [{"x": 1}, [1]]}', 400, "Expecting object but got list"),
        ("half_plus", '{"instances": [1, {"x": 1}]}', 400, "Expecting value/list but got object"),
        (
            "two_inputs",
            '{"instances": [1]}',
            400,
            'JSON Value: {"instances":[1]} instances is a plain list, but expecting list of objects as multiple input'
            " tensors required as per tensorinfo_map",
        ),
        ("two_inputs", '{"inputs": {"a": [1]}}', 400, "Missing named input: b in 'inputs' object."),
        ("two_inputs", '{"inputs": [1]}', 400, "JSON Value: [1] is not an object"),
        ("half_plus", '{"inputs": {"x": [1], "z": [1]}}', 400, "input size does not match signature: 2!=1"),
        ("half_plus", '{"inputs": ["a"]}', 400, 'JSON Value: "a" Type: String is not of expected type: float'),
        (
            "half_plus",
            '{"inputs": [[1, 2], [3]]}',
            400,
            "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
        ),
        (
            "half_plus",
            '{"instances": [[1, 2], [3]]}',
            400,
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 2 but",
        ),
        (
            "half_plus",
            '{"instances": [[1, 2], [[3], [4]]]}',
            400,
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape [2] but got: ",
        ),
        ("text", '{"instances": [{"b64": "%"}]}', 400, "Failed to process element: 0 of 'instances' list. Error: INV"),
        (
            "half_plus",
            '{"signature_name": "s", "instances": [1]}',
            400,
            'Serving signature name: "s" not found in signature def; the model has: "serving_default"',
        ),
        ("half_plus", '{"signature_name": 5, "instances": [1]}', 400, "JSON Value: 5 'signature_name' key must be"),
        ("two_inputs", '{"instances": [{"a": 1, "b": [1, 2, 3]}]}', 400, None),
        ("mlp", '{"instances": [[1, 2, 3]]}', 400, "Expecting shape [-1,8] but got: [1,3] for input "),
        ("spin", '{"signature_name": "serving_default", "inputs": [1, 2]}', 400, "Expecting shape [] but got: [2]"),
        ("backwards", '{"inputs": ' + "[" * 9 + "1" + "]" * 9 + "}", 400, "Expecting shape [-1] but got: [1,1,1,1,1,"),
        ("types", '{"signature_name": "int32", "instances": [3000000000]}', 400, "Failed to process element: 0"),
        ("types", '{"signature_name": "bool", "instances": [1]}', 400, "Failed to process element: 0"),
        ("checked", '{"instances": [-1]}', 400, "assertion failed: [negative number."),
        ("half_plus", '{"instances": ' + "[" * 70 + "1" + "]" * 70 + "}", 400, "JSON Parse error: nested 71 levels"),
        ("half_plus", "[" * 200_000, 400, "JSON Parse error: nested 200000 levels deep"),
        ("half_plus", '{"instances": [1e400]}', 400, "JSON Parse error: Number too big to be stored in double. at"),
        ("text", '{"instances": ["\\ud800"]}', 400, "JSON Parse error: The surrogate pair in string is invalid. at"),
        ("half_plus/versions/" + "9" * 20, '{"instances": [1]}', 400, "Failed to convert version: 999999999999999999"),
        ("absent", '{"instances": [1]}', 404, "Servable not found for request: Latest(absent)"),
        ("half_plus/versions/5", '{"instances": [1]}', 404, "Servable not found for request: Specific(half_plus, 5)"),
        ("half_plus/labels/new", '{"instances": [1]}', 400, "Unrecognized servable version label: new"),
    ],
)
def test_a_bad_request_has_the_text_of_tensorflow_serving(
    server: Server, model: str, body: str, status: int, text: str | None
) -> None:
    answer = server.predict(model, body)
    if text is None:  # the model accepts rows of another width, and answers
        assert answer.status == 200
        return
    assert answer.status == status
    assert answer.error.startswith(text)
    assert answer.body.startswith(b'{ "error": "')
    assert server.predict("half_plus", {"instances": [1]}).status == 200


def test_of_several_equal_keys_the_first_is_used(server: Server) -> None:
    for model, first, both in (
        ("half_plus", '{"instances": [2.0]}', '{"instances": [2.0], "instances": ["a"]}'),
        ("half_plus", '{"instances": [{"x": 2.0}]}', '{"instances": [{"x": 2.0, "x": "a"}]}'),
        ("two_inputs", '{"inputs": {"a": [1], "b": [[1, 2]]}}', '{"inputs": {"a": [1], "b": [[1, 2]], "a": [9]}}'),
        (
            "two_inputs",
            '{"instances": [{"a": 1, "b": [1, 2]}, {"a": 3, "b": [1, 2]}]}',
            '{"instances": [{"a": 1, "b": [1, 2]}, {"a": 3, "b": [1, 2], "a": 9}]}',
        ),
    ):
        wanted = server.predict(model, first)
        assert wanted.status == 200
        assert server.predict(model, both).body == wanted.body
    refused = server.predict("half_plus", '{"signature_name": "s", "instances": [1], "signature_name": ""}')
    assert refused.error.startswith('Serving signature name: "s" not found')


def test_outputs_without_rows_are_refused_in_row_form(server: Server) -> None:
    for signature, text in (
        ("scalar", "Tensor name: mean has no shape information "),
        ("uneven", "Tensor name: rest has inconsistent batch size: 2 expecting: 3"),
    ):
        refused = server.predict("no_rows", {"signature_name": signature, "instances": [1, 2, 6]})
        assert (refused.status, refused.error) == (400, text)
    columns = server.predict("no_rows", {"signature_name": "scalar", "inputs": [1, 2, 6]})
    assert columns.json == {"outputs": 3.0}


# Classify and regress


def test_regress_returns_a_number_for_each_example(server: Server) -> None:
    body = {"signature_name": "regress", "examples": [{"x": 1.0}, {"x": [2.0]}]}
    answer = server.request("POST", "/v1/models/tensorflow_1:regress", body)
    assert answer.body == b'{\n    "results": [2.5, 3.0\n    ]\n}'


def test_classify_returns_labels_and_scores_for_each_example(server: Server) -> None:
    body = {"signature_name": "classify", "examples": [{}, {"x": 3.0}], "context": {"x": 1.0}}
    answer = server.request("POST", "/v1/models/tensorflow_1:classify", body)
    assert answer.json == {"results": [[["more", 2.5], ["less", -2.5]], [["more", 3.5], ["less", -3.5]]]}
    labels = server.request("POST", "/v1/models/tensorflow_1:classify", {**body, "signature_name": "labels"})
    assert labels.json["results"][0] == [["more", 0.0], ["less", 0.0]]


# Status, metadata, other routes


def test_status_lists_versions_newest_first(server: Server) -> None:
    ok = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert server.get("/v1/models/half_plus").json == {
        "model_version_status": [{"version": "124", **ok}, {"version": "123", **ok}]
    }
    assert server.get("/V1/Models/half_plus/versions/123").json == {"model_version_status": [{"version": "123", **ok}]}


def test_metadata_shows_every_field_of_the_signatures(server: Server) -> None:
    metadata = server.get("/v1/models/half_plus/versions/123/metadata").json
    assert metadata["model_spec"] == {"name": "half_plus", "signature_name": "", "version": "123"}
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"] == {
        "name": "serving_default_x:0",
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False},
    }


def test_all_models_are_listed(server: Server, models: Path) -> None:
    listed = [model["name"] for model in server.get("/v1/models").json["models"]]
    versions = {*models.glob("*/[0-9]*"), *models.glob("others/*/[0-9]*")}
    assert listed == sorted({path.parent.name for path in versions})


@pytest.mark.parametrize(
    ("method", "target", "status", "text"),
    [
        ("GET", "/v1/models/absent", 404, "Could not find any versions of model absent"),
        ("GET", "/v1/models/half_plus/versions/5", 404, "Could not find version 5 of model half_plus"),
        ("GET", "/v1/models/absent/metadata", 404, "Servable not found for request: Latest(absent)"),
        ("GET", "/v1/models/a:b", 400, "Malformed request: GET /v1/models/a:b"),
        ("POST", "/v1/models/half_plus", 400, "Malformed request: POST /v1/models/half_plus"),
        ("POST", "/v1/models/half_plus:train", 400, "Malformed request: POST /v1/models/half_plus:train"),
        ("DELETE", "/v1/models/half_plus", 400, "Malformed request: DELETE /v1/models/half_plus"),
        ("GET", "/v1/", 400, "Malformed request: GET /v1/"),
        ("GET", "/models", 404, "Not Found"),
        ("POST", "/ping", 404, "Not Found"),
        ("GET", "/invocations", 404, "Not Found"),
        ("GET", "/", 404, "Not Found"),
    ],
)
def test_an_unknown_target_is_refused(server: Server, method: str, target: str, status: int, text: str) -> None:
    answer = server.request(method, target)
    assert (answer.status, answer.error) == (status, text)


def test_names_are_percent_decoded_and_the_tfs_prefix_is_removed(server: Server) -> None:
    body = {"instances": [1]}
    assert server.predict("half%5Fplus", body).status == 200
    assert server.request("POST", "/tfs/v1/models/half_plus:predict?x=1", body).status == 200


def test_health_is_answered(server: Server) -> None:
    assert [server.get(target).status for target in ("/ping", "/healthz", "/readyz")] == [200, 200, 200]


# Invocations


def test_under_accept_json_the_answer_is_on_one_line(server: Server) -> None:
    answer = server.invoke(
        '{"instances": [1.0, 2.0, 5.0]}',
        Accept="application/json",
        X_Amzn_SageMaker_Custom_Attributes="tfs-model-version=124",
    )
    assert answer.body == b'{    "predictions": [3.5, 4.0, 5.5    ]}'
    assert answer.headers["content-type"] == "application/json"


def test_the_first_accepted_type_is_the_type_of_the_answer(server: Server) -> None:
    answer = server.invoke("[1]", Accept="application/jsonlines, application/json")
    assert (answer.headers["content-type"], answer.body.count(b"\n")) == ("application/jsonlines", 0)
    assert server.invoke("[1]", Accept="*/*").body.count(b"\n") == 3


@pytest.mark.parametrize(
    ("body", "content_type", "predictions"),
    [
        ("[1.0, 2.0, 5.0]", "application/json", [[3.5, 4.0, 5.5]]),
        ("[[1.0, 2.0], [5.0, 7.0]]", "application/json", [[3.5, 4.0], [5.5, 6.5]]),
        ("2", "application/json", [4.0]),
        ('{"x": 1}\n{"x": 2}', "application/jsonlines", [3.5, 4.0]),
        ("[1]\n[2]\n", "application/jsons", [[3.5], [4.0]]),
        ("1\n2\n5", "text/csv", [3.5, 4.0, 5.5]),
        ("1.0,2.0\n3,4\n", "text/csv", [[3.5, 4.0], [4.5, 5.0]]),
    ],
)
def test_invocations_accept_json_json_lines_and_csv(
    server: Server, body: str, content_type: str, predictions: list[Any]
) -> None:
    answer = server.invoke(body, content_type)
    assert (answer.status, answer.json) == (200, {"predictions": predictions})


def test_custom_attributes_choose_the_model_and_the_method(server: Server) -> None:
    words = server.invoke('["flow"]', X_Amzn_SageMaker_Custom_Attributes="tfs-model-name=words")
    assert words.status == 200
    body = json.dumps({"signature_name": "regress", "examples": [{"x": 1.0}]})
    regress = server.invoke(
        body, X_Amzn_SageMaker_Custom_Attributes="tfs-model-name=tensorflow_1,tfs-model-version=7,tfs-method=regress"
    )
    assert regress.json == {"results": [2.5]}
    absent = server.invoke("[1]", X_Amzn_SageMaker_Custom_Attributes="tfs-model-name=absent")
    assert (absent.status, absent.error) == (404, "Servable not found for request: Latest(absent)")


def test_errors_of_invocations_have_status_and_text(server: Server) -> None:
    empty = server.invoke("")
    assert (empty.status, empty.error) == (400, "JSON Parse error: The document is empty")
    other = server.invoke(b"GIF89a", "image/gif")
    assert (other.status, other.error) == (415, "Unsupported Media Type: image/gif")
    taken = "application/json, application/jsonlines, application/jsons, text/csv, application/x-npy"
    assert other.headers["accept-post"] == taken
    named = server.invoke('{"instances": 5}', Accept="application/json")
    assert (named.status, "'instances'" in named.body.decode()) == (400, True)


# The process


def test_the_unix_socket_answers_although_its_path_is_long(server: Server) -> None:
    answer = server.request("POST", "/v1/models/half_plus:predict", {"instances": [1]}, unix=True)
    assert (answer.status, len(str(server.unix_socket)) > 108) == (200, True)


def test_32_connections_at_once_get_their_own_answers(server: Server, models: Path) -> None:
    data = np.load(models / "mlp.npz")
    rows, answers = data["rows"], data["answers"]

    def client(number: int) -> int:
        connection = server.connect(unix=number % 2 == 0)
        right = 0
        for turn in range(25):
            first = (number + turn) % (len(rows) - 5)
            count = turn % 4 + 1
            body = json.dumps({"instances": rows[first : first + count].tolist()})
            connection.request("POST", "/v1/models/mlp:predict", body)
            predictions = json.loads(connection.getresponse().read())["predictions"]
            right += np.allclose(predictions, answers[first : first + count], atol=1e-5)
            value = number * 100 + turn
            body = json.dumps({"instances": [value if turn % 5 else -value - 1]})
            connection.request("POST", "/v1/models/checked:predict", body)
            reply = connection.getresponse()
            answer = json.loads(reply.read())
            expected = abs(answer["predictions"][0] - value**0.5) < 1e-2 if turn % 5 else reply.status == 400
            right += bool(expected)
        connection.close()
        return right

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(client, range(32))) == [50] * 32


def test_requests_that_arrive_together_get_the_answers_that_they_get_alone(server: Server) -> None:
    """The server is suspended while the requests arrive, so that one turn of its loop reads all of them."""
    bodies = [("half_plus", json.dumps({"instances": list(range(1, 2 + turn % 9))})) for turn in range(12)]
    bodies += [("half_plus", '{"inputs": [1.5, 2]}'), ("half_plus", '{"instances": [1, }'), ("half_plus", "")]
    bodies += [("half_plus", json.dumps({"instances": list(range(count))})) for count in (33, 100, 6000)]
    bodies += [("half_plus", '{"signature_name": "none", "instances": [1]}'), ("half_plus", '{"instances": [[1]]}')]
    bodies += [("checked", json.dumps({"instances": [value]})) for value in (4, 9, -1, 16)]
    bodies += [("text", '{"instances": ["a"]}'), ("mean", '{"instances": [1]}'), ("none", '{"instances": [1]}')]
    bodies += [("half_plus/versions/123", '{"instances": [4]}'), ("half_plus/versions/9", '{"instances": [4]}')]
    bodies += [("mean", '{"instances": [5]}')]  # with the other one a run that fails
    for _ in range(3):  # rows share a run after some runs of one row
        server.predict("mean", '{"instances": [2]}')
    alone = [server.predict(model, body) for model, body in bodies]

    def counts() -> dict[str, str]:
        lines = server.get("/monitoring/prometheus/metrics").body.decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if "request_count{" in line)

    before = counts()
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(closing(server.connect())) for _ in bodies]
        for connection in connections:  # accepted now: the loop accepts one connection in each turn
            connection.request("GET", "/ping")
            assert connection.getresponse().read() == b""
        server.process.send_signal(signal.SIGSTOP)
        for connection, (model, body) in zip(connections, bodies, strict=True):
            connection.request("POST", f"/v1/models/{model}:predict", body)
        server.process.send_signal(signal.SIGCONT)
        for connection, wanted, (model, body) in zip(connections, alone, bodies, strict=True):
            reply = connection.getresponse()
            assert (reply.status, reply.read()) == (wanted.status, wanted.body), (model, body)
    after = counts()
    ended = sum(int(after[name]) - int(before.get(name, 0)) for name in after)
    assert ended == sum(model not in ("none", "half_plus/versions/9") for model, _body in bodies)
    assert "SAGEMAKER_TFS_ENABLE_BATCHING=false" in server.line("batching.failed", "model=mean")


def test_a_long_run_does_not_delay_others(server: Server) -> None:
    with ThreadPoolExecutor(1) as pool:
        long_run = pool.submit(server.predict, "spin", '{"inputs": 1500}')
        answered = 0
        while not long_run.done():
            assert server.get("/ping").status == 200
            answered += 1
        assert long_run.result(DEADLINE_S).status == 200
    assert answered > 1


def test_bytes_that_are_not_http_do_not_crash_the_server(server: Server) -> None:
    for raw in (b"\x00" * 1000, b"POST /invocations HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as client:
            client.sendall(raw)
            assert client.recv(100).startswith(b"HTTP/1.1 400")
    assert server.get("/ping").status == 200


def test_after_sigterm_received_requests_are_answered_and_the_exit_code_is_0(
    start: Any, models: Path, tmp_path: Path
) -> None:
    server = start(models / "spin", unix_socket=tmp_path / "s")
    with closing(server.connect()) as connection, ThreadPoolExecutor(1) as pool:
        started = threading.Event()

        def long_run() -> tuple[int, str | None]:
            connection.request("POST", "/v1/models/model:predict", '{"inputs": 4000}')
            started.set()
            reply = connection.getresponse()
            reply.read()
            return reply.status, reply.getheader("connection")

        answer = pool.submit(long_run)
        assert started.wait(DEADLINE_S)
        assert server.get("/ping").status == 200  # the long run has been read before this
        server.process.send_signal(signal.SIGTERM)
        while (ping := server.get("/ping")).status == 200:
            pass
        assert ping.status == 503
        assert answer.result(DEADLINE_S) == (200, "close")
    assert server.wait() == 0
    assert server.log[-2:] == ["server.draining", "server.stopped every_request_answered=true"]
    assert not (tmp_path / "s").exists()


def test_a_second_sigterm_ends_at_once(start: Any, models: Path) -> None:
    server = start(models / "spin")
    with closing(server.connect()) as connection:
        connection.request("POST", "/v1/models/model:predict", '{"inputs": 1000000}')
        server.process.send_signal(signal.SIGTERM)
        while server.get("/ping").status == 200:
            pass
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == 1


def test_the_log_names_the_loaded_models(start: Any, models: Path) -> None:
    server = start(models / "half_plus")
    assert server.terminate() == 0
    log = "\n".join(server.log)
    assert re.search(r"^signature.ready model=model version=123 signature=serving_default runs=\w+", log, re.MULTILINE)
    assert re.search(r"^model.loaded name=model version=124 path=\S+ seconds=[\d.]+$", log, re.MULTILINE)
    assert "Entering the event loop" in server.log


@pytest.mark.parametrize(
    ("environment", "arguments", "text"),
    [
        (
            {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "other"},
            (),
            "'other', but the models found are model: name one of them",
        ),
        ({"SAGEMAKER_TFS_ENABLE_BATCHING": "yes"}, (), "SAGEMAKER_TFS_ENABLE_BATCHING='yes' is neither true nor false"),
        ({"SAGEMAKER_TFS_MAX_BATCH_SIZE": "0"}, (), "SAGEMAKER_TFS_MAX_BATCH_SIZE='0' is not a whole number"),
        ({"SAGEMAKER_MULTI_MODEL": "maybe"}, (), "SAGEMAKER_MULTI_MODEL='maybe' is neither true nor false"),
        ({"SAGEMAKER_MULTI_MODEL_UNIVERSAL_BUCKET": "mine"}, (), "the server reads no code from S3"),
        ({"SAGEMAKER_SAFE_PORT_RANGE": "9000"}, (), "SAGEMAKER_SAFE_PORT_RANGE='9000' is not a range of ports"),
        ({}, ("--host", "203.0.113.1"), "cannot listen on 203.0.113.1"),
        ({}, ("--tensorflow-inter-op-parallelism=-1",), "--tensorflow-inter-op-parallelism -1: expected at least 0"),
    ],
)
def test_a_setting_that_cannot_be_followed_fails_the_start(
    start: Any, models: Path, environment: dict[str, str], arguments: tuple[str, ...], text: str
) -> None:
    with pytest.raises(AssertionError, match=r"exit status 1") as failure:
        start(models / "half_plus", environment=environment, arguments=arguments)
    assert text in str(failure.value)


def test_an_archive_without_a_model_fails_the_start(start: Any, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(AssertionError, match="exit status 1") as failure:
        start(tmp_path)
    assert f"server.failed no SavedModel bundles found! {tmp_path} holds notes.txt" in str(failure.value)


def test_without_batching_the_answers_are_the_same(start: Any, models: Path) -> None:
    environment = {"SAGEMAKER_TFS_ENABLE_BATCHING": "false", "SAGEMAKER_TFS_INTRA_OP_PARALLELISM": "1"}
    server = start(models / "two_inputs", environment=environment)
    answer = server.predict("model", {"instances": [{"a": 2, "b": [3, 4]}]})
    assert answer.json == {"predictions": [{"scaled": 14.0, "total": 7}]}
