"""Models of a configuration: versions are added and removed while they are served."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

from polling import poll
from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.options import read_options

Server = Any  # a ServerProcess of conftest.py
DEADLINE_S = 60
SWAPS = 12
CLIENTS = 4
OFTEN = ("--file_system_poll_wait_seconds=0.05", "--model_config_file_poll_wait_seconds=0.05")
ONCE = ("--max_num_load_retries=0",)


def put(models: Path, directory: Path, version: int, *, source: str = "half_plus/123") -> None:
    """Put a version in place atomically, as a careful publisher does."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = directory / f".{version}"
    shutil.copytree(models / source, hidden)
    hidden.rename(directory / str(version))


def config_text(*models: tuple[str, Path, str]) -> str:
    entries = (
        f'config {{ name: "{name}" base_path: "{path}" model_platform: "tensorflow" {more} }}'
        for name, path, more in models
    )
    return "model_config_list {\n" + "\n".join(entries) + "\n}\n"


def states(server: Server, name: str) -> dict[int, str]:
    answer = server.get(f"/v1/models/{name}")
    assert answer.status == 200, answer.body
    return {int(each["version"]): each["state"] for each in answer.json["model_version_status"]}


@pytest.fixture
def managed(start: Any, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts a server with a configuration file of the given text."""

    def start_managed(text: str, *arguments: str) -> Server:
        (tmp_path / "models.config").write_text(text)
        file = f"--model_config_file={tmp_path / 'models.config'}"
        return start(tmp_path / "no-archive", arguments=(file, *OFTEN, *ONCE, "--grpc-port", "0", *arguments))

    yield start_managed


def test_policies_labels_and_several_models(managed: Any, models: Path, tmp_path: Path) -> None:
    base = tmp_path / "half"
    for version in (1, 2, 3):
        put(models, base, version)
    text = config_text(
        ("latest", base, ""),
        ("two", base, "model_version_policy { latest { num_versions: 2 } }"),
        ("every", base, 'model_version_policy { all {} } version_labels { key: "stable" value: 2 }'),
        ("some", base, "model_version_policy { specific { versions: 1 versions: 3 versions: 9 } }"),
    )
    server = managed(text)
    listed = {name: sorted(states(server, name)) for name in ("latest", "two", "every", "some")}
    assert listed == {"latest": [3], "two": [2, 3], "every": [1, 2, 3], "some": [1, 3]}
    body = {"instances": [2.0]}
    labeled = server.request("POST", "/v1/models/every/labels/stable:predict", body)
    assert (labeled.json, labeled.headers["x-tidemill-model-version"]) == ({"predictions": [3.0]}, "2")
    assert [each["version"] for each in server.get("/v1/models/every/labels/stable").json["model_version_status"]] == [
        "2"
    ]
    assert server.get("/v1/models/every/labels/stable/metadata").json["model_spec"]["version"] == "2"
    unknown = server.request("POST", "/v1/models/every/labels/canary:predict", body)
    assert (unknown.status, unknown.error) == (400, "Unrecognized servable version label: canary")
    absent = server.request("POST", "/v1/models/some/versions/2:predict", body)
    assert (absent.status, absent.error) == (404, "Servable not found for request: Specific(some, 2)")
    assert server.get("/ping").status == 200
    assert server.invoke('{"instances": [2.0]}').json == {"predictions": [3.0]}  # the first model is the default


def test_a_new_version_replaces_the_old_one_and_a_broken_one_does_not(
    managed: Any, models: Path, tmp_path: Path
) -> None:
    base = tmp_path / "half"
    put(models, base, 1)
    server = managed(config_text(("half", base, "")))
    (base / "2").mkdir()
    (base / "2" / "saved_model.pb").write_bytes(b"\xff not a model")
    poll(lambda: states(server, "half") == {2: "END", 1: "AVAILABLE"})
    failed = server.get("/v1/models/half/versions/2").json["model_version_status"][0]["status"]
    assert failed["error_code"] == "UNKNOWN"
    assert "is not a SavedModel" in failed["error_message"]
    assert server.predict("half", {"instances": [2.0]}).json == {"predictions": [3.0]}
    put(models, base, 3, source="half_plus/00000124")
    poll(lambda: states(server, "half").get(1) == "END")
    assert states(server, "half")[3] == "AVAILABLE"
    assert server.predict("half", {"instances": [2.0]}).json == {"predictions": [4.0]}
    (tmp_path / "4").mkdir()
    shutil.copy(models / "crashing.tflite", tmp_path / "4" / "model.tflite")
    (tmp_path / "4").rename(base / "4")
    poll(lambda: states(server, "half").get(4) == "END")
    crashed = server.get("/v1/models/half/versions/4").json["model_version_status"][0]["status"]
    assert "TensorFlow Lite crashes (SIGSEGV)" in crashed["error_message"]
    assert server.predict("half", {"instances": [2.0]}).json == {"predictions": [4.0]}
    shutil.rmtree(base / "4")
    shutil.rmtree(base / "3")  # back to the previous version, since the broken one is not retried
    shutil.rmtree(base / "2")
    poll(lambda: server.predict("half", {"instances": [2.0]}).json == {"predictions": [3.0]})
    shutil.rmtree(base / "1")
    poll(lambda: server.predict("half", {"instances": [2.0]}).status == 404)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=DEADLINE_S)
    assert health == b"\x08\x02"  # NOT_SERVING


def swap_under_load(server: Server, models: Path, base: Path, *, swaps: int) -> dict[int, int]:
    """Swap versions while clients send requests; return the number of answers by status."""
    stop = threading.Event()
    body = json.dumps({"instances": [2.0]})

    def ask() -> dict[int, int]:
        counts: dict[int, int] = {}
        with closing(server.connect()) as connection:
            while not stop.is_set():
                connection.request("POST", "/v1/models/half:predict", body)
                reply = connection.getresponse()
                reply.read()
                counts[reply.status] = counts.get(reply.status, 0) + 1
        return counts

    def predict_by_grpc() -> dict[int, int]:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "half"
        request.inputs["x"].CopyFrom(tensor_pb2.TensorProto(dtype=1, float_val=[2.0]))
        request.inputs["x"].tensor_shape.dim.add(size=1)
        asked = 0
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            while not stop.is_set():
                stub.Predict(request, timeout=DEADLINE_S)  # raises if there is no answer
                asked += 1
        return {200: asked}

    with ThreadPoolExecutor(CLIENTS) as pool:
        running = [pool.submit(ask) for _ in range(CLIENTS - 1)] + [pool.submit(predict_by_grpc)]
        try:
            for version in range(2, swaps + 2):
                put(models, base, version)
                poll(lambda version=version: states(server, "half").get(version) == "AVAILABLE")
                shutil.rmtree(base / str(version - 1))
        finally:
            stop.set()
        total: dict[int, int] = {}
        for each in running:
            for status, count in each.result(DEADLINE_S).items():
                total[status] = total.get(status, 0) + count
    return total


def test_no_request_fails_while_versions_are_swapped(managed: Any, models: Path, tmp_path: Path) -> None:
    base = tmp_path / "half"
    put(models, base, 1)
    server = managed(config_text(("half", base, "")))
    answered = swap_under_load(server, models, base, swaps=SWAPS)
    assert set(answered) == {200}
    assert server.terminate() == 0


@pytest.mark.matrix
def test_no_request_fails_over_200_swaps(managed: Any, models: Path, tmp_path: Path) -> None:
    base = tmp_path / "half"
    put(models, base, 1)
    server = managed(config_text(("half", base, "")))
    assert set(swap_under_load(server, models, base, swaps=200)) == {200}
    poll(lambda: list(states(server, "half").values()).count("AVAILABLE") == 1)
    assert len(states(server, "half")) < 15  # versions that ended long ago are forgotten


def reload(server: Server, text: str) -> None:
    from google.protobuf import text_format

    request = model_management_pb2.ReloadConfigRequest()
    text_format.Parse(text, request.config)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        answer = model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=DEADLINE_S)
    assert answer.status.error_code == 0


def test_a_configuration_is_replaced_by_its_file_and_by_request(managed: Any, models: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    put(models, first, 1)
    put(models, second, 5, source="half_plus/00000124")
    server = managed(config_text(("first", first, "")))
    both = config_text(("first", first, 'version_labels { key: "stable" value: 1 }'), ("second", second, ""))
    reload(server, both)  # the file is unchanged: it is read only when it changes
    assert server.predict("second", {"instances": [2.0]}).json == {"predictions": [4.0]}
    assert server.request("POST", "/v1/models/first/labels/stable:predict", {"instances": [2.0]}).status == 200
    for text, code, words in (
        ("", "INVALID_ARGUMENT", "Expected a ModelServerConfig with model_config_list"),
        (config_text(("m", Path("relative"), "")), "INVALID_ARGUMENT", "to have an absolute path or URI"),
        (config_text(("m", first, ""), ("m", first, "")), "INVALID_ARGUMENT", "Illegal to list model m multiple times"),
        (config_text(("m", tmp_path / "none", "")), "NOT_FOUND", "Could not find base path"),
        (
            config_text(("first", first, 'version_labels { key: "l" value: 9 }')),
            "FAILED_PRECONDITION",
            "Request to assign label to version 9 of model first, which is not currently available for inference",
        ),
    ):
        with pytest.raises(grpc.RpcError) as failure:
            reload(server, text)
        assert (failure.value.code().name, words in failure.value.details()) == (code, True), failure.value.details()
    (tmp_path / "models.config").write_text(config_text(("second", second, "")))
    poll(lambda: server.predict("second", {"instances": [2.0]}).status == 200)
    assert server.get("/v1/models/first").status == 404
    (tmp_path / "models.config").write_text("model_config_list { nonsense: 1 }")
    assert "nonsense" in server.line("config.refused")
    assert server.predict("second", {"instances": [2.0]}).status == 200


def test_an_archive_is_not_replaced_by_a_configuration(server: Server, tmp_path: Path) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        reload(server, config_text(("m", tmp_path, "")))
    assert failure.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model_config_list {", "Error parsing text-format tensorflow.serving.ModelServerConfig: "),
        (config_text(("m", Path("/nowhere"), "")), "1 servable(s) did not become available: {m: Could not find base"),
        (
            config_text(("m", Path("/nowhere"), 'logging_config { log_collector_config { type: "kafka" } }')),
            "log_collector_config has the type 'kafka'; requests can be recorded as 'tfrecord' only",
        ),
        (
            config_text(("m", Path("/nowhere"), 'logging_config { log_collector_config { type: "tfrecord" } }')),
            "filename_prefix '' is no absolute path of this machine",
        ),
        (config_text(("a/b", Path("/nowhere"), "")), "expected one without / and :"),
    ],
)
def test_a_configuration_that_cannot_be_followed_fails_the_start(managed: Any, text: str, words: str) -> None:
    with pytest.raises(AssertionError, match="exit status 1") as failure:
        managed(text)
    assert words in str(failure.value)


def write_records(file: Path, records: list[bytes]) -> None:
    import tensorflow as tf

    file.parent.mkdir()
    with tf.io.TFRecordWriter(str(file)) as writer:
        for record in records:
            writer.write(record)


def warmup_log(values: list[float]) -> bytes:
    tensor = tensor_pb2.TensorProto(dtype=1, float_val=values)
    tensor.tensor_shape.dim.add(size=len(values))
    return warmup_record("x", tensor)


def warmup_record(name: str, tensor: tensor_pb2.TensorProto) -> bytes:
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.name = "as it was called elsewhere"
    log.predict_log.request.inputs[name].CopyFrom(tensor)
    return log.SerializeToString()


def test_a_version_is_warmed_up_with_its_recorded_requests(managed: Any, models: Path, tmp_path: Path) -> None:
    base = tmp_path / "checked"
    file = Path("assets.extra/tf_serving_warmup_requests")
    put(models, base, 1, source="checked/1")
    server = managed(config_text(("checked", base, "")))
    for version, records, words in (
        (2, [warmup_log([1.0]), warmup_log([-1.0])], "the warm-up request 1 failed: "),
        (3, [warmup_log([1.0])] * 1001, "Number of warmup records exceeds the maximum (1000)"),
        (4, [b"\xff"], "the warm-up request 0 failed: the bytes are no PredictionLog"),
        (5, [prediction_log_pb2.PredictionLog().SerializeToString()], "expected one of predict_log"),
    ):
        shutil.copytree(models / "checked" / "1", base / f".{version}")
        write_records(base / f".{version}" / file, records)
        (base / f".{version}").rename(base / str(version))
        poll(lambda version=version: states(server, "checked").get(version) == "END")
        status = server.get(f"/v1/models/checked/versions/{version}").json["model_version_status"][0]["status"]
        assert words in status["error_message"]
        assert states(server, "checked")[1] == "AVAILABLE"
    shutil.copytree(models / "checked" / "1", base / ".6")
    write_records(base / ".6" / file, [warmup_log([1.0, 4.0])] * 3)
    (base / ".6").rename(base / "6")
    poll(lambda: states(server, "checked").get(6) == "AVAILABLE")
    assert server.line("model.warmed_up", "version=6", "requests=3")


def test_models_that_are_not_loaded_in_time_fail_the_start(start: Any, models: Path, tmp_path: Path) -> None:
    version = tmp_path / "spin" / "1"
    shutil.copytree(models / "spin" / "1", version)
    turns = tensor_pb2.TensorProto(dtype=3, int_val=[1_000_000])
    write_records(version / "assets.extra/tf_serving_warmup_requests", [warmup_record("turns", turns)])
    with pytest.raises(AssertionError, match="exit status 1") as failure:
        start(tmp_path, environment={"SAGEMAKER_TFS_WAIT_TIME_SECONDS": "1"})
    assert "the models were not loaded within 1 s: allow more by SAGEMAKER_TFS_WAIT_TIME" in str(failure.value)


def test_batching_parameters_come_from_a_file_for_all_models_or_from_each_version(
    start: Any, models: Path, tmp_path: Path
) -> None:
    (tmp_path / "common.pbtxt").write_text("max_batch_size { value: 2 }")
    archive = tmp_path / "archive"
    shutil.copytree(models / "half_plus" / "123", archive / "own" / "1")
    (archive / "plain").symlink_to(models / "half_plus")
    (archive / "own" / "1" / "batching_params.pbtxt").write_text("max_batch_size { value: 4 }")
    common = ("--enable_batching=true", f"--batching_parameters_file={tmp_path / 'common.pbtxt'}")
    for arguments, most in (
        (common, {"own": 2, "plain": 2}),
        ((*common, "--enable_per_model_batching_parameters"), {"own": 4, "plain": 9}),
    ):
        server = start(archive, arguments=arguments)
        for name, rows in most.items():
            assert server.predict(name, {"instances": [1.0] * rows}).status == 200
        refused = server.predict("own", {"instances": [1.0] * (most["own"] + 1)})
        assert (refused.status, f"maximum input batch size {most['own']};" in refused.error) == (400, True)
    assert read_options(["--enable_batching", "--model-dir", "m"], {}).batching == BatchingParameters()
