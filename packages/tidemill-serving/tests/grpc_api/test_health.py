"""Health, by gRPC's own client: Check, and Watch while versions come and go."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

Client = Any  # of conftest.py
DEADLINE_S = 60
SERVING, NOT_SERVING, UNKNOWN = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
    health_pb2.HealthCheckResponse.SERVICE_UNKNOWN,
)


def watch(health: Any, service: str) -> Any:
    return health.Watch(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)


def test_check_answers_for_services_and_models(client: Client) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    for service in ("", "tensorflow.serving.PredictionService", "half_plus"):
        assert health.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S).status == SERVING
    with pytest.raises(grpc.RpcError) as failure:
        health.Check(health_pb2.HealthCheckRequest(service="none"), timeout=DEADLINE_S)
    assert failure.value.code() is grpc.StatusCode.NOT_FOUND
    assert next(watch(health, "none")).status == UNKNOWN


def test_watch_ends_at_the_deadline_and_by_the_client(client: Client) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    answers = health.Watch(health_pb2.HealthCheckRequest(), timeout=0.3)
    assert next(answers).status == SERVING
    with pytest.raises(grpc.RpcError) as failure:
        next(answers)
    assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    cancelled = watch(health, "")
    assert next(cancelled).status == SERVING
    cancelled.cancel()
    with pytest.raises(grpc.RpcError) as failure:
        next(cancelled)
    assert failure.value.code() is grpc.StatusCode.CANCELLED
    assert next(watch(health, "half_plus")).status == SERVING


def test_watch_follows_a_model_that_comes_and_goes_and_the_end_of_the_server(
    start: Any, models: Path, client_class: type[Client], tmp_path: Path
) -> None:
    base, config = tmp_path / "half", tmp_path / "models.config"
    other = tmp_path / "other"
    shutil.copytree(models / "half_plus/123", base / "1")
    shutil.copytree(models / "half_plus/123", other / "1")
    form = 'config {{ name: "{0.name}" base_path: "{0}" model_platform: "tensorflow" }}'

    def configure(*served: Path) -> None:
        config.with_suffix(".new").write_text(
            "model_config_list { " + " ".join(form.format(each) for each in served) + " }"
        )
        config.with_suffix(".new").rename(config)

    configure(base)
    often = ("--file_system_poll_wait_seconds=0.05", "--model_config_file_poll_wait_seconds=0.05")
    server = start(tmp_path, arguments=(f"--model_config_file={config}", *often, "--grpc-port", "0"))
    client = client_class(server.grpc_port)
    health = health_pb2_grpc.HealthStub(client.channel)
    whole, mine = watch(health, ""), watch(health, "other")
    assert (next(whole).status, next(mine).status) == (SERVING, UNKNOWN)
    configure(base, other)
    seen = [next(mine).status]
    while seen[-1] != SERVING:
        seen.append(next(mine).status)
    assert seen in ([SERVING], [NOT_SERVING, SERVING])
    (other / "1").rename(tmp_path / "gone")
    assert next(mine).status == NOT_SERVING
    (tmp_path / "gone").rename(other / "1")
    assert next(mine).status == SERVING
    server.process.terminate()
    assert next(mine).status == NOT_SERVING
    with pytest.raises(grpc.RpcError) as failure:
        next(mine)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
    changes = []
    with pytest.raises(grpc.RpcError) as failure:
        changes.extend(each.status for each in whole)
    assert changes[-1] == NOT_SERVING
    assert all(one != other for one, other in itertools.pairwise(changes))
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
    client.close()
    assert server.wait() == 0, server.log
