"""The Python-based kind of endpoint: scripts with ``input_fn`` and similar functions, and the defaults."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
    for running in started:
        if running.process.poll() is None:
            assert running.terminate() == 0, running.log
        running.process.stdout.close()


@pytest.fixture(scope="module")
def plain(serve: Serve) -> Server:
    return serve("half_plus")


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


def test_messages_go_in_and_out_as_bytes(plain: Server) -> None:
    script = """
import base64, sys
from tidemill_serving.messages.definitions import messages
from tidemill_serving.messages.tensors import array_of, tensor_of
import numpy as np
if sys.argv[1] == "request":
    request = messages().PredictRequest()
    request.model_spec.name = "what the client calls it"
    request.inputs["x"].CopyFrom(tensor_of(np.float32([1, 2, 5]), "float"))
    print(base64.b64encode(request.SerializeToString()).decode())
else:
    response = messages().PredictResponse.FromString(base64.b64decode(sys.argv[2]))
    print(array_of(response.outputs["y"]).tolist(), response.model_spec.version.value)
"""

    def run(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    request = base64.b64decode(run("request"))
    answer = plain.invoke(request, "application/octet-stream", Accept="application/octet-stream")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream")
    assert run("response", base64.b64encode(answer.body).decode()) == "[3.5, 4.0, 5.5] 124"


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
        ("\x08", "application/octet-stream", "*/*", 400, "the body is no PredictRequest"),
    ],
)
def test_a_bad_request_gets_an_error_with_the_reason(
    plain: Server, body: str, content_type: str, accept: str, status: int, text: str
) -> None:
    answer = plain.invoke(body, content_type, Accept=accept)
    assert answer.status == status, answer.body
    assert text in answer.error


def test_a_model_that_classifies_gets_examples(serve: Serve) -> None:
    server = serve("classifier")

    def classes(body: str) -> Any:
        return [each["classes"] for each in server.invoke(body).json["result"]["classifications"]]

    one = [{"label": "first", "score": 0.25}, {"label": "second", "score": 0.5}]
    assert classes("[0.25, 0.5]") == [one]
    assert classes('{"inputs": [0.25, 0.5]}') == [one]
    assert classes('[{"inputs": [0.25, 0.5]}, {"inputs": [0.5, 1.5]}]')[0] == one
    mixed = server.invoke('{"inputs": [0.5, "a"]}')
    assert (mixed.status, "of different kinds" in mixed.error) == (400, True)


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
        ("", {"SAGEMAKER_MULTI_MODEL": "true"}, "endpoints of the kind python have one model"),
    ],
)
def test_a_model_that_cannot_be_served_fails_the_start(
    serve: Serve, script: str, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(AssertionError, match="exit status 1") as failure:
        serve("half_plus", script, **environment)
    assert text in json.loads(json.dumps(str(failure.value)))
