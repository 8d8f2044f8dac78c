"""Call the exported model of a Python-based endpoint over gRPC.

The default signature decides the method for values; a request message decides it for itself.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import grpc  # pyrefly: ignore[missing-import]  # comes with TensorFlow
import numpy as np

from tidemill_serving.engine import Array
from tidemill_serving.engine.element_types import element_type
from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.handlers.context import UNLIMITED
from tidemill_serving.handlers.wire import WorkerSetup
from tidemill_serving.messages.definitions import forget_hollow_package, messages
from tidemill_serving.messages.tensors import tensor_of

_SIGNATURE = "serving_default"
_DEFAULT_INPUT = "inputs"
_PREDICT = "PredictRequest"
_REQUESTS = {
    "tensorflow/serving/classify": "ClassificationRequest",
    "tensorflow/serving/regress": "RegressionRequest",
}
_METHODS = {
    _PREDICT: ("Predict", "PredictResponse"),
    "ClassificationRequest": ("Classify", "ClassificationResponse"),
    "RegressionRequest": ("Regress", "RegressionResponse"),
    "MultiInferenceRequest": ("MultiInference", "MultiInferenceResponse"),
}
_SEVERAL = "MultiInferenceRequest"
_TIMEOUT = "SAGEMAKER_TFS_GRPC_REQUEST_TIMEOUT"


class GenericModel:
    """Converts a value to a gRPC request and sends it.

    Args:
        setup: Holds the name of the model, the gRPC port and the time limit.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        forget_hollow_package()
        self._name = setup.default_model
        self._channel = grpc.insecure_channel(f"localhost:{setup.grpc_port}", options=UNLIMITED)
        self._timeout_s = setup.model_timeout_s

    @cached_property
    def request_kind(self) -> str:
        """Name of the request message for the method of the default signature, e.g. ``PredictRequest``."""
        return _REQUESTS.get(self._signature.method_name, _PREDICT)

    def call(self, value: Any) -> Any:
        """Return the model's response.

        Args:
            value: A request message of any method, or a value, of which the default signature's request is made.

        Raises:
            RequestError: The value does not fit the model's inputs, or the model refuses it.
        """
        given = getattr(getattr(value, "DESCRIPTOR", None), "name", "")
        kind, request = (given, value) if given in _METHODS else (self.request_kind, self._request(value))
        # There is only one model, so any name that the client sent means it.
        for named in request.tasks if kind == _SEVERAL else (request,):
            named.model_spec.name = self._name
        method, response = _METHODS[kind]
        return self._call(method, request, getattr(messages(), response))

    def _request(self, value: Any) -> Any:
        request = getattr(messages(), self.request_kind)()
        if self.request_kind == _PREDICT:
            self._fill_inputs(request.inputs, value)
        else:
            _fill_examples(request.input.example_list.examples, value)
        return request

    @cached_property
    def _signature(self) -> Any:
        request = messages().GetModelMetadataRequest(metadata_field=["signature_def"])
        request.model_spec.name = self._name
        response = self._call("GetModelMetadata", request, messages().GetModelMetadataResponse)
        found = messages().SignatureDefMap()
        response.metadata["signature_def"].Unpack(found)
        if _SIGNATURE not in found.signature_def:
            raise invalid(f"the model has no signature {_SIGNATURE}, only {', '.join(sorted(found.signature_def))}")
        return found.signature_def[_SIGNATURE]

    def _call(self, method: str, request: Any, response: Any) -> Any:
        call = self._channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")
        try:
            return response.FromString(call(request.SerializeToString(), timeout=self._timeout_s))
        except grpc.RpcError as error:
            code = Code.of(error.code().value[0])
            # Client and server end the call after about the same time, each with its own message.
            late = f"Timed out: the model did not answer within {self._timeout_s:g} s; allow more by {_TIMEOUT}"
            raise RequestError(code, late if code is Code.DEADLINE_EXCEEDED else error.details()) from error

    def _fill_inputs(self, inputs: Any, value: Any) -> None:
        declared = self._signature.inputs
        if isinstance(value, Mapping):
            named = dict(value)
        else:
            only = next(iter(declared)) if len(declared) == 1 else _DEFAULT_INPUT
            named = {_DEFAULT_INPUT if _DEFAULT_INPUT in declared else only: value}
        for name, each in named.items():
            if name not in declared:
                raise invalid(f"the model has no input {name!r}; its inputs are {', '.join(sorted(declared))}")
            inputs[name].CopyFrom(each if _is_tensor(each) else _tensor(name, each, declared[name].dtype))


def _is_tensor(value: Any) -> bool:
    return getattr(getattr(value, "DESCRIPTOR", None), "full_name", "") == "tensorflow.TensorProto"


def _tensor(name: str, value: Any, number: int) -> Any:
    """Create a tensor of the type that the signature declares for this input."""
    type_name = messages().DataType.Name(number).removeprefix("DT_").lower()
    if hasattr(value, "numpy"):  # a tensor
        value = value.numpy()
    try:
        array = _strings(value) if type_name == "string" else _numbers(value, _numpy_type(type_name))
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"input {name}: {error}; expected values of type {type_name}") from error
    return tensor_of(array, type_name)


def _strings(value: Any) -> Array:
    array = np.asarray(value, dtype=object)
    strings = [each.encode() if isinstance(each, str) else each for each in array.reshape(-1).tolist()]
    for each in strings:
        if not isinstance(each, bytes):
            raise TypeError(f"{each!r:.200} is no text")
    array = np.empty(array.shape, dtype=object)
    for index, each in enumerate(strings):
        array.flat[index] = each
    return array


def _numbers(value: Any, dtype: "np.dtype[Any]") -> Array:
    array = np.asarray(value, dtype=dtype)
    # NumPy converts lists without a word; an array has a type that the user chose, and is cast as TensorFlow does.
    if dtype.kind in "iub" and not hasattr(value, "dtype") and not np.array_equal(array, np.asarray(value)):
        raise ValueError(f"{value!r:.200} cannot be converted without loss")
    return array


def _numpy_type(type_name: str) -> Any:
    dtype = element_type(f"DT_{type_name.upper()}")
    if dtype is None:
        raise invalid(f"the type {type_name} of the model's input cannot be sent: define input_fn and predict_fn")
    return dtype


def _fill_examples(examples: Any, value: Any) -> None:
    """Append one Example for a dictionary, one each for a list of them, otherwise one with the feature ``inputs``."""
    if isinstance(value, Mapping):
        rows: list[Mapping[str, Any]] = [value]
    elif _is_list(value) and value and all(isinstance(each, Mapping) for each in value):
        rows = list(value)
    else:
        rows = [{_DEFAULT_INPUT: value}]
    for row in rows:
        features = examples.add().features.feature
        for name, given in row.items():
            _fill_feature(features[name], name, given)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _fill_feature(feature: Any, name: str, given: Any) -> None:
    if hasattr(given, "tolist"):
        given = given.tolist()
    values = list(given) if _is_list(given) else [given]
    fill: Callable[[Any], None]
    first = values[0] if values else 0
    if isinstance(first, int):
        fill = feature.int64_list.value.extend
    elif isinstance(first, float):
        fill = feature.float_list.value.extend
    elif isinstance(first, str | bytes):
        values = [each.encode() if isinstance(each, str) else each for each in values]
        fill = feature.bytes_list.value.extend
    else:
        raise invalid(f"feature {name}: expected numbers or text, but got {type(first).__name__}")
    try:
        fill(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(f"feature {name}: its values are of different kinds or too large: {error}") from error
