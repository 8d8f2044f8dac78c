"""Other model servers for the benchmarks of serving: each in a separate environment, set up as its documentation says.

Each serves the signature ``serving_default`` of a SavedModel that `tf.saved_model.load` has loaded. What their services
share, the conversion of instances to tensors, is `INPUTS`. ``make serving-peers`` makes the environments from
requirements/serving-*.txt.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PEERS", "Peer", "Started", "end", "start_peer", "tree"]

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".venvs"
START_S = 240
FORM_TYPE = "multipart/form-data; boundary=edge"


@dataclass(frozen=True)
class Peer:
    """A server.

    Attributes:
        name: The server's environment is ``serving-NAME``.
        service: The Python file of the service. ``MODEL`` is replaced by the model's directory, ``PORT`` by the port.
        command: A program of the environment's ``bin`` and its arguments, which may have ``PORT``.
        npy_target: Path of the URL for files of NumPy.
        npy_field: Field of a form in which the server takes the file; None if it takes any body.
    """

    name: str
    service: str
    command: tuple[str, ...]
    npy_target: str
    npy_field: str | None = None

    @property
    def programs(self) -> Path:
        """The directory of the environment's programs."""
        return ENVIRONMENTS / f"serving-{self.name}" / "bin"

    def json_request(self, instances: Sequence[Any]) -> tuple[str, bytes, str]:
        """Return the target, the body and its content type of a prediction."""
        return "/predict", json.dumps({"instances": instances}).encode(), "application/json"

    def npy_request(self, array: bytes) -> tuple[str, bytes, str]:
        """Return the same for a file of NumPy with the only input."""
        if self.npy_field is None:
            return self.npy_target, array, "application/x-npy"
        head = f'--edge\r\nContent-Disposition: form-data; name="{self.npy_field}"; filename="rows.npy"\r\n\r\n'
        return self.npy_target, head.encode() + array + b"\r\n--edge--\r\n", FORM_TYPE


@dataclass(frozen=True)
class Started:
    """A server that answers.

    Attributes:
        pid: Its first process.
        port: Its port on 127.0.0.1.
    """

    pid: int
    port: int


INPUTS = """
import base64
import numpy as np, tensorflow as tf
model = tf.saved_model.load("MODEL")
run = model.signatures["serving_default"]
specs = run.structured_input_signature[1]
(first, *others) = specs
def to_array(value, spec):
    if isinstance(value, dict):
        return np.array(base64.b64decode(value["b64"]), object)
    return np.asarray(value, spec.dtype.as_numpy_dtype)
def to_row(instance):
    values = instance if others else {first: instance}
    return {name: to_array(values[name], spec) for name, spec in specs.items()}
def to_batch(arrays):
    if len({array.shape for array in arrays}) > 1:
        longest = max(len(array) for array in arrays)
        arrays = [np.pad(array, (0, longest - len(array))) for array in arrays]
    return np.stack(arrays)
def predict(rows):
    feeds = {name: tf.constant(to_batch([row[name] for row in rows]), specs[name].dtype) for name in specs}
    return run(**feeds)["y"].numpy()
"""
FASTAPI = """
import io
import numpy as np
from fastapi import FastAPI, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
import inputs
app = FastAPI()
class Rows(BaseModel):
    instances: list
@app.post("/predict")
def predict(rows: Rows) -> dict:
    return {"predictions": inputs.predict([inputs.to_row(each) for each in rows.instances]).tolist()}
@app.post("/predict_npy")
async def predict_npy(request: Request) -> dict:
    rows = [{inputs.first: row} for row in np.load(io.BytesIO(await request.body()))]
    return {"predictions": (await run_in_threadpool(inputs.predict, rows)).tolist()}
"""
LITSERVE = """
import io
import litserve, numpy as np
class Predictions(litserve.LitAPI):
    def setup(self, device):
        import inputs
        self.inputs = inputs
    def decode_request(self, request):
        if "file" in request:
            (row,) = np.load(io.BytesIO(request["file"].file.read()))
            return {self.inputs.first: row}
        (instance,) = request["instances"]
        return self.inputs.to_row(instance)
    def batch(self, rows):
        return rows
    def predict(self, rows):
        return self.inputs.predict(rows)
    def unbatch(self, output):
        return list(output)
    def encode_response(self, output):
        return {"predictions": [output.tolist()]}
if __name__ == "__main__":
    api = Predictions(max_batch_size=8, batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(host="127.0.0.1", port=PORT, generate_client_file=False, log_level="warning")
"""
BENTOML = """
from pathlib import Path
import bentoml
@bentoml.service(workers=1)
class Predictions:
    def __init__(self):
        import inputs
        self.inputs = inputs
    @bentoml.api(batchable=True, max_batch_size=32)
    def predict(self, instances: list) -> list:
        return self.inputs.predict([self.inputs.to_row(each) for each in instances]).tolist()
    @bentoml.api(batchable=True, max_batch_size=32)
    def predict_npy(self, files: list[Path]) -> list:
        rows = [{self.inputs.first: row} for file in files for row in self.inputs.np.load(file)]
        return self.inputs.predict(rows).tolist()
"""
UVICORN = ("uvicorn", "service:app", "--port", "PORT", "--no-access-log", "--log-level", "warning")
BENTOML_SERVE = ("bentoml", "serve", "service:Predictions", "--host", "127.0.0.1", "--port", "PORT")
PEERS = {
    "fastapi": Peer("fastapi", FASTAPI, UVICORN, "/predict_npy"),
    "litserve": Peer("litserve", LITSERVE, ("python", "service.py"), "/predict", "file"),
    "bentoml": Peer("bentoml", BENTOML, BENTOML_SERVE, "/predict_npy", "files"),
}
"""The servers by name."""


def start_peer(peer: Peer, model: Path, instances: Sequence[Any], ends: contextlib.ExitStack) -> Started:
    """Start a server on a free port, and wait for its first answer.

    Args:
        peer: The server.
        model: Directory of the SavedModel.
        instances: Of the request to which the server answers when it is ready.
        ends: Ends the server.
    """
    directory = Path(ends.enter_context(tempfile.TemporaryDirectory()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name, text in (("inputs.py", INPUTS), ("service.py", peer.service)):
        (directory / name).write_text(text.replace("MODEL", str(model)).replace("PORT", str(port)))
    command = [str(peer.programs / peer.command[0]), *(word.replace("PORT", str(port)) for word in peer.command[1:])]
    quiet = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PATH": f"{peer.programs}:{os.environ['PATH']}",
        "BENTOML_HOME": str(directory),
        "BENTOML_DO_NOT_TRACK": "1",
    }
    log = ends.enter_context((directory / "log").open("w+"))
    process = subprocess.Popen(command, cwd=directory, env=quiet, text=True, stdout=log, stderr=log)
    ends.callback(end, process)
    deadline_s = time.monotonic() + START_S
    target, body, content_type = peer.json_request(instances)
    while True:
        ended = process.poll() is not None or time.monotonic() > deadline_s
        assert not ended, f"{peer.name} does not answer:\n{(directory / 'log').read_text()[-3000:]}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("POST", target, body, {"Content-Type": content_type})
            if connection.getresponse().status == http.HTTPStatus.OK:
                return Started(process.pid, port)
        time.sleep(0.5)


def end(process: subprocess.Popen[str]) -> None:
    """End a server and its child processes."""
    started = tree(process.pid)
    process.terminate()
    process.wait()
    for pid in started[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def tree(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                found += tree(int(child))
    return found
