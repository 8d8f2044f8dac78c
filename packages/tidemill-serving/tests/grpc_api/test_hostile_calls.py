"""Bytes that no client would send: the server answers with a status that blames the request, and serves other clients.

Each kind is tried for a few seconds; the variable ``FUZZ_S`` sets the number of seconds.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    regression_pb2,
)

Client = Any  # of conftest.py
FUZZ_S = float(os.environ.get("FUZZ_S", "2"))
DEADLINE_S = 60
BLAMES_THE_REQUEST = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


def seeds(client: Client) -> dict[str, bytes]:
    """Return a valid request for each method."""
    predict = client.request("half_plus", {"x": [1.0, 2.0, 5.0]}, version=124, output_filter=["y"])
    regress = regression_pb2.RegressionRequest()
    regress.model_spec.name, regress.model_spec.signature_name = "tensorflow_1", "regress"
    example = regress.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(1.0)
    classify = classification_pb2.ClassificationRequest(input=regress.input)
    classify.model_spec.name, classify.model_spec.signature_name = "tensorflow_1", "classify"
    tasks = inference_pb2.MultiInferenceRequest(input=regress.input)
    tasks.tasks.add(model_spec=regress.model_spec, method_name="tensorflow/serving/regress")
    metadata = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name = "half_plus"
    status = get_model_status_pb2.GetModelStatusRequest(model_spec=metadata.model_spec)
    reload = model_management_pb2.ReloadConfigRequest()
    reload.config.model_config_list.config.add(name="half_plus", base_path="relative", model_platform="tensorflow")
    messages = {
        "PredictionService/Predict": predict,
        "PredictionService/Regress": regress,
        "PredictionService/Classify": classify,
        "PredictionService/MultiInference": tasks,
        "PredictionService/GetModelMetadata": metadata,
        "ModelService/GetModelStatus": status,
        "ModelService/HandleReloadConfigRequest": reload,
    }
    return {method: message.SerializeToString() for method, message in messages.items()}


def mutated(seed: bytes, chance: random.Random) -> bytes:
    data = bytearray(seed)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        change = chance.randrange(5)
        if change == 0 and at < len(data):
            data[at] = chance.randrange(256)
        elif change == 1 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif change == 2:
            del data[at : at + chance.randint(1, 8)]
        elif change == 3:
            data[at:at] = chance.randbytes(chance.randint(1, 8))
        else:
            begin = chance.randrange(len(data) + 1)
            data[at:at] = data[begin : begin + chance.randint(1, 40)]
    return bytes(data)


def for_a_while() -> Iterator[int]:
    end = time.monotonic() + FUZZ_S
    turn = 0
    while turn < 20 or time.monotonic() < end:
        yield turn
        turn += 1


def test_no_body_causes_an_internal_error(client: Client, server: Any) -> None:
    chance = random.Random(20)
    right = seeds(client)
    calls = {method: client.channel.unary_unary(f"/tensorflow.serving.{method}") for method in right}
    for turn in for_a_while():
        method = list(right)[turn % len(right)]
        body = mutated(right[method], chance)
        try:
            calls[method](body, timeout=DEADLINE_S)
        except grpc.RpcError as error:
            assert error.code() in BLAMES_THE_REQUEST, (method, body, error.code(), error.details())
    assert server.process.poll() is None
    assert list(client.predict("half_plus", {"x": [2.0]}).outputs["y"].float_val) == [4.0]


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def hostile_bytes(chance: random.Random) -> bytes:
    """Return frames with a valid outer form and random content, or no frames at all."""
    if chance.random() < 0.1:
        return chance.randbytes(chance.randint(1, 400))
    frames = [
        frame(
            chance.randrange(11),
            chance.randrange(256),
            chance.choice((0, 1, 2, 3, 2**31 - 1)),
            chance.randbytes(chance.choice((0, 4, 5, 8, 40, 300))),
        )
        for _ in range(chance.randint(1, 12))
    ]
    data = PREFACE + SETTINGS + b"".join(frames)
    return data[: chance.randrange(len(data))] if chance.random() < 0.3 else data


def test_no_frames_crash_the_server(client: Client, server: Any) -> None:
    chance = random.Random(21)
    for _ in for_a_while():
        with socket.create_connection(("127.0.0.1", server.grpc_port), timeout=DEADLINE_S) as connection:
            try:
                connection.sendall(hostile_bytes(chance))
                if chance.random() < 0.5:
                    connection.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # the server has closed the connection already
    assert server.process.poll() is None
    assert list(client.predict("half_plus", {"x": [2.0]}).outputs["y"].float_val) == [4.0]


@pytest.mark.parametrize("method", ["PredictionService/Train", "SessionService/SessionRun", "Predict"])
def test_an_unknown_method_is_unimplemented(client: Client, method: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        client.channel.unary_unary(f"/tensorflow.serving.{method}")(b"", timeout=DEADLINE_S)
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_text_that_no_status_can_hold_is_cut_and_does_not_hide_the_status(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        client.predict("é" * 100_000, {})
    assert failure.value.code() is grpc.StatusCode.NOT_FOUND
    assert failure.value.details().startswith("Servable not found for request: Latest(ééé")
