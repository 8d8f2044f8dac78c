"""`tidemill serve`: local models in the terminal, without a service, in the environment of endpoints."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidemill.environments.builder import Environments
from tidemill.settings import Settings

MAKE = """
import keras
import tensorflow as tf
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])

def train(x):
    model.weights[0].assign_add(tf.ones((2, 1)))
    return {"rows": tf.shape(x)[:1]}

archive = keras.export.ExportArchive()
archive.track(model)
for name, function in (("serve", model.call), ("train", train)):
    archive.add_endpoint(name, function, input_signature=[tf.TensorSpec([None, 2], tf.float32)])
archive.write_out("saved", verbose=False)
model.save("model.keras")
model.save("model.h5")
with open("adder.tflite", "wb") as file:
    file.write(tf.lite.TFLiteConverter.from_saved_model("saved", signature_keys=["serving_default"]).convert())
"""
INFERENCE = """
import time

def handler(data, context):
    print("handling", flush=True)
    time.sleep(1)
    return b"mine", "text/plain"
"""
ENTRY = """
def output_fn(prediction_result, accepts):
    (output,) = prediction_result.outputs.values()
    return "entry " + str(list(output.float_val))
"""
DEADLINE_S = 300


class Serving:
    """`tidemill serve` as a process, and its output."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = self.until(r'(?:tidemill: serving .* at |{"url": ")([^"\s]+)')

    def until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(pattern, line):
                return found[found.re.groups]
        pytest.fail(f"it ended without {pattern!r}: {''.join(self.lines)}")

    def ask(self, body: str, content_type: str = "application/json", path: str = "/invocations") -> str:
        headers = {"Content-Type": content_type, "Accept": content_type}
        request = urllib.request.Request(self.url + path, data=body.encode(), headers=headers)
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
            return reply.read().decode()

    def interrupt(self) -> int:
        """Send Ctrl-C, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        self.lines += self.process.stdout
        return self.process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model that adds two numbers, in all supported formats; the signature `train` would change its weights."""
    directory = tmp_path_factory.mktemp("models")
    environment = Environments(Settings().environments_dir).ensure("tf-2.21", log=print)
    subprocess.run([environment.python, "-c", MAKE], cwd=directory, check=True, capture_output=True)
    (directory / "inference.py").write_text(INFERENCE)
    (directory / "entry.py").write_text(ENTRY)
    with tarfile.open(directory / "model.tar.gz", "w:gz") as tar:
        tar.add(directory / "saved", "adder/3")
        tar.add(directory / "inference.py", "code/inference.py")
    return directory


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """Return a function that starts `tidemill serve` and waits until it answers."""
    started: list[subprocess.Popen[str]] = []
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    variables |= {
        "TIDEMILL_CONFIG": os.devnull,
        "TIDEMILL_STATE_DIR": str(tmp_path / "state"),
        "TIDEMILL_ENVIRONMENTS_DIR": str(Settings().environments_dir),
        "TMPDIR": str(tmp_path),
    }

    def start(*arguments: str | Path) -> Serving:
        command = [sys.executable, "-m", "tidemill.cli", "serve", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=variables, text=True, **pipes))  # pyrefly: ignore
        return Serving(started[-1])

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_saved_model_is_served_on_the_next_free_port_until_ctrl_c(
    serve: Callable[..., Serving], models: Path, tmp_path: Path
) -> None:
    for _ in range(5):
        with socket.socket() as taken:
            with contextlib.suppress(OSError):  # another process uses the port, which serves the test as well
                taken.bind(("127.0.0.1", 8080))
                taken.listen()
            serving = serve(models / "saved")
        if not serving.url.endswith(":8080"):
            break
        serving.interrupt()  # the other process has let go of the port meanwhile
    assert serving.url.startswith("http://127.0.0.1:80") and not serving.url.endswith(":8080")
    assert serving.lines[0].startswith("tidemill: port 8080 is in use; taking 80")
    assert serving.ask('{"instances": [[1, 2]]}', path="/v1/models/model:predict").split() == [
        *("{", '"predictions":', "[[3.0]", "]", "}")
    ]
    assert serving.interrupt() == 0
    assert serving.lines[-2:] == ["server.draining\n", "server.stopped every_request_answered=true\n"]
    assert not list(tmp_path.glob("tidemill-*")), "it leaves nothing behind"
    assert not (tmp_path / "state").exists(), "it needs no service"


def test_a_request_under_way_at_ctrl_c_is_answered_by_the_archives_own_code(
    serve: Callable[..., Serving], models: Path
) -> None:
    serving = serve(models / "model.tar.gz", "--port", "0", "--env", "SAGEMAKER_GUNICORN_WORKERS=1")
    assert any("model.loaded name=adder version=3" in line for line in serving.lines)
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(serving.ask, "[1, 2]")
        serving.until("handling")
        assert serving.interrupt() == 0
        assert reply.result() == "mine"
    assert "Traceback" not in "".join(serving.lines)
    assert sum("handler.loaded" in line for line in serving.lines) == 1, "the variable reached the server"


@pytest.mark.parametrize("name", ["model.keras", "adder.tflite", pytest.param("model.h5", marks=pytest.mark.matrix)])
def test_a_keras_file_is_exported_and_one_of_tensorflow_lite_served(
    serve: Callable[..., Serving], models: Path, name: str
) -> None:
    serving = serve(models / name, "--port", "0")
    assert "[3.0]" in serving.ask("[1, 2]")
    assert serving.interrupt() == 0


def test_a_script_of_the_python_based_kind_is_served_with_a_model(serve: Callable[..., Serving], models: Path) -> None:
    entry = ("--endpoint-type", "python", "--entry-point", models / "entry.py")
    serving = serve(models / "saved", "--port", "0", *entry, "--json")
    ready = json.loads(serving.lines[-1])
    assert ready == {
        "url": serving.url,
        "path": str(models / "saved"),
        "endpoint_type": "python",
        "models": ["generic_model"],
    }
    assert serving.ask("[[1, 2]]") == "entry [3.0]"
    assert serving.interrupt() == 0


def test_a_model_that_cannot_be_served_is_refused_in_one_line(models: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.keras").write_text("no model")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "saved_model.pb").write_bytes(b"no model")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for arguments, reason in {
            (tmp_path / "nothing",): "nothing: there is no such file or directory; expected a SavedModel",
            (tmp_path / "empty",): "empty is no model: it holds nothing; expected",
            (tmp_path / "text.keras",): "text.keras is no model; expected",
            (models,): f"is no SavedModel, but {models}/saved is: serve that",
            (models / "saved/saved_model.pb",): f"is a part of a SavedModel: serve its directory, {models}/saved",
            (models / "saved", "--port", port): f"port {port} on 127.0.0.1 is in use by pid",
            (models / "saved", "--source-dir", "x"): "source_dir='x' needs entry_point",
            (broken, "--port", "0"): "the model server ended with status 1: server.failed /opt/ml/model/1/saved_model",
        }.items():
            command = [sys.executable, "-m", "tidemill.cli", "serve", *map(str, arguments)]
            variables = {**os.environ, "TIDEMILL_CONFIG": os.devnull, "TIDEMILL_STATE_DIR": str(tmp_path / "state")}
            ended = subprocess.run(
                command, env=variables, capture_output=True, text=True, check=False, timeout=DEADLINE_S
            )
            assert ended.returncode == 1
            assert reason in ended.stderr
            assert len(ended.stderr.splitlines()) == 1, ended.stderr
