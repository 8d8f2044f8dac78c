"""The Python-based kind of endpoint: scripts with ``input_fn`` and similar functions, and the defaults."""

import base64
import importlib
import io
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import classification_pb2, inference_pb2, input_pb2, predict_pb2, regression_pb2

FUZZ_S = float(os.environ.get("FUZZ_S", "0"))
SDK = Path(__file__).parents[3] / "tidemill/src"
Server = Any  # a ServerProcess of conftest.py
Serve = Callable[..., Server]

STEPS = """
import numpy as np

def input_fn(serialized_data, content_type):
    print("input_fn got", type(serialized_data).__name__, content_type)
    if content_type == "application/x-count":
        return {"a": np.arange(3), "b": [[1, 1]] * 3}
    if content_type == "application/x-fail":
        raise KeyError("unheard of")
    return {"a": [float(each) for each in serialized_data.split(";")], "b": [[3, 4]]}

def output_fn(prediction_result, accepts):
    scaled = prediction_result.outputs["scaled"]
    return f"{list(scaled.float_val)} for {accepts}"
"""
TRANSFORM = """
import tensorflow as tf  # the whole of it, in the user's own process

def input_fn(data, content_type):
    raise AssertionError("transform_fn replaces it")

def transform_fn(data, content_type, accepts):
    return f"{tf.constant(data).numpy().decode()} {content_type} {accepts}"
"""
SEVERAL = """
from tidemill_serving.messages.definitions import messages

def input_fn(serialized_data, content_type):
    return messages().MultiInferenceRequest.FromString(serialized_data)
"""
PREDICT = """
import json, os

def model_fn(model_dir):
    print("model_fn", model_dir)
    return {"files": sorted(os.listdir(model_dir))}

def predict_fn(data, model):
    return {"sum": sum(data), **model}
"""


@pytest.fixture(scope="module")
def serve(models: Path, tmp_path_factory: pytest.TempPathFactory, server_process: Any) -> Iterator[Serve]:
    """Yield a function that starts endpoints of a model below ``export/Servo`` with a script."""
    started: list[Server] = []

    def start(model: str, script: str | None = None, **environment: str) -> Server:
        directory = tmp_path_factory.mktemp("python")
        (directory / "model/export").mkdir(parents=True)
        (directory / "model/export/Servo").symlink_to(models / model)
        (directory / "code").mkdir()
        if script is not None:
            (directory / "code/entry.py").write_text(script)
            environment = {"SAGEMAKER_PROGRAM": "entry.py", **environment}
        running = server_process(
            directory / "model",
            arguments=("--kind", "python", "--code-dir", str(directory / "code")),
            environment={"SAGEMAKER_MODEL_SERVER_WORKERS": "1", **environment},
        )
        started.append(running)
        return running.start()

    yield start
    alive = [running for running in started if running.process.poll() is None]
    for running in alive:  # all at once: each accepts connections for a second more
        running.process.send_signal(signal.SIGTERM)
    assert [running.wait() for running in alive] == [0] * len(alive), [running.log for running in alive]
    for running in started:
        running.process.stdout.close()


@pytest.fixture(scope="module")
def plain(serve: Serve) -> Server:
    return serve("half_plus")


@pytest.fixture(scope="module")
def mixed(serve: Serve) -> Server:
    return serve("mixed")


MIXED = {"counts": [[1, 2]], "flag": [True], "name": ["é"]}
FLOATS = {"dtype": "DT_FLOAT", "tensorShape": {"dim": [{"size": "3"}]}, "floatVal": [3.5, 4.0, 5.5]}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("[1, 2, 5]", "application/json"),
        ('{"x": [1, 2, 5]}', "application/json; charset=utf-8"),
        (
            '{"dtype": "DT_FLOAT", "tensorShape": {"dim": [{"size": "3"}]}, "floatVal": [1, 2, 5]}',
            "application/json",
        ),
        ("1,2,5\n7,8,9", "text/csv"),  # only the first line is read
    ],
)
def test_every_form_of_a_value_is_predicted(plain: Server, body: str, content_type: str) -> None:
    answer = plain.invoke(body, content_type)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    spec = {"name": "generic_model", "version": "124", "signatureName": "serving_default"}
    assert answer.json == {"outputs": {"y": FLOATS}, "modelSpec": spec}


@pytest.fixture(scope="module")
def sdk() -> Iterator[Any]:
    """Yield the serializers of tidemill's SDK, which are standard Python and not installed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SDK))
        yield importlib.import_module("tidemill.sdk.tensorflow_serializers")


def exchange(server: Server, serializer: Any, deserializer: Any, value: Any) -> Any:
    """Send a value as a predictor of the SDK does, and return the deserialized answer."""
    answer = server.invoke(serializer.serialize(value), serializer.CONTENT_TYPE, Accept=deserializer.ACCEPT)
    assert (answer.status, answer.headers["content-type"]) == (200, deserializer.ACCEPT), answer.body
    return deserializer.deserialize(io.BytesIO(answer.body), answer.headers["content-type"])


def example_list(**features: float) -> input_pb2.Input:
    made = input_pb2.Input()
    given = made.example_list.examples.add().features.feature
    for name, value in features.items():
        given[name].float_list.value.append(value)
    return made


def test_messages_of_tensorflow_serving_go_in_and_out(plain: Server, sdk: Any) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "what the client calls it"
    tensor = request.inputs["x"]
    tensor.CopyFrom(tensor_pb2.TensorProto(dtype=1, float_val=[1, 2, 5]))
    tensor.tensor_shape.dim.add(size=3)
    for serializer, deserializer, value in (
        (sdk.tf_serializer, sdk.tf_deserializer, request),
        (sdk.tf_json_serializer, sdk.tf_json_deserializer, tensor),
        (sdk.tf_csv_serializer, sdk.tf_deserializer, tensor),
    ):
        response = exchange(plain, serializer, deserializer, value)
        assert type(response) is predict_pb2.PredictResponse
        assert list(response.outputs["y"].float_val) == [3.5, 4.0, 5.5]
        assert response.model_spec.version.value == 124


def test_a_value_that_is_no_message_is_refused_or_plain_json(sdk: Any) -> None:
    with pytest.raises(ValueError, match=r"tf_serializer takes a message of PredictRequest, .*, but got TensorProto"):
        sdk.tf_serializer.serialize(tensor_pb2.TensorProto())
    with pytest.raises(ValueError, match=r"the answer \(a/b, 1 bytes\) is none of PredictResponse"):
        sdk.tf_deserializer.deserialize(io.BytesIO(b"\xff"), "a/b")
    for text in ('{"predictions": [[1.0]]}', '{"outputs": [1.0]}', "[1]", "null"):
        assert sdk.tf_json_deserializer.deserialize(io.BytesIO(text.encode())) == json.loads(text)
    tensor = sdk.tf_json_deserializer.deserialize(io.BytesIO(b'{"dtype": "DT_FLOAT", "floatVal": [2.5]}'))
    assert tensor == tensor_pb2.TensorProto(dtype=1, float_val=[2.5])
    assert sdk.tf_csv_serializer.serialize(tensor) == "2.5"
    assert sdk.tf_csv_serializer.serialize([[1, 2], [3, 4]]) == "1,2\n3,4"


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status", "text"),
    [
        ("1", "application/x-mine", "application/json", 415, "Unsupported content type: application/x-mine"),
        ("[1]", "application/json", "text/mine", 406, "Unsupported accept type: text/mine"),
        ("[1", "application/json", "*/*", 400, "the body is no JSON"),
        ('["a"]', "application/json", "*/*", 400, "input x: could not convert string to float"),
        ('{"z": [1]}', "application/json", "*/*", 400, "the model has no input 'z'; its inputs are x"),
        ("a,b", "text/csv", "*/*", 400, "is no list of numbers"),
        ("", "text/csv", "*/*", 400, "is no list of numbers"),
        ("1,٢".encode(), "text/csv", "*/*", 400, "is no list of numbers"),
        ("1,2_0", "text/csv", "*/*", 400, "is no list of numbers"),
        ("\x08", "application/octet-stream", "*/*", 400, "the body is no PredictRequest"),
        (b"\xff", "text/csv", "*/*", 400, "the body of type text/csv is no UTF-8 text"),
        ("[" * 100_000, "application/json", "*/*", 400, "the body is no JSON: maximum recursion depth exceeded"),
        ("[[1], [2, 3]]", "application/json", "*/*", 400, "input x: setting an array element with a sequence"),
    ],
)
def test_a_bad_request_gets_an_error_with_the_reason(
    plain: Server, body: str | bytes, content_type: str, accept: str, status: int, text: str
) -> None:
    answer = plain.invoke(body, content_type, Accept=accept)
    assert answer.status == status, answer.body
    assert text in answer.error


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"counts": [[1.5]]}, "input counts: [[1.5]] cannot be converted without loss; expected values of type int64"),
        ({"counts": [[10**30]]}, "; expected values of type int64"),
        ({"flag": ["a"]}, "input flag: ['a'] cannot be converted without loss; expected values of type bool"),
        ({"name": [5]}, "input name: 5 is no text; expected values of type string"),
        ({"name": [["a"], ["b", "c"]]}, "is no text; expected values of type string"),
        ({"name": ["\ud800"]}, "surrogates not allowed; expected values of type string"),
    ],
)
def test_a_value_that_its_input_cannot_hold_is_refused(mixed: Server, wrong: dict[str, Any], text: str) -> None:
    answer = mixed.invoke(json.dumps({**MIXED, **wrong}))
    assert (answer.status, text in answer.error) == (400, True), answer.body


def test_values_of_several_types_come_back(mixed: Server) -> None:
    outputs = mixed.invoke(json.dumps(MIXED)).json["outputs"]
    assert outputs["counts"]["int64Val"] == ["1", "2"]
    assert outputs["flag"]["boolVal"] == [True]
    assert outputs["name"]["stringVal"] == [base64.b64encode("é".encode()).decode()]


def test_damaged_bodies_are_answered_or_refused(mixed: Server) -> None:
    """They are damaged at random for ``FUZZ_S`` seconds, but at least 200 times."""
    request = predict_pb2.PredictRequest()
    for name, tensor in (
        ("counts", tensor_pb2.TensorProto(dtype=9, int64_val=[1, 2], tensor_shape={"dim": [{"size": 1}, {"size": 2}]})),
        ("flag", tensor_pb2.TensorProto(dtype=10, bool_val=[True], tensor_shape={"dim": [{"size": 1}]})),
        ("name", tensor_pb2.TensorProto(dtype=7, string_val=[b"a"], tensor_shape={"dim": [{"size": 1}]})),
    ):
        request.inputs[name].CopyFrom(tensor)
    bodies = (
        (request.SerializeToString(), "application/octet-stream"),
        (json.dumps(MIXED).encode(), "application/json"),
        (b'{"counts": {"dtype": "DT_INT64", "int64Val": ["1"]}, "flag": [true], "name": "a"}', "application/json"),
        (b"1,2.5,-3e2\n", "text/csv"),
    )
    chance = random.Random(13)
    end_s, turns = time.monotonic() + FUZZ_S, 0
    while turns < 200 or time.monotonic() < end_s:
        body, content_type = chance.choice(bodies)
        changed = bytearray(body)
        for _ in range(chance.randint(0, 3)):
            place = chance.randrange(len(changed) + 1)
            changed[place : place + chance.randint(0, 4)] = chance.choice((b"", chance.randbytes(2), b'"', b"[", b"9"))
        answer = mixed.invoke(bytes(changed), content_type)
        assert answer.status in (200, 400, 404), (changed, content_type, answer.body)
        turns += 1


def test_a_model_that_classifies_gets_examples(serve: Serve, sdk: Any) -> None:
    server = serve("classifier")

    def classes(body: str) -> Any:
        return [each["classes"] for each in server.invoke(body).json["result"]["classifications"]]

    one = [{"label": "first", "score": 0.25}, {"label": "second", "score": 0.5}]
    assert classes("[0.25, 0.5]") == [one]
    assert classes('{"inputs": [0.25, 0.5]}') == [one]
    assert classes('[{"inputs": [0.25, 0.5]}, {"inputs": [0.5, 1.5]}]')[0] == one
    mixed = server.invoke('{"inputs": [0.5, "a"]}')
    assert (mixed.status, "of different kinds" in mixed.error) == (400, True)
    assert server.invoke(f"[{10**20}]").status == 400
    for deserializer in (sdk.tf_deserializer, sdk.tf_json_deserializer):
        response = exchange(server, sdk.tf_json_serializer, deserializer, [0.5, 0.5])
        assert type(response) is classification_pb2.ClassificationResponse
        assert [each.score for each in response.result.classifications[0].classes] == [0.5, 0.5]


def test_a_model_that_regresses_gets_examples(serve: Serve, sdk: Any) -> None:
    server = serve("regressor")
    request = regression_pb2.RegressionRequest(input=example_list(inputs=1.0))
    for serializer, deserializer, value in (
        (sdk.tf_serializer, sdk.tf_deserializer, request),
        (sdk.tf_json_serializer, sdk.tf_json_deserializer, [1.0]),
    ):
        response = exchange(server, serializer, deserializer, value)
        assert type(response) is regression_pb2.RegressionResponse
        assert [each.value for each in response.result.regressions] == [2.5]


def test_input_fn_may_return_a_request_of_any_method(serve: Serve, sdk: Any) -> None:
    server = serve("tensorflow_1", SEVERAL)
    request = inference_pb2.MultiInferenceRequest(input=example_list(x=1.0))
    for method in ("regress", "classify"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.signature_name = method
    for deserializer in (sdk.tf_deserializer, sdk.tf_json_deserializer):
        response = exchange(server, sdk.tf_serializer, deserializer, request)
        assert type(response) is inference_pb2.MultiInferenceResponse
        regressed, classified = response.results
        assert regressed.regression_result.regressions[0].value == 2.5
        assert [each.label for each in classified.classification_result.classifications[0].classes] == ["more", "less"]


def test_a_model_that_takes_too_long_is_given_up(serve: Serve) -> None:
    answer = serve("spin", SAGEMAKER_TFS_GRPC_REQUEST_TIMEOUT="0.3").invoke('{"turns": 4000}')
    assert answer.status == 504
    assert "did not answer within 0.3 s; allow more by SAGEMAKER_TFS_GRPC_REQUEST_TIMEOUT" in answer.error


def test_input_fn_and_output_fn_wrap_the_model(serve: Serve) -> None:
    server = serve("two_inputs", STEPS)
    assert "handlers=input_fn,output_fn" in server.line("handler.loaded")
    answer = server.invoke("2", "text/plain", Accept="text/mine")
    assert (answer.status, answer.body) == (200, b"[14.0] for text/mine")
    assert answer.headers["content-type"] == "text/mine"
    assert server.line("input_fn got") == "input_fn got str text/plain"
    # Each input gets the type that the model declares: floats for one, integers for the other.
    assert server.invoke(b"\xff", "application/x-count").body == b"[0.0, 2.0, 4.0] for application/json"
    failed = server.invoke("", "application/x-fail")
    assert (failed.status, failed.error) == (500, "'unheard of'")
    server.line("entry.py", "in input_fn")


def test_transform_fn_replaces_everything(serve: Serve) -> None:
    server = serve("half_plus", TRANSFORM)
    assert "handlers=transform_fn " in server.line("handler.loaded")
    answer = server.invoke("words", "text/csv", Accept="application/x-mine")
    assert (answer.body, answer.headers["content-type"]) == (b"words text/csv application/x-mine", "application/x-mine")


def test_predict_fn_replaces_the_model(serve: Serve) -> None:
    server = serve("half_plus", PREDICT)
    assert server.invoke("[1, 2, 5]").json == {"sum": 8, "files": ["export"]}
    server.line(f"model_fn {server.model_dir}")


@pytest.mark.parametrize(
    ("script", "environment", "text"),
    [
        ("def predict_fn(data, model): ...", {}, "has predict_fn(data, model) but no model_fn(model_dir)"),
        ("", {"SAGEMAKER_PROGRAM": "other.py"}, "SAGEMAKER_PROGRAM='other.py' names no file of the submitted code"),
        ("", {"SAGEMAKER_PROGRAM": "../model"}, "names no file of the submitted code; it holds: entry.py"),
        ("", {"SAGEMAKER_REQUIREMENTS": "none.txt"}, "SAGEMAKER_REQUIREMENTS='none.txt' names no file"),
        ("", {"SAGEMAKER_TFS_GRPC_REQUEST_TIMEOUT": "soon"}, "='soon' is not a number of seconds above 0"),
        ("", {"SAGEMAKER_TFS_GRPC_REQUEST_TIMEOUT": "0"}, "='0' is not a number of seconds above 0"),
        ("", {"SAGEMAKER_MULTI_MODEL": "true"}, "endpoints of the kind python have one model"),
    ],
)
def test_a_model_that_cannot_be_served_fails_the_start(
    serve: Serve, script: str, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(AssertionError, match="exit status 1") as failure:
        serve("half_plus", script, **environment)
    assert text in json.loads(json.dumps(str(failure.value)))
