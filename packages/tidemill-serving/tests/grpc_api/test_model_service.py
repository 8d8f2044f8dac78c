"""ModelService, called by TF Serving's own client."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import get_model_status_pb2

Client = Any  # of conftest.py
DEADLINE_S = 60
AVAILABLE = get_model_status_pb2.ModelVersionStatus.AVAILABLE


def status(client: Client, name: str, version: int | None = None) -> Any:
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = name
    if version is not None:
        request.model_spec.version.value = version
    return client.models.GetModelStatus(request, timeout=DEADLINE_S).model_version_status


def test_the_states_of_versions_are_listed_newest_first(client: Client) -> None:
    listed = [(each.version, each.state, each.status.error_code) for each in status(client, "half_plus")]
    assert listed == [(124, AVAILABLE, 0), (123, AVAILABLE, 0)]
    assert [each.version for each in status(client, "half_plus", 123)] == [123]


@pytest.mark.parametrize(
    ("name", "version", "code", "text"),
    [
        ("", None, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ("absent", None, "NOT_FOUND", "Could not find any versions of model absent"),
        ("half_plus", 5, "NOT_FOUND", "Could not find version 5 of model half_plus"),
    ],
)
def test_a_model_that_is_not_there_has_no_status(
    client: Client, name: str, version: int | None, code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        status(client, name, version)
    assert (failure.value.code().name, failure.value.details()) == (code, text)


def test_after_sigterm_received_calls_are_answered(start: Any, models: Path, client_class: type[Client]) -> None:
    server = start(models / "spin", arguments=("--grpc-port", "0"))
    client = client_class(server.grpc_port)
    turns = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[4000], tensor_shape={})
    call = client.prediction.Predict.future(client.request("model", {"turns": turns}), timeout=DEADLINE_S)
    assert len(status(client, "model")) == 1  # the previous call on the same connection has arrived
    assert server.terminate() == 0
    assert list(call.result(DEADLINE_S).outputs) == ["trace"]
    client.close()
