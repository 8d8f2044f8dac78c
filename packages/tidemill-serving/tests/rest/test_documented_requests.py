"""TF Serving's REST API request by request: each documented answer and each documented error text, in one table."""

import json
from pathlib import Path
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py
HALF = "/v1/models/half_plus:predict"
TWO = "/v1/models/two_inputs:predict"
TEXT = "/v1/models/text:predict"
FIRST = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
SECOND = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "

ANSWERS: tuple[tuple[str, str, Any], ...] = (
    (HALF, '{"instances": [1, 2.0, 5]}', {"predictions": [3.5, 4.0, 5.5]}),
    (HALF, '{"instances": [{"x": 2}]}', {"predictions": [4.0]}),
    (HALF, '{"instances": [1], "signature_name": "serving_default"}', {"predictions": [3.5]}),
    (HALF, '{"inputs": [2]}', {"outputs": [4.0]}),
    (HALF, '{"inputs": {"x": [2]}}', {"outputs": [4.0]}),
    (HALF, '{"inputs": 2}', {"outputs": 4.0}),
    ("/V1/MODELS/half_plus:PREDICT", '{"inputs": 2}', {"outputs": 4.0}),
    ("/v1/models/half%5Fplus/versions/123:predict", '{"inputs": 2}', {"outputs": 3.0}),
    (TWO, '{"instances": [{"a": 2, "b": [3, 4]}]}', {"predictions": [{"scaled": 14.0, "total": 7}]}),
    (TWO, '{"inputs": {"a": [2], "b": [[3, 4]]}}', {"outputs": {"scaled": [14.0], "total": [7]}}),
    (
        TEXT,
        '{"instances": ["a", {"b64": "dGlkZQ=="}]}',
        {
            "predictions": [
                {"length": 1, "same": "a", "same_bytes": {"b64": "YQ=="}},
                {"length": 4, "same": "tide", "same_bytes": {"b64": "dGlkZQ=="}},
            ]
        },
    ),
    (
        "/v1/models/tensorflow_1:regress",
        '{"signature_name": "regress", "examples": [{"x": 1.0}, {"x": 2.0}]}',
        {"results": [2.5, 3.0]},
    ),
    (
        "/v1/models/tensorflow_1:classify",
        '{"signature_name": "classify", "context": {"x": 2.0}, "examples": [{"x": 1.0}, {}]}',
        {"results": [[["more", 2.5], ["less", -2.5]], [["more", 3.0], ["less", -3.0]]]},
    ),
)

BODY_ERRORS: tuple[tuple[str, str, str], ...] = (
    (HALF, "", "JSON Parse error: The document is empty"),
    (HALF, '{"instances": [1,]}', "JSON Parse error: Invalid value. at offset: 17"),
    (HALF, '{"instances": [1] } x', "JSON Parse error: The document root must not be followed by other values. at"),
    (HALF, "[1]", "JSON Value: [1] Is not object"),
    (HALF, "[" + "1," * 300 + "1]", "JSON Value: [" + "1," * 127 + "1 Is not object"),
    (HALF, '{"a": 1}', "Missing 'inputs' or 'instances' key"),
    (
        HALF,
        '{"instances":[1],"inputs":[1]}',
        'JSON Value: {"instances":[1],"inputs":[1]} Not formatted correctly expecting only one of \'inputs\' or'
        " 'instances' keys to exist ",
    ),
    (HALF, '{"instances":1}', "JSON Value: {\"instances\":1} Expecting 'instances' to be an list/array"),
    (HALF, '{"instances":[]}', "JSON Value: {\"instances\":[]} No values in 'instances' array"),
    (HALF, '{"instances":["a"]}', FIRST + 'JSON Value: "a" Type: String is not of expected type: float'),
    (HALF, '{"instances":[true]}', FIRST + "JSON Value: true Type: Bool is not of expected type: float"),
    (
        HALF,
        '{"instances":[{"x":"a"}]}',
        "Failed to process element: 0 key: x of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"a\" Type: ",
    ),
    (HALF, '{"instances":[{"junk":1}]}', "Failed to process element: 0 key: junk of 'instances' list."),
    (HALF, '{"instances":[{"x":1},2]}', "Expecting object but got list"),
    (HALF, '{"instances":[1,{"x":1}]}', "Expecting value/list but got object"),
    (HALF, '{"instances":[[1],[2,3]]}', SECOND + "Expecting tensor size: 1 but got: 2"),
    (HALF, '{"instances":[1,[2]]}', SECOND + "Expecting shape [] but got: [1]"),
    (HALF, '{"inputs":[[1],[2,3]]}', "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
    (HALF, '{"instances":[1],"signature_name":"s"}', 'Serving signature name: "s" not found in signature def'),
    (HALF, '{"inputs":{"z":1}}', "Missing named input: x in 'inputs' object."),
    (HALF, '{"inputs":{"x":[1],"z":1}}', "input size does not match signature: "),
    (
        TWO,
        '{"instances":[1]}',
        'JSON Value: {"instances":[1]} instances is a plain list, but expecting list of objects as multiple input'
        " tensors required as per tensorinfo_map",
    ),
    (
        TWO,
        '{"instances":[{"a":1}]}',
        "Failed to process element: 0 of 'instances' list. JSON object: {\"a\":1} keys must be equal to: a,b",
    ),
    (TEXT, '{"instances":[{"b64":"%"}]}', FIRST + "Unable to base64 decode"),
    (
        "/v1/models/no_rows:predict",
        '{"instances":[1],"signature_name":"scalar"}',
        "Tensor name: mean has no shape information ",
    ),
    (
        "/v1/models/no_rows:predict",
        '{"instances":[1,2],"signature_name":"uneven"}',
        "Tensor name: rest has inconsistent batch size: 1 expecting: 2",
    ),
    (
        "/v1/models/unusable:predict",
        '{"instances":[1],"signature_name":"complex64"}',
        "tensor type: complex64",
    ),
    ("/v1/models/examples:regress", '{"signature_name":"regress","examples":1}', "Expecting 'examples' to be list/arr"),
    ("/v1/models/examples:regress", '{"signature_name":"regress","examples":[1]}', "Example must be JSON object"),
    (
        "/v1/models/examples:regress",
        '{"signature_name":"regress","examples":[{"whole":null}]}',
        "whole has element with unexpected JSON type: Null",
    ),
    (
        "/v1/models/examples:regress",
        '{"signature_name":"regress","examples":[{"whole":[1,"a"]}]}',
        "feature: whole expecting type: int64",
    ),
    (
        "/v1/models/examples:regress",
        '{"signature_name":"regress","examples":[{"whole":9223372036854775808}]}',
        "Only int64_t is supported",
    ),
)

TARGET_ERRORS: tuple[tuple[str, str, int, str], ...] = (
    ("POST", "/v1/models/absent:predict", 404, "Servable not found for request: Latest(absent)"),
    ("POST", "/v1/models/half_plus/versions/5:predict", 404, "Servable not found for request: Specific(half_plus, 5)"),
    ("POST", "/v1/models/half_plus/labels/l:predict", 400, "Unrecognized servable version label: l"),
    ("GET", "/v1/models/absent", 404, "Could not find any versions of model absent"),
    ("GET", "/v1/models/half_plus/versions/5", 404, "Could not find version 5 of model half_plus"),
    ("GET", "/v1/models/half_plus/labels/l", 400, "Unrecognized servable version label: l"),
    ("GET", f"/v1/models/half_plus/versions/{2**63}", 400, "Failed to convert version"),
    ("GET", "/v1/models/half_plus/versions/abc", 400, "Malformed request: GET /v1/models/half_plus/versions/abc"),
    ("PUT", HALF, 400, f"Malformed request: PUT {HALF}"),
    ("GET", HALF, 400, f"Malformed request: GET {HALF}"),
    ("OPTIONS", HALF, 400, f"Malformed request: OPTIONS {HALF}"),
    ("GET", "/monitoring/other", 400, "Malformed request: GET /monitoring/other"),
)


@pytest.mark.parametrize(("target", "body", "document"), ANSWERS)
def test_a_documented_request_has_its_answer(server: Server, target: str, body: str, document: Any) -> None:
    answer = server.request("POST", target, body)
    assert (answer.status, answer.json) == (200, document)


@pytest.mark.parametrize(("target", "body", "text"), BODY_ERRORS)
def test_a_wrong_body_has_its_documented_text(server: Server, target: str, body: str, text: str) -> None:
    answer = server.request("POST", target, body)
    assert (answer.status, answer.error[: len(text)]) == (400, text)
    assert (answer.headers["content-type"], answer.body[:11]) == ("application/json", b'{ "error": ')


@pytest.mark.parametrize(("method", "target", "status", "text"), TARGET_ERRORS)
def test_a_wrong_target_has_its_documented_text(
    server: Server, method: str, target: str, status: int, text: str
) -> None:
    answer = server.request(method, target, '{"instances": [1]}' if method == "POST" else None)
    assert (answer.status, answer.error[: len(text)]) == (status, text)


def metric(server: Server, name: str, **labels: str) -> float:
    """Return the value of one line of the metrics; 0 if there is none."""
    answer = server.get("/monitoring/prometheus/metrics")
    assert (answer.status, answer.headers["content-type"][:10]) == (200, "text/plain")
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    for line in answer.body.decode().splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == f":tensorflow:serving:{name}" and all(each in series for each in wanted):
            return float(value)
    return 0.0


def test_metrics_count_requests_by_the_names_of_tensorflow_serving(server: Server) -> None:
    ok = {"model_name": "mlp", "status": "OK"}
    rest = {"model_name": "mlp", "API": "Predict", "entrypoint": "REST"}
    before = metric(server, "request_count", **ok), metric(server, "request_example_count_total", model_name="mlp")
    assert server.predict("mlp", {"instances": [[0] * 8] * 3}).status == 200
    assert server.predict("mlp", {"instances": 1}).status == 400
    assert server.predict("absent", {"instances": 1}).status == 404
    assert metric(server, "request_count", **ok) == before[0] + 1
    assert metric(server, "request_example_count_total", model_name="mlp") == before[1] + 3
    assert metric(server, "request_count", model_name="mlp", status="INVALID_ARGUMENT") >= 1
    assert metric(server, "request_latency_bucket", **rest, le="+Inf") >= 2
    assert metric(server, "request_latency_bucket", **rest, le="10") >= 0
    assert metric(server, "runtime_latency_count", model_name="mlp", API="Predict", runtime="TF1") >= 1
    assert metric(server, "request_count", model_name="absent") == 0  # unknown names from clients get no series


def test_options_of_rest_have_their_effect(start: Any, models: Path, tmp_path: Path) -> None:
    (tmp_path / "monitoring").write_text('prometheus_config { enable: true path: "/numbers" }')
    arguments = ("--rest_api_enable_cors_support", f"--monitoring_config_file={tmp_path / 'monitoring'}")
    environment = {
        "SAGEMAKER_TFS_ENABLE_BATCHING": "true",
        "SAGEMAKER_TFS_MAX_BATCH_SIZE": "16",
        "SAGEMAKER_TFS_BATCH_TIMEOUT_MICROS": "500",
        "SAGEMAKER_TFS_NUM_BATCH_THREADS": "2",
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_TFS_INSTANCE_COUNT": "3",
    }
    server = start(models / "half_plus", arguments=arguments, environment=environment)
    target = "/v1/models/model:predict"
    allowed = {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "POST, GET",
        "access-control-allow-headers": "Content-Type",
    }
    for answer, status in (
        (server.request("OPTIONS", target, headers={"Origin": "http://page"}), 200),
        (server.request("OPTIONS", target), 400),
        (server.request("POST", target, '{"instances": [1]}'), 200),
        (server.request("POST", target, "{"), 400),
    ):
        assert (answer.status, {**answer.headers, **allowed}) == (status, answer.headers)
    assert server.request("OPTIONS", target).error == "Origin header is missing in CORS preflight"
    assert b"# TYPE :tensorflow:serving:request_count counter\n" in server.get("/numbers").body
    assert server.get("/monitoring/prometheus/metrics").status == 400
    assert b":tensorflow:serving:batching_session:wrapped_run_count 1\n" in server.get("/numbers").body
    large = server.predict("model", json.dumps({"instances": [1] * 17}))
    assert (large.status, large.error[:62]) == (400, "Task size 17 is larger than maximum input batch size 16; send ")
    started = server.log[: server.log.index(next(line for line in server.log if line.startswith("server.ready")))]
    for line in (
        "max_batch_size { value: 16 }",
        "batch_timeout_micros { value: 500 }",
        "num_batch_threads { value: 2 }",
        "max_enqueued_batches { value: 100000000 }",
    ):
        assert started.count(line) == 1
    ignored = 'variable.ignored name=SAGEMAKER_TFS_INSTANCE_COUNT value="3" reason="one process serves the models"'
    assert started.count(ignored) == 1
