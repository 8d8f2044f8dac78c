"""TensorFlow Lite models, by the interpreter in TensorFlow's wheel: no more of TensorFlow is imported."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tidemill_serving.engine import Engine, Formats, LoadedModel, open_engine
from tidemill_serving.engine.tflite_trial import create_interpreter
from tidemill_serving.errors import Code, RequestError, StartFailed

Server = Any  # a ServerProcess of conftest.py


@pytest.fixture(scope="module")
def engine() -> Engine:
    return open_engine("c_api", formats=Formats(prefer_tflite=True, tflite_interpreters=3))


def run(model: LoadedModel, *feeds: Any, signature: str = "serving_default") -> list[np.ndarray]:
    return model.run(model.signatures[signature], [np.asarray(feed) for feed in feeds], pooled=False)


def test_signatures_of_the_flatbuffer_are_served_by_rest(server: Server) -> None:
    several = server.predict("lite", {"instances": [[1, 2], [-3, 1]]}).json
    assert several == {"predictions": [{"y": [5.0], "positive": True}, {"y": [-1.0], "positive": False}]}
    one = server.predict("lite", {"instances": [[3, 4]]}).json
    assert one == {"predictions": [{"y": [11.0], "positive": True}]}
    text = {"signature_name": "text", "inputs": {"s": ["ebb", "flow é"], "n": 2**40}}
    assert server.predict("lite", text).json == {"outputs": {"s": ["ebb", "flow é"], "n": 2**40 + 1}}
    refused = server.predict("lite", {"instances": [[1, 2, 3]]})
    assert refused.status == 400
    assert "[-1,2] but got: [1,3] for input x" in refused.error
    definitions = server.get("/v1/models/lite/metadata").json["metadata"]["signature_def"]["signature_def"]
    assert sorted(definitions) == ["count", "products", "serving_default", "text"]
    assert definitions["serving_default"]["inputs"]["x"]["dtype"] == "DT_FLOAT"


def test_loading_runs_nothing_and_all_requests_share_a_variable(server: Server) -> None:
    counts = [server.predict("lite", {"signature_name": "count", "inputs": 2}).json["outputs"] for _ in range(3)]
    assert counts == [2.0, 4.0, 6.0]
    products = {"signature_name": "products", "inputs": {"a": [1, 2], "b": [3, 4]}}
    assert server.predict("lite", products).json["outputs"] == 17.0
    for _ in range(2):
        wrong = {"signature_name": "products", "inputs": {"a": [1, 2], "b": [3, 4, 5]}}
        assert server.predict("lite", wrong).status == 400
    assert server.predict("lite", products).json["outputs"] == 28.0  # a failed run does not reset the variable


def test_a_network_of_8_bit_integers_answers_as_tensorflows_interpreter(server: Server, models: Path) -> None:
    expected = np.load(models / "lite_quantized.npz")
    answer = server.predict("lite_quantized", {"instances": expected["rows"].tolist()})
    np.testing.assert_array_equal(answer.json["predictions"], expected["answers"])


def test_a_request_leaves_nothing_in_the_state_of_an_lstm(engine: Engine, models: Path) -> None:
    with np.load(models / "lite_sequences.npz") as archive:
        expected = dict(archive)
    model = engine.load(models / "lite_sequences/1")
    (signature,) = model.signatures
    for index in (0, 1, 2, 0, 1):
        (answer,) = run(model, expected["rows"][index : index + 1], signature=signature)
        np.testing.assert_allclose(answer[0], expected["answers"][index], rtol=1e-5, atol=1e-6)
    with pytest.raises(RequestError, match="failed to prepare") as refused:
        run(model, expected["rows"], signature=signature)  # the model fixes its batch to one row
    assert refused.value.code is Code.INVALID_ARGUMENT
    (answer,) = run(model, expected["rows"][:1], signature=signature)
    np.testing.assert_allclose(answer[0], expected["answers"][0], rtol=1e-5, atol=1e-6)


def test_requests_of_many_sizes_run_at_the_same_time(engine: Engine, models: Path) -> None:
    model = engine.load(models / "lite_both/1")

    def ask(size: int) -> None:
        rows = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(run(model, rows)[0], 3.0 * rows)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, [0, 1, 7, 32, 1000] * 40))


def test_wrong_input_is_refused_and_the_next_request_answered(engine: Engine, models: Path) -> None:
    model = engine.load(models / "lite/1")
    for _ in range(5):  # more often than there are interpreters
        for wrong in (np.zeros((2, 3), np.float32), np.zeros(2, np.float32), np.zeros((1, 2, 1), np.float32)):
            with pytest.raises(RequestError, match=r"fixes the sizes of x: \[-1, 2\]"):
                run(model, wrong)
        with pytest.raises(RequestError):
            run(model, np.zeros((1, 2), np.int64))
    assert run(model, np.array([[1, 2]], np.float32))[1].tolist() == [[5.0]]
    assert [each.shape for each in run(model, np.zeros((0, 2), np.float32))] == [(0,), (0, 1)]


def test_a_model_that_the_interpreter_cannot_run_is_refused_with_the_reason(
    engine: Engine, models: Path, tmp_path: Path
) -> None:
    for name, reason in {
        "select": r"operations that the interpreter lacks \(FlexStringJoin\); convert",
        "custom": r"operations that the interpreter lacks \(TideStringJoin\); convert",
        "damaged": "not a valid Flatbuffer",
        "crashing": r"model.tflite is damaged: TensorFlow Lite crashes \(SIGSEGV\)",
        "unreadable": "model.tflite is damaged: its signatures cannot be read: 'utf-8' codec",
    }.items():
        shutil.copy(models / f"{name}.tflite", tmp_path / "model.tflite")
        with pytest.raises(StartFailed, match=reason):
            engine.load(tmp_path)


def test_a_model_that_crashes_when_it_runs_costs_its_own_requests_only(
    models: Path, start: Any, tmp_path: Path
) -> None:
    (tmp_path / "crashing/1").mkdir(parents=True)
    shutil.copy(models / "crashing_in_run.tflite", tmp_path / "crashing/1/model.tflite")
    shutil.copytree(models / "half_plus/123", tmp_path / "half/1")
    server = start(tmp_path, arguments=("--grpc-port", "0"))
    for _ in range(2):  # the second answer needs no process
        answer = server.predict("crashing", {"instances": [[[1.0]]]})
        crash = "the model is damaged: TensorFlow Lite crashes (SIGSEGV) when it runs"
        assert (answer.status, answer.error) == (500, crash)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "crashing"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones((1, 1, 1), np.float32)))
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel, pytest.raises(grpc.RpcError) as failure:
        prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)
    assert (failure.value.code(), failure.value.details()) == (grpc.StatusCode.INTERNAL, crash)  # type: ignore[attr-defined]
    assert server.predict("half", {"instances": [2.0]}).json == {"predictions": [3.0]}
    assert server.terminate() == 0


class Processes:
    """Counts the processes that try runs, and starts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._run = 0, subprocess.run
        monkeypatch.setattr("tidemill_serving.engine.tflite_trial.subprocess.run", self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.count += 1
        return self._run(*arguments, **options)


def test_runs_are_tried_until_one_of_their_kind_succeeds(
    engine: Engine, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = Processes(monkeypatch)
    model = engine.load(models / "lite/1")
    assert processes.count == 1  # plans
    numbers = np.ones(2, np.float32), np.ones(3, np.float32)
    for tried in (2, 3):
        with pytest.raises(RequestError, match="failed to prepare"):
            run(model, *numbers, signature="products")
        assert processes.count == tried
    for _ in range(2):
        run(model, np.ones((1, 2), np.float32))
        assert processes.count == 4
    with ThreadPoolExecutor(4) as threads:  # many first requests at once
        list(threads.map(lambda _: run(model, np.zeros((0, 2), np.float32)), range(8)))
    assert processes.count == 5


def test_a_model_without_names_of_tensors_has_numbers_for_them(engine: Engine, models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "unnamed.tflite", tmp_path / "model.tflite")
    model = engine.load(tmp_path)
    signature = model.signatures["serving_default"]
    assert [*signature.inputs, *signature.outputs] == ["tensor_0", "tensor_2"]
    assert run(model, np.ones((1, 2, 3), np.float32))[0].tolist() == [[3.0, 3.0]]


@pytest.mark.parametrize("count", [8, 6, 5])
def test_interpreters_are_made_as_each_version_of_tensorflow_makes_them(count: int) -> None:
    class Library:
        threads = 0

        def CreateWrapperFromBuffer(self, *arguments: Any) -> Any:
            if len(arguments) != count:
                raise TypeError(f"incompatible function arguments: {len(arguments)}")
            return self

        def SetNumThreads(self, threads: int) -> None:
            self.threads = threads

    assert create_interpreter(Library(), b"", threads=3).threads == 3


class Gate(np.ndarray):
    """An input whose run waits: its shape is read before the run, and again by it."""

    reached, opened = threading.Event(), threading.Event()
    reads = 0

    @property
    def shape(self) -> tuple[int, ...]:
        self.reads += 1
        if self.reads == 2:
            self.reached.set()
            assert self.opened.wait(60)
        return np.asarray(self).shape


def test_the_event_loop_does_not_wait_for_the_runs_of_threads(models: Path) -> None:
    model = open_engine("c_api", formats=Formats(prefer_tflite=True, tflite_interpreters=1)).load(
        models / "lite_both/1"
    )
    (signature,) = model.signatures.values()
    run(model, np.ones(1, np.float32), signature=signature.key)
    slow = np.ones(3, np.float32).view(Gate)

    async def ask() -> list[np.ndarray]:
        return model.run(signature, [np.ones(1, np.float32)], pooled=False)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(model.run, signature, [slow], pooled=False)
        assert slow.reached.wait(60)
        assert asyncio.run(ask())[0].tolist() == [3.0]
        assert not running.done()
        slow.opened.set()
        assert running.result(60)[0].tolist() == [3.0, 3.0, 3.0]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_memory_of_a_large_request_is_freed_by_the_next_small_one(engine: Engine, models: Path) -> None:
    model = engine.load(models / "lite_sum/1")
    small = np.ones((1, 1, 1), np.float32)
    run(model, small)
    before = resident_bytes()
    run(model, np.ones((64, 1024, 1024), np.float32))
    assert resident_bytes() - before > 2**27
    run(model, small)
    assert resident_bytes() - before < 2**27


def test_the_option_decides_between_two_models_of_a_version(models: Path, server: Server, start: Any) -> None:
    assert server.predict("lite_both", {"instances": [1]}).json == {"predictions": [2.0]}
    options = ("--prefer_tflite_model=true", "--num_tflite_interpreters_per_pool", "1", "--num_tflite_pools", "2")
    preferring = start(models / "lite_both", arguments=options)
    unnamed = preferring.predict("model", {"instances": [1]})
    assert (unnamed.status, "Serving signature name" in unnamed.error) == (400, True)
    named = {"signature_name": "triple", "inputs": {"number": [1.0, 2.0]}}  # in the metadata of TF Serving's tools
    assert preferring.predict("model", named).json == {"outputs": [3.0, 6.0]}
    of_names = preferring.request("POST", "/v1/models/model/versions/1:predict", {"instances": [{"x": 1}]})
    assert of_names.json == {"predictions": [3.0]}
    assert preferring.terminate() == 0


def test_a_server_of_tensorflow_lite_models_imports_nothing_else_of_tensorflow(models: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tidemill_serving.engine import open_engine;"
        "open_engine().load(Path(sys.argv[1]));"
        "print([name for name in sys.modules if name.startswith('tensorflow.python')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(models / "lite/1")], capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "[]"
