"""Profiles of a running server, recorded by TensorFlow's own client."""

import json
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pool

from tidemill_serving.grpc_api.connection import GrpcConnection
from tidemill_serving.messages.definitions import _classes
from tidemill_serving.messages.schema import PROTOCOLS

DEADLINE_S = 60
# In a pool of its own: other tests import TensorFlow Serving's published definitions.
MESSAGES = _classes(PROTOCOLS[-1], descriptor_pool.DescriptorPool())
PROFILE = "/tensorflow.ProfilerService/Profile"


@pytest.fixture
def asked(command: Any, models: Path) -> Any:
    """Yield a server whose model is asked all the time."""
    server = command(f"--model_base_path={models / 'mlp'}", "--host=127.0.0.1").start()
    stop = threading.Event()

    def ask() -> None:
        body = json.dumps({"instances": [[0] * 8]})
        while not stop.is_set():
            assert server.predict("default", body).status == 200

    client = threading.Thread(target=ask)
    client.start()
    yield server
    stop.set()
    client.join()
    assert server.terminate() == 0


def test_a_profile_has_the_operations_of_the_models(asked: Any, tmp_path: Path) -> None:
    address = f"grpc://127.0.0.1:{asked.grpc_port}"
    tf.profiler.experimental.client.trace(address, str(tmp_path / "logs"), duration_ms=300, num_tracing_attempts=10)
    (file,) = (tmp_path / "logs").rglob("*.xplane.pb")
    assert file.parent.parent == tmp_path / "logs/plugins/profile"
    assert b"MatMul" in file.read_bytes()
    with grpc.insecure_channel(f"127.0.0.1:{asked.grpc_port}") as channel:
        profile = channel.unary_unary(PROFILE)

        def ask(**fields: Any) -> Any:
            request = MESSAGES["ProfileRequest"](**fields).SerializeToString()
            return MESSAGES["ProfileResponse"].FromString(profile(request, timeout=DEADLINE_S))

        answer = ask(duration_ms=300, emit_xspace=True, host_name="here")
        assert b"MatMul" in answer.xspace
        assert list(MESSAGES["XSpace"].FromString(answer.xspace).hostnames) == ["here"]
        (tmp_path / "mine").write_text("mine")
        (tmp_path / "mine.xplane.pb").symlink_to(tmp_path / "mine")
        named = {"repository_root": str(tmp_path.parent), "session_id": tmp_path.name, "host_name": "mine"}
        for fields, text in (
            ({}, "a profile of 0.0 s: expected more than 0"),
            ({"duration_ms": 10**6}, "less than the call's"),
            ({"duration_ms": 1, "repository_root": "gs://logs", "session_id": "s", "host_name": "h"}, "no absolute"),
            ({"duration_ms": 1, "repository_root": "/tmp", "session_id": "..", "host_name": "h"}, "it is"),
            ({"duration_ms": 1, "repository_root": "/tmp", "session_id": "s", "host_name": "../h"}, "it is"),
            ({"duration_ms": 1, **named}, "mine.xplane.pb exists, and profiles do not replace files"),
        ):
            with pytest.raises(grpc.RpcError) as failure:
                ask(**fields)
            refused: Any = failure.value
            assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text.replace("it is", "one of them is") in refused.details()
        assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(
    ("peer", "local"),
    [(("127.0.0.1", 5), True), (("::1", 5, 0, 0), True), ("", True), (("10.0.0.2", 5), False), (("::5", 5), False)],
)
def test_only_clients_of_the_machine_are_local(peer: Any, local: bool) -> None:
    class Transport:
        def get_extra_info(self, name: str) -> Any:
            return {"peername": peer}[name]

    connection = GrpcConnection.__new__(GrpcConnection)
    connection._transport = Transport()  # type: ignore[assignment]
    assert connection.is_local is local
