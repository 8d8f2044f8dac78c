"""Requests that a configuration asks to record: TFRecords of PredictionLog, with the published messages."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from tidemill_serving.versions import request_log
from tidemill_serving.versions.config import _log_target
from tidemill_serving.versions.request_log import _RecordFiles

DEADLINE_S = 60


def config(base: Path, *logs: str) -> str:
    entry = f'name: "estimator" base_path: "{base}" model_platform: "tensorflow" {" ".join(logs)}'
    return f"model_config_list {{ config {{ {entry} }} }}"


def log_to(prefix: Path, rate: float, *, field: str = "logging_config") -> str:
    collector = f'log_collector_config {{ type: "tfrecord" filename_prefix: "{prefix}" }}'
    return f"{field} {{ {collector} sampling_config {{ sampling_rate: {rate} }} }}"


def records(directory: Path) -> list[Any]:
    return [
        prediction_log_pb2.PredictionLog.FromString(record.numpy())
        for file in sorted(directory.glob("*.tfrecord"))
        for record in tf.data.TFRecordDataset(str(file))
    ]


def put(models: Path, base: Path, version: int, *, warm_up: Path | None = None) -> None:
    hidden = base / f".{version}"
    shutil.copytree(models / "tensorflow_1/7", hidden)
    if warm_up is not None:
        (hidden / "assets.extra").mkdir()
        shutil.copy(warm_up, hidden / "assets.extra/tf_serving_warmup_requests")
    hidden.rename(base / str(version))


def test_recorded_requests_of_every_kind_warm_up_a_later_version(start: Any, models: Path, tmp_path: Path) -> None:
    base, logs, none = tmp_path / "estimator", tmp_path / "logs/all", tmp_path / "none/never"
    base.mkdir()
    put(models, base, 1)
    file = tmp_path / "models.config"
    file.write_text(config(base, log_to(logs, 1), log_to(none, 0, field="logging_configs")))
    polls = ("--model_config_file_poll_wait_seconds=0.05", "--file_system_poll_wait_seconds=0.05")
    server = start(tmp_path, arguments=(f"--model_config_file={file}", *polls, "--grpc-port", "0"))
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(4.0)

    def ask(verb: str, **body: Any) -> Any:
        return server.request("POST", f"/v1/models/estimator:{verb}", body)

    inputs = {"inputs": [{"b64": base64.b64encode(example.SerializeToString()).decode()}]}
    predicted = ask("predict", signature_name="regress", **inputs)
    assert predicted.status == 200
    assert ask("regress", signature_name="regress", examples=[{"x": 1.0}]).json == {"results": [2.5]}
    assert ask("classify", signature_name="classify", examples=[{"x": 1.0}]).status == 200
    assert ask("regress", signature_name="absent", examples=[{"x": 1.0}]).status == 400  # is not recorded
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        predict = predict_pb2.PredictRequest()
        predict.model_spec.name, predict.model_spec.signature_name = "estimator", "regress"
        (alias,) = server.get("/v1/models/estimator/metadata").json["metadata"]["signature_def"]["signature_def"][
            "regress"
        ]["inputs"]
        predict.inputs[alias].CopyFrom(tf.make_tensor_proto([example.SerializeToString()]))
        answers = [stub.Predict(predict, timeout=DEADLINE_S)]
        classify = classification_pb2.ClassificationRequest(model_spec=predict.model_spec)
        classify.model_spec.signature_name = "classify"
        classify.input.example_list.examples.append(example)
        answers.append(stub.Classify(classify, timeout=DEADLINE_S))
        several = inference_pb2.MultiInferenceRequest(input=classify.input)
        task = several.tasks.add(method_name="tensorflow/serving/regress")
        task.model_spec.name, task.model_spec.signature_name = "estimator", "regress"
        answers.append(stub.MultiInference(several, timeout=DEADLINE_S))
    found = records(logs.parent)
    kinds = ["predict", "regress", "classify", "predict", "classify", "multi_inference"]
    assert [each.WhichOneof("log_type") for each in found] == [f"{kind}_log" for kind in kinds]
    assert found[0].predict_log.request.inputs[alias].string_val == [example.SerializeToString()]
    assert tf.make_ndarray(found[0].predict_log.response.outputs["outputs"]).tolist() == predicted.json["outputs"]
    (regressed,) = found[1].regress_log.response.result.regressions
    assert regressed.value == 2.5
    assert found[2].classify_log.request.input.example_list.examples[0].features.feature["x"].float_list.value == [1.0]
    assert [found[3].predict_log.response, found[4].classify_log.response] == answers[:2]
    assert found[5].multi_inference_log.response == answers[2]
    for each in found:
        metadata = each.log_metadata
        assert (metadata.model_spec.name, metadata.model_spec.version.value) == ("estimator", 1)
        assert (metadata.sampling_config.sampling_rate, list(metadata.saved_model_tags)) == (1.0, ["serve"])
    counted = ':tensorflow:serving:request_log_count{model_name="estimator",status_code="OK"} 6'
    assert counted in server.get("/monitoring/prometheus/metrics").body.decode().splitlines()
    assert not list(none.parent.iterdir())
    (recorded,) = logs.parent.iterdir()
    assert recorded.name.startswith("all-estimator-")

    file.write_text(config(base))
    server.line("config.read")
    assert ask("regress", signature_name="regress", examples=[{"x": 1.0}]).status == 200
    assert len(records(logs.parent)) == len(kinds)
    put(models, base, 2, warm_up=recorded)
    assert server.line("model.warmed_up", "version=2", "requests=6")


def test_a_directory_that_cannot_be_written_to_is_refused_at_the_start(
    start: Any, models: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    file = tmp_path / "models.config"
    file.write_text(config(models / "tensorflow_1", log_to(tmp_path / "file/below", 1)))
    failure = _failure_of(lambda: start(tmp_path, arguments=(f"--model_config_file={file}",)))
    assert f"model estimator: filename_prefix '{tmp_path}/file/below': " in failure


def _failure_of(starting: Callable[[], Any]) -> str:
    try:
        starting()
    except AssertionError as error:
        return str(error)
    raise AssertionError("it started")


class FullDisk:
    """A writer whose second write fails."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._writes = 0

    def write(self, record: bytes) -> None:
        self._writes += 1
        if self._writes == 2:
            raise OSError(28, "No space left on device")
        with self._file.open("ab") as file:
            file.write(record)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_no_file_is_written_to_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "requests"
    first, second = (_RecordFiles(target, "half") for _ in range(2))  # as of two recorders in the same second
    for each in (first, second, first):
        each.write(b"record")
    first.close()
    first.write(b"late")
    for each in (first, second):
        each.close()
    found = [record.numpy() for file in sorted(tmp_path.iterdir()) for record in tf.data.TFRecordDataset(str(file))]
    assert sorted(found) == [b"late", b"record", b"record", b"record"]
    assert len(list(tmp_path.iterdir())) == 3

    monkeypatch.setattr(
        request_log.importlib,
        "import_module",
        lambda _name: SimpleNamespace(RecordWriter=lambda name, _: FullDisk(Path(name)), RecordWriterOptions=str),
    )
    full = _RecordFiles(tmp_path / "full", "half")
    full.write(b"1")
    with pytest.raises(OSError, match="No space left"):
        full.write(b"2")
    full.write(b"3")
    assert [file.read_bytes() for file in sorted(tmp_path.glob("full-*"))] == [b"1", b"3"]


def test_a_prefix_that_ends_with_a_slash_is_a_directory(tmp_path: Path) -> None:
    collector = SimpleNamespace(type="tfrecord", filename_prefix=f"{tmp_path}/logs/")
    given = SimpleNamespace(log_collector_config=collector, sampling_config=SimpleNamespace(sampling_rate=1))
    target = _log_target(given, "half")
    _RecordFiles(target.prefix, "half").write(b"record")
    assert [file.parent for file in tmp_path.rglob("*.tfrecord")] == [tmp_path / "logs"]
