"""TF Serving's own client: the classes of tensorflow-serving-api."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

sys.path.insert(0, str(Path(__file__).parent))

DEADLINE_S = 60


class Client:
    """Stubs of both services on one channel."""

    def __init__(self, port: int) -> None:
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)])
        self.prediction = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, model: str, inputs: Mapping[str, Any], **spec: Any) -> Any:
        return self.prediction.Predict(self.request(model, inputs, **spec), timeout=DEADLINE_S)

    def request(
        self,
        model: str,
        inputs: Mapping[str, Any],
        *,
        signature: str = "",
        version: int | None = None,
        label: str = "",
        output_filter: Sequence[str] = (),
    ) -> predict_pb2.PredictRequest:
        request = predict_pb2.PredictRequest(output_filter=output_filter)
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        if label:
            request.model_spec.version_label = label
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(value if isinstance(value, tensor_pb2.TensorProto) else tensor(value))
        return request

    def close(self) -> None:
        self.channel.close()


def tensor(value: Any) -> tensor_pb2.TensorProto:
    """A tensor of 32-bit floats, by hand."""
    array = np.asarray(value, dtype=np.float32)
    made = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=array.reshape(-1).tolist())
    for size in array.shape:
        made.tensor_shape.dim.add(size=size)
    return made


@pytest.fixture(scope="session")
def client_class() -> type[Client]:
    return Client


@pytest.fixture(scope="session")
def client(server: Any) -> Iterator[Client]:
    made = Client(server.grpc_port)
    yield made
    made.close()
