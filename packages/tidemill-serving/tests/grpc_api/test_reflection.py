"""Server reflection: clients learn services and messages from the server alone, as grpcurl does."""

from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tensorflow_serving.apis import model_service_pb2, prediction_service_pb2

Client = Any  # of conftest.py
DEADLINE_S = 60
SERVICES = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "tensorflow.ProfilerService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
]
NEWER = {"logging_configs"}  # fields that TF Serving has, and the release of its client not yet
Request = reflection_pb2.ServerReflectionRequest
Response = reflection_pb2.ServerReflectionResponse


def reflect(client: Client, *requests: Any, version: str = "v1") -> list[Any]:
    method = client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
        Response.FromString,
    )
    return list(method(iter(requests), timeout=DEADLINE_S))


def wire_type(field: Any) -> tuple[int, bool]:
    """Numbers of enumerations are written as integers."""
    return (field.TYPE_INT32 if field.type == field.TYPE_ENUM else field.type), field.is_repeated


def test_a_client_without_definitions_finds_and_calls_predict(client: Client) -> None:
    database = ProtoReflectionDescriptorDatabase(client.channel)
    assert sorted(database.get_services()) == SERVICES
    pool = descriptor_pool.DescriptorPool(database)
    method = pool.FindServiceByName("tensorflow.serving.PredictionService").FindMethodByName("Predict")
    asks, answers = (message_factory.GetMessageClass(each) for each in (method.input_type, method.output_type))
    request = asks()
    request.model_spec.name = "half_plus"
    request.inputs["x"].dtype = 1
    request.inputs["x"].float_val.extend([1.0, 2.0])
    request.inputs["x"].tensor_shape.dim.add(size=2)
    call = client.channel.unary_unary(
        "/tensorflow.serving.PredictionService/Predict", asks.SerializeToString, answers.FromString
    )
    assert list(call(request, timeout=DEADLINE_S).outputs["y"].float_val) == [3.5, 4.0]
    health = pool.FindMessageTypeByName("grpc.health.v1.HealthCheckResponse").fields_by_name["status"]
    assert health.enum_type.values_by_name["SERVING"].number == 1


@pytest.mark.parametrize("published", [prediction_service_pb2, model_service_pb2])
def test_the_definitions_are_those_of_tensorflow_serving(client: Client, published: Any) -> None:
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(client.channel))
    (service,) = published.DESCRIPTOR.services_by_name.values()
    found = pool.FindServiceByName(service.full_name)
    assert {each.name: (each.input_type.full_name, each.output_type.full_name) for each in found.methods} == {
        each.name: (each.input_type.full_name, each.output_type.full_name) for each in service.methods
    }
    waiting = [(each.input_type, other.input_type) for each, other in zip(found.methods, service.methods, strict=True)]
    waiting += [(each.output_type, it.output_type) for each, it in zip(found.methods, service.methods, strict=True)]
    seen = set()
    while waiting:
        ours, theirs = waiting.pop()
        if ours.full_name in seen:
            continue
        seen.add(ours.full_name)
        assert {each.name for each in ours.fields} - {each.name for each in theirs.fields} <= NEWER, ours.full_name
        for field in ours.fields:
            if field.name in NEWER:
                continue
            other = theirs.fields_by_name[field.name]
            assert (field.number, wire_type(field)) == (other.number, wire_type(other)), field.full_name
            if field.message_type is not None:
                waiting.append((field.message_type, other.message_type))
    assert len(seen) > 10


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_requests_of_one_stream_are_answered_in_turn(client: Client, version: str) -> None:
    method = "tensorflow.serving.PredictionService.Predict"
    symbols = [method, "tensorflow.TensorProto", "none.Such", "grpc.health.v1.Health"]
    requests = [Request(list_services="*"), *(Request(file_containing_symbol=each) for each in symbols)]
    requests += [Request(file_by_filename="tensorflow/core/framework/tensor.proto"), Request(), Request(host="me")]
    requests += [Request(all_extension_numbers_of_type="tensorflow.TensorProto")]
    requests += [
        Request(file_containing_extension={"containing_type": "tensorflow.TensorProto", "extension_number": 5})
    ]
    answers = reflect(client, *requests, version=version)
    assert [each.original_request for each in answers] == requests
    assert [each.name for each in answers[0].list_services_response.service] == SERVICES
    files = [len(each.file_descriptor_response.file_descriptor_proto) for each in answers[1:6]]
    assert files[2] == 0 and min(files[0], files[1], files[4]) > 1 and files[3] == 1
    assert answers[3].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert "the services are: grpc.health.v1.Health" in answers[3].error_response.error_message
    assert [each.error_response.error_code for each in answers[6:8]] == [grpc.StatusCode.INVALID_ARGUMENT.value[0]] * 2
    assert answers[8].all_extension_numbers_response.base_type_name == "tensorflow.TensorProto"
    assert answers[9].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert reflect(client, version=version) == []


def test_a_damaged_request_ends_its_stream(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        reflect(client, b"\x3a\xff")
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.RpcError) as failure:
        reflect(client, bytes(65_537))
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        ("tensorflow.serving.PredictionService/PredictStreamed", "call Predict"),
        ("tensorflow.serving.SessionService/SessionRun", "export a signature"),
        ("tensorflow.ProfilerService/Profile", "--enable-profiler"),
        ("tensorflow.ProfileAnalysis/NewSession", "TensorBoard"),
    ],
)
def test_services_that_are_not_served_say_what_to_do_instead(client: Client, method: str, advice: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        list(client.channel.unary_stream(f"/{method}")(b"", timeout=DEADLINE_S))
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "not served" in failure.value.details()
    assert advice in failure.value.details()
