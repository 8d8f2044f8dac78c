"""Servers with user code: one script that does what a request says, and archives of the test models."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# The first word of a request selects what the script does.
SCRIPT = """
import json
import os
import signal
import sys
import time

import helper

print("imported by", __name__, flush=True)


def call(context, numbers):
    # By the published classes if they are there; here by the messages that the server uses itself.
    from tidemill_serving.messages.definitions import messages
    import grpc
    request = messages().PredictRequest()
    request.model_spec.name = context.model_name
    tensor = request.inputs["x"]
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=len(numbers))
    tensor.float_val.extend(numbers)
    predict = context.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    try:
        reply = messages().PredictResponse.FromString(predict(request.SerializeToString()))
    except grpc.RpcError as error:
        return json.dumps([error.code().name, error.details()])
    spec = reply.model_spec
    return json.dumps([spec.name, spec.version.value, spec.signature_name, list(reply.outputs["y"].float_val)])


def handler(data, context):
    word, _, rest = data.read().decode().partition(" ")
    if word == "context":
        return json.dumps({**context._asdict(), "channel": type(context.channel).__name__}), context.accept_header
    if word == "grpc":
        return call(context, json.loads(rest)), "application/json"
    if word == "predict":
        import requests
        reply = requests.post(context.rest_uri, data=rest)
        return reply.content, "application/json"
    if word == "print":
        print(rest)
        print("to standard error", file=sys.stderr)
        return "printed", "text/plain"
    if word == "raise":
        helper.fail(rest)
    if word == "exit":
        sys.exit(int(rest))
    if word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "pid":
        return str(os.getpid()), "text/plain"
    if word == "hang":
        open(rest, "w").close()
        while True:
            time.sleep(3600)
    if word == "spin":
        open(rest, "w").close()
        sum(iter(int, 1))
    if word == "wait":
        open(rest + ".begun", "w").close()
        with open(rest) as fifo:
            return fifo.read() or str(os.getpid()), "text/plain"
    if word == "return":
        return eval(rest)
    return b"\\x00\\xff" + word.encode(), "application/octet-stream"
"""
HELPER = """
def fail(text):
    raise ValueError(text)
"""
Archive = Callable[..., Path]


@pytest.fixture(scope="session")
def archive(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Return a function that builds an archive: ``archive("half_plus", {"code/inference.py": "..."})``."""

    def make(model: str, files: dict[str, str]) -> Path:
        directory = tmp_path_factory.mktemp("archive")
        (directory / model).symlink_to(models / model)
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return directory

    return make


@pytest.fixture(scope="session")
def scripted(archive: Archive, server_process: Any) -> Iterator[Any]:
    """Yield one server with two workers of `SCRIPT`."""
    directory = archive("half_plus", {"code/inference.py": SCRIPT, "code/lib/helper.py": HELPER})
    running = server_process(directory, environment={"SAGEMAKER_GUNICORN_WORKERS": "2"}).start()
    yield running
    assert running.terminate() == 0, running.log
