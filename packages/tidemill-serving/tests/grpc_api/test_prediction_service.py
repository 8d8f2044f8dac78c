"""PredictionService, called by TF Serving's own client."""

from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from tensorflow.core.example import example_pb2
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    input_pb2,
    regression_pb2,
)

Client = Any  # of conftest.py
DEADLINE_S = 60
TYPES = {
    "float16": (types_pb2.DT_HALF, np.float16, "half_val"),
    "bfloat16": (types_pb2.DT_BFLOAT16, ml_dtypes.bfloat16, "half_val"),
    "float32": (types_pb2.DT_FLOAT, np.float32, "float_val"),
    "float64": (types_pb2.DT_DOUBLE, np.float64, "double_val"),
    "int8": (types_pb2.DT_INT8, np.int8, "int_val"),
    "int16": (types_pb2.DT_INT16, np.int16, "int_val"),
    "int32": (types_pb2.DT_INT32, np.int32, "int_val"),
    "int64": (types_pb2.DT_INT64, np.int64, "int64_val"),
    "uint8": (types_pb2.DT_UINT8, np.uint8, "int_val"),
    "uint16": (types_pb2.DT_UINT16, np.uint16, "int_val"),
    "uint32": (types_pb2.DT_UINT32, np.uint32, "uint32_val"),
    "uint64": (types_pb2.DT_UINT64, np.uint64, "uint64_val"),
    "bool": (types_pb2.DT_BOOL, np.bool_, "bool_val"),
}


def shaped(dtype: int, shape: tuple[int, ...], **values: Any) -> tensor_pb2.TensorProto:
    made = tensor_pb2.TensorProto(dtype=dtype, **values)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


def typed(values: np.ndarray, field: str) -> list[Any]:
    return (values.view(np.uint16) if field == "half_val" else values).reshape(-1).tolist()


@pytest.mark.parametrize("name", TYPES)
def test_a_tensor_of_every_type_comes_as_typed_values_or_as_content(client: Client, name: str) -> None:
    number, dtype, field = TYPES[name]
    values = np.array([[0, 1, 1], [1, 0, 1]] if name == "bool" else [[0, 1, 2], [100, 3, 4]]).astype(dtype)
    for given in (
        shaped(number, (2, 3), **{field: typed(values, field)}),
        shaped(number, (2, 3), tensor_content=values.tobytes()),
    ):
        answered = client.predict("types", {"x": given}, signature=name).outputs["y"]
        assert answered == shaped(number, (2, 3), **{field: typed(values, field)})


@pytest.mark.parametrize(
    ("name", "number", "field"),
    [
        ("complex64", types_pb2.DT_COMPLEX64, "scomplex_val"),
        ("complex128", types_pb2.DT_COMPLEX128, "dcomplex_val"),
    ],
)
def test_complex_numbers_come_as_pairs_or_as_content(client: Client, name: str, number: int, field: str) -> None:
    values = np.array([1 + 2j, -0.5j, 3], name)
    pairs = {field: [1.0, 2.0, -0.0, -0.5, 3.0, 0.0]}
    for given in (shaped(number, (3,), **pairs), shaped(number, (3,), tensor_content=values.tobytes())):
        assert client.predict("unusable", {"x": given}, signature=name).outputs["y"] == shaped(number, (3,), **pairs)


def test_strings_come_as_values_or_as_content(client: Client) -> None:
    strings = [b"", b"tide", b"\x00\xff" * 100, "é".encode()]
    content = bytes([0, 4, 0x80 | 200 & 0x7F, 1, 2]) + b"".join(strings)
    for given in (
        shaped(types_pb2.DT_STRING, (2, 2), string_val=strings),
        shaped(types_pb2.DT_STRING, (2, 2), tensor_content=content),
    ):
        answered = client.predict("types", {"x": given}, signature="string").outputs["y"]
        assert answered == shaped(types_pb2.DT_STRING, (2, 2), string_val=strings)


@pytest.mark.parametrize(
    ("shape", "values", "expected"),
    [
        ((4,), [1.0, 2.0], [1.0, 2.0, 2.0, 2.0]),
        ((3,), [7.0], [7.0, 7.0, 7.0]),
        ((2,), [], [0.0, 0.0]),
        ((), [5.0], [5.0]),
        ((0, 3), [], []),
    ],
)
def test_values_that_a_message_leaves_out_are_filled_in_as_by_tensorflow(
    client: Client, shape: tuple[int, ...], values: list[float], expected: list[float]
) -> None:
    given = shaped(types_pb2.DT_FLOAT, shape, float_val=values)
    answered = client.predict("types", {"x": given}, signature="float32").outputs["y"]
    assert list(answered.float_val) == expected
    assert [dim.size for dim in answered.tensor_shape.dim] == list(shape)


def test_integers_beyond_a_small_type_lose_their_upper_bits_as_in_tensorflow(client: Client) -> None:
    given = shaped(types_pb2.DT_UINT8, (3,), int_val=[255, 256, -1])
    assert list(client.predict("types", {"x": given}, signature="uint8").outputs["y"].int_val) == [255, 0, 255]


def test_the_answer_names_the_version_and_the_signature(client: Client) -> None:
    latest = client.predict("half_plus", {"x": [2.0]})
    older = client.predict("half_plus", {"x": [2.0]}, version=123)
    assert (latest.model_spec.name, latest.model_spec.version.value) == ("half_plus", 124)
    assert latest.model_spec.signature_name == "serving_default"
    assert older.model_spec.version.value == 123
    assert (list(latest.outputs["y"].float_val), list(older.outputs["y"].float_val)) == ([4.0], [3.0])


def test_a_filter_chooses_outputs(client: Client) -> None:
    inputs = {"a": [2.0], "b": shaped(types_pb2.DT_INT32, (1, 2), int_val=[3, 4])}
    assert set(client.predict("two_inputs", inputs).outputs) == {"scaled", "total"}
    filtered = client.predict("two_inputs", inputs, output_filter=["total"])
    assert {name: list(value.int_val) for name, value in filtered.outputs.items()} == {"total": [7]}


def examples(*values: float) -> list[example_pb2.Example]:
    made = []
    for value in values:
        example = example_pb2.Example()
        example.features.feature["x"].float_list.value.append(value)
        made.append(example)
    return made


def given_input(*values: float) -> input_pb2.Input:
    return input_pb2.Input(example_list=input_pb2.ExampleList(examples=examples(*values)))


def test_regress_returns_a_value_for_each_example(client: Client) -> None:
    request = regression_pb2.RegressionRequest(input=given_input(1.0, 2.0))
    request.model_spec.name, request.model_spec.signature_name = "tensorflow_1", "regress"
    answer = client.prediction.Regress(request, timeout=DEADLINE_S)
    assert [each.value for each in answer.result.regressions] == [2.5, 3.0]
    assert (answer.model_spec.version.value, answer.model_spec.signature_name) == (7, "regress")


def test_classify_returns_labels_and_scores_for_each_example(client: Client) -> None:
    request = classification_pb2.ClassificationRequest(input=given_input(1.0, 2.0))
    request.model_spec.name, request.model_spec.signature_name = "tensorflow_1", "classify"
    answer = client.prediction.Classify(request, timeout=DEADLINE_S)
    rows = [[(each.label, each.score) for each in row.classes] for row in answer.result.classifications]
    assert rows == [[("more", 2.5), ("less", -2.5)], [("more", 3.0), ("less", -3.0)]]


def test_features_of_a_context_are_added_to_each_example_unless_it_has_them(client: Client) -> None:
    both = input_pb2.ExampleListWithContext(examples=[*examples(4.0), example_pb2.Example()], context=examples(1.0)[0])
    request = regression_pb2.RegressionRequest(input=input_pb2.Input(example_list_with_context=both))
    request.model_spec.name, request.model_spec.signature_name = "tensorflow_1", "regress"
    answer = client.prediction.Regress(request, timeout=DEADLINE_S)
    assert [each.value for each in answer.result.regressions] == [4.0, 2.5]


def multi(*tasks: tuple[str, str, str]) -> inference_pb2.MultiInferenceRequest:
    request = inference_pb2.MultiInferenceRequest(input=given_input(1.0, 2.0))
    for model, signature, method in tasks:
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = model, signature
    return request


def test_multi_inference_answers_each_task_on_the_same_input(client: Client) -> None:
    request = multi(("tensorflow_1", "regress", "regress"), ("tensorflow_1", "classify", "classify"))
    regressed, classified = client.prediction.MultiInference(request, timeout=DEADLINE_S).results
    assert [each.value for each in regressed.regression_result.regressions] == [2.5, 3.0]
    assert [row.classes[0].label for row in classified.classification_result.classifications] == ["more", "more"]
    assert (regressed.model_spec.signature_name, classified.model_spec.signature_name) == ("regress", "classify")
    assert regressed.model_spec.version.value == 7


def test_examples_declared_as_floats_are_strings_in_the_graph(client: Client) -> None:
    tasks = ("half_plus_three", "regress_x_to_y", "regress"), ("half_plus_three", "classify_x_to_y", "classify")
    regressed, classified = client.prediction.MultiInference(multi(*tasks), timeout=DEADLINE_S).results
    assert [each.value for each in regressed.regression_result.regressions] == [3.5, 4.0]
    assert [row.classes[0].score for row in classified.classification_result.classifications] == [3.5, 4.0]


@pytest.mark.parametrize(
    ("tasks", "code", "text"),
    [
        ((), "INVALID_ARGUMENT", "Inference request must contain at least one task."),
        ((("", "regress", "regress"),), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (
            (("tensorflow_1", "regress", "regress"), ("half_plus", "regress", "regress")),
            "INVALID_ARGUMENT",
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            (("tensorflow_1", "regress", "regress"), ("tensorflow_1", "regress", "regress")),
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: regress",
        ),
        (
            (("tensorflow_1", "regress", "predict"),),
            "UNIMPLEMENTED",
            "Unsupported signature method_name: tensorflow/serving/predict",
        ),
        ((("absent", "", "regress"),), "NOT_FOUND", "Servable not found for request: Latest(absent)"),
    ],
)
def test_tasks_that_do_not_belong_together_are_refused(
    client: Client, tasks: tuple[tuple[str, str, str], ...], code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        client.prediction.MultiInference(multi(*tasks), timeout=DEADLINE_S)
    assert (failure.value.code().name, failure.value.details()) == (code, text)


def test_metadata_holds_the_signatures(client: Client) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half_plus"
    answer = client.prediction.GetModelMetadata(request, timeout=DEADLINE_S)
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("half_plus", 124)
    found = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(found)
    signature = found.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert (signature.inputs["x"].dtype, signature.inputs["x"].tensor_shape.dim[0].size) == (types_pb2.DT_FLOAT, -1)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["weights"], "Metadata field weights is not supported"),
    ],
)
def test_other_metadata_than_signatures_is_refused(client: Client, fields: list[str], text: str) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    request.model_spec.name = "half_plus"
    with pytest.raises(grpc.RpcError) as failure:
        client.prediction.GetModelMetadata(request, timeout=DEADLINE_S)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in failure.value.details()


FLOAT = types_pb2.DT_FLOAT
BIG = 2**40


@pytest.mark.parametrize(
    ("model", "inputs", "options", "code", "text"),
    [
        ("", {}, {}, "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ("absent", {}, {}, "NOT_FOUND", "Servable not found for request: Latest(absent)"),
        ("half_plus", {}, {"version": 5}, "NOT_FOUND", "Servable not found for request: Specific(half_plus, 5)"),
        ("half_plus", {}, {"version": -1}, "NOT_FOUND", "Servable not found for request: Specific(half_plus, -1)"),
        ("half_plus", {}, {"label": "l"}, "INVALID_ARGUMENT", "Unrecognized servable version label: l"),
        ("half_plus", {}, {"signature": "s"}, "FAILED_PRECONDITION", 'Serving signature key "s" not found.'),
        (
            "half_plus",
            {},
            {},
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1. Sent extra: {}. Missing but required: {x}.",
        ),
        (
            "half_plus",
            {"z": [1.0]},
            {},
            "INVALID_ARGUMENT",
            "input tensor alias not found in signature: z. Inputs expected to be in the set {x}.",
        ),
        (
            "half_plus",
            {"x": [1.0]},
            {"output_filter": ["z"]},
            "INVALID_ARGUMENT",
            "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
        ),
        (
            "half_plus",
            {"x": [1.0]},
            {"output_filter": ["y", "y"]},
            "INVALID_ARGUMENT",
            "duplicate output tensor alias: y",
        ),
        (
            "half_plus",
            {"x": shaped(types_pb2.DT_INT32, (1,), int_val=[1])},
            {},
            "INVALID_ARGUMENT",
            "input x: expected a tensor of type float, but got int32",
        ),
        (
            "two_inputs",
            {"a": [1.0], "b": shaped(types_pb2.DT_INT32, (1,), int_val=[1])},
            {},
            "INVALID_ARGUMENT",
            "Expecting shape [-1,2] but got: [1] for input b.",
        ),
        ("half_plus", {"x": tensor_pb2.TensorProto()}, {}, "INVALID_ARGUMENT", "tensor parsing error: x: tensor type"),
        (
            "half_plus",
            {"x": shaped(FLOAT, (1,), float_val=[1, 2])},
            {},
            "INVALID_ARGUMENT",
            "Expecting tensor size: 1 but got: 2",
        ),
        (
            "half_plus",
            {"x": shaped(FLOAT, (1,), tensor_content=b"abc")},
            {},
            "INVALID_ARGUMENT",
            "Expecting tensor size: 1 but got: 3 bytes",
        ),
        (
            "half_plus",
            {"x": shaped(FLOAT, (-1,), float_val=[1])},
            {},
            "INVALID_ARGUMENT",
            "no size may be negative",
        ),
        ("half_plus", {"x": shaped(FLOAT, (BIG, BIG, BIG))}, {}, "INVALID_ARGUMENT", "needs more than the"),
        ("half_plus", {"x": shaped(FLOAT, (BIG,), float_val=[1])}, {}, "INVALID_ARGUMENT", "needs more than the"),
        ("half_plus", {"x": shaped(FLOAT, (0, BIG, BIG))}, {}, "INVALID_ARGUMENT", "needs more than the"),
        ("half_plus", {"x": shaped(FLOAT, (1,) * 99)}, {}, "INVALID_ARGUMENT", "a tensor of 99 dimensions"),
        (
            "text",
            {"text": shaped(types_pb2.DT_STRING, (2,), tensor_content=b"\xff" * 9)},
            {},
            "INVALID_ARGUMENT",
            "tensor_content holds a length of a string that does not end",
        ),
        (
            "text",
            {"text": shaped(types_pb2.DT_STRING, (2,), tensor_content=b"\x01\x01a")},
            {},
            "INVALID_ARGUMENT",
            "tensor_content does not hold 2 strings",
        ),
        ("checked", {"x": [-1.0]}, {}, "INVALID_ARGUMENT", "negative number"),
        ("unusable", {}, {"signature": "ragged"}, "FAILED_PRECONDITION", "is a ragged tensor"),
    ],
)
def test_a_wrong_request_has_the_status_and_the_text_of_tensorflow_serving(
    client: Client, model: str, inputs: dict[str, Any], options: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        client.predict(model, inputs, **options)
    assert failure.value.code().name == code
    assert text in failure.value.details()


@pytest.mark.parametrize(
    ("signature", "values", "code", "text"),
    [
        ("absent", (1.0,), "INVALID_ARGUMENT", "No signature was found with the name: absent."),
        ("serving_default", (1.0,), "INVALID_ARGUMENT", "Expected the input Tensor x of the signature"),
        ("classify", (1.0,), "FAILED_PRECONDITION", "No regression outputs found in SignatureDef"),
        ("regress", (), "INVALID_ARGUMENT", "Input is empty."),
    ],
)
def test_invalid_examples_are_refused(
    client: Client, signature: str, values: tuple[float, ...], code: str, text: str
) -> None:
    request = regression_pb2.RegressionRequest(input=given_input(*values))
    request.model_spec.name, request.model_spec.signature_name = "tensorflow_1", signature
    with pytest.raises(grpc.RpcError) as failure:
        client.prediction.Regress(request, timeout=DEADLINE_S)
    assert failure.value.code().name == code
    assert text in failure.value.details()


def test_a_call_ends_at_its_deadline_and_others_continue(client: Client) -> None:
    turns = shaped(types_pb2.DT_INT32, (), int_val=[3000])
    with pytest.raises(grpc.RpcError) as failure:
        client.prediction.Predict(client.request("spin", {"turns": turns}), timeout=0.05)
    assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert list(client.predict("half_plus", {"x": [2.0]}).outputs["y"].float_val) == [4.0]


def test_a_message_above_the_limit_is_refused(start: Any, models: Any, client_class: type[Client]) -> None:
    server = start(models / "half_plus", arguments=("--grpc_port=0", "--max-body-bytes", "10000"))
    client = client_class(server.grpc_port)
    with pytest.raises(grpc.RpcError) as failure:
        client.predict("model", {"x": [1.0] * 10_000})
    assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert list(client.predict("model", {"x": [2.0]}).outputs["y"].float_val) == [4.0]
    client.close()


def test_answers_use_tensor_content_with_the_option(start: Any, models: Any, client_class: type[Client]) -> None:
    arguments = ("--grpc-port", "0", "--enable_serialization_as_tensor_content=true")
    client = client_class(start(models / "half_plus", arguments=arguments).grpc_port)
    answered = client.predict("model", {"x": [2.0, 4.0]}).outputs["y"]
    assert (answered.tensor_content, list(answered.float_val)) == (np.array([4, 5], np.float32).tobytes(), [])
    client.close()
