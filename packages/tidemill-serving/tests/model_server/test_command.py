"""The command `tensorflow_model_server`, with the ways of starting and waiting that its users rely on."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc

DEADLINE_S = 60
OFTEN = "--file_system_poll_wait_seconds=0.05"


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tidemill_serving.tensorflow_model_server", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_copied_command_serves_rest_and_grpc_on_its_ports(
    command: Any, base: Callable[..., Path], tmp_path: Path
) -> None:
    server = command(
        *("--model_name=half_plus_two", f"--model_base_path={base(123)}", "--rest_api_num_threads=4"),
        SAGEMAKER_MULTI_MODEL="true",  # configures endpoints, not this command
    ).start()
    metrics = server.get("/monitoring/prometheus/metrics").body.decode().splitlines()
    for name, kind in (
        *(("serving:request_count", "counter"), ("serving:request_latency", "histogram")),
        *(("serving:runtime_latency", "histogram"), ("serving:batching_session:queuing_latency", "histogram")),
    ):
        assert f"# TYPE :tensorflow:{name} {kind}" in metrics
    path = f'model_path="{tmp_path}/half_plus_two/123"'
    assert f':tensorflow:cc:saved_model:load_attempt_count{{{path},status="success"}} 1' in metrics
    assert server.predict("half_plus_two", {"instances": [2.0]}).json == {"predictions": [3.0]}
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = "half_plus_two"
        stub = model_service_pb2_grpc.ModelServiceStub(channel)
        (status,) = stub.GetModelStatus(request, timeout=DEADLINE_S).model_version_status
    assert status.version == 123
    log = "\n".join(server.log)
    assert f"Running gRPC ModelServer at 0.0.0.0:{server.grpc_port} ..." in log
    assert f"Exporting HTTP/REST API at:0.0.0.0:{server.port} ..." in log
    assert 'flag.ignored name=--rest_api_num_threads value="4" reason="one event loop answers REST"' in log
    assert "network.open address=0.0.0.0" in log
    assert server.terminate() == 0
    assert "Entering the event loop" in server.log


def test_a_server_waits_for_its_first_version_without_ports(command: Any, base: Callable[..., Path]) -> None:
    empty = base()
    server = command(f"--model_base_path={empty}", "--model_name=half_plus_two", OFTEN, "--host=127.0.0.1")
    server.launch()
    awaited = server.line("model.awaited")
    assert f"No versions of servable half_plus_two found under base path {empty}" in awaited
    with pytest.raises(ConnectionRefusedError):
        server.get("/v1/models/half_plus_two")
    base(1)
    server.line("server.ready")
    assert server.predict("half_plus_two", {"instances": [2.0]}).json == {"predictions": [3.0]}
    assert "network.open" not in "\n".join(server.log)
    assert server.terminate() == 0


def test_a_missing_directory_is_named_and_a_signal_ends_the_wait(command: Any, tmp_path: Path) -> None:
    server = command(f"--model_base_path={tmp_path}/none", OFTEN)
    server.launch()
    server.line("model.awaited", f"Could not find base path {tmp_path}/none for servable default")
    assert server.terminate() == 0


@pytest.mark.parametrize(
    ("name", "advice"), [("half/1", "give the directory above it, {parent}"), ("m", "move it to {path}/1")]
)
def test_a_base_path_that_is_a_model_itself_is_told_what_to_do(
    command: Any, models: Path, tmp_path: Path, name: str, advice: str
) -> None:
    path = tmp_path / name
    shutil.copytree(models / "half_plus/123", path)
    server = command(f"--model_base_path={path}", OFTEN)
    server.launch()
    awaited = server.line("model.awaited", "it holds a model itself, but versions are numbered directories below")
    assert awaited.endswith(advice.format(parent=path.parent, path=path))
    assert server.terminate() == 0


def test_a_port_that_is_taken_is_named(command: Any, base: Callable[..., Path]) -> None:
    server = command(f"--model_base_path={base(1)}", "--host=127.0.0.1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server.arguments = (*server.arguments, "--port=0", f"--rest_api_port={port}")
        server.launch()
        assert server.wait() == 1
    assert f"server.failed cannot listen on 127.0.0.1 port {port}: " in server.log[-1]
    assert "--port" not in server.log[-1]  # which is the port of gRPC in this command


def test_a_version_that_does_not_load_ends_the_start(command: Any, base: Callable[..., Path]) -> None:
    broken = base() / "1"
    broken.mkdir()
    (broken / "saved_model.pb").write_bytes(b"\xff not a model")
    server = command(f"--model_base_path={broken.parent}", "--max_num_load_retries=0")
    server.launch()
    assert server.wait() == 1
    assert "server.failed 1 servable(s) did not become available: {default: version 1:" in server.log[-1]


def test_usage_version_and_a_wrong_command_line_have_their_exit_statuses() -> None:
    version = run("--version")
    assert version.returncode == 0
    first, second = version.stdout.splitlines()
    assert first.startswith("TensorFlow ModelServer: ")
    assert second.startswith("TensorFlow Library: 2.")
    shown = run("--help")
    assert shown.returncode == 0
    assert "--model_config_file_poll_wait_seconds" in shown.stdout
    wrong = run("--model_base_path=/models", "--rest_api_prot=8501")
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert "the nearest flag is --rest_api_port" in wrong.stderr
