"""The method Predict: convert a request to arrays, run a signature, and convert its outputs to the answer."""

import math
from dataclasses import dataclass
from typing import Any

from tidemill_serving.engine import Array, Signature, TensorSpec
from tidemill_serving.errors import RequestError, failed_precondition, invalid
from tidemill_serving.grpc_api.lookup import Run, fill_spec, find_signature
from tidemill_serving.messages.definitions import messages
from tidemill_serving.messages.tensors import array_of, fill_tensor
from tidemill_serving.registry import Servable


@dataclass(frozen=True, slots=True)
class Prepared:
    """Converted PredictRequest.

    Attributes:
        signature: The signature to run.
        feeds: Arrays in the order of the signature's inputs.
        wanted: Names of the requested outputs; empty means all.
    """

    signature: Signature
    feeds: list[Array]
    wanted: Any


def predict(request: Any, servable: Servable, run: Run, *, as_content: bool = False) -> Any:
    """Answer a PredictRequest.

    Args:
        request: The message.
        servable: The version that the request names.
        run: Runs a signature.
        as_content: Answer with ``tensor_content`` instead of typed values.

    Raises:
        RequestError: The request does not fit the model, or the run failed.
    """
    prepared = prepare(request, servable)
    outputs = run(prepared.signature, prepared.feeds)
    return respond(prepared, servable, outputs, as_content=as_content)


def prepare(request: Any, servable: Servable) -> Prepared:
    """Convert a PredictRequest.

    Raises:
        RequestError: The request does not fit the model.
    """
    signature = find_signature(request.model_spec, servable, missing=_missing_signature)
    inputs, wanted = request.inputs, request.output_filter
    _check_names(inputs, wanted, signature)
    return Prepared(signature, [_feed(name, inputs[name], spec) for name, spec in signature.inputs.items()], wanted)


def respond(prepared: Prepared, servable: Servable, outputs: list[Array], *, as_content: bool) -> Any:
    """Return the answer with the outputs of a run.

    Args:
        prepared: The request after its checks.
        servable: The version that ran.
        outputs: Arrays in the signature's order.
        as_content: Whether values are sent as ``tensor_content`` instead of lists.

    Returns:
        A PredictResponse with the wanted outputs, all if none was named.
    """
    response = messages().PredictResponse()
    signature, wanted = prepared.signature, prepared.wanted
    fill_spec(response.model_spec, servable, signature=signature.key)
    tensors = response.outputs
    for (alias, spec), array in zip(signature.outputs.items(), outputs, strict=True):
        if not wanted or alias in wanted:
            fill_tensor(tensors[alias], array, spec.type_name, as_content=as_content)
    return response


def num_values(request: Any) -> int:
    """Return the number of input values. It can be large in a small message, because TensorProto can repeat a value.

    Args:
        request: A PredictRequest.

    Returns:
        The sum over all inputs, from their shapes.
    """
    return sum(math.prod([dim.size for dim in tensor.tensor_shape.dim]) for tensor in request.inputs.values())


def _missing_signature(name: str) -> RequestError:
    return failed_precondition(f'Serving signature key "{name}" not found.')


def _check_names(given: Any, wanted: Any, signature: Signature) -> None:
    if len(given) != len(signature.inputs):
        missing = ",".join(name for name in signature.inputs if name not in given)
        extra = ",".join(sorted(name for name in given if name not in signature.inputs))
        raise invalid(
            f"input size does not match signature: {len(given)}!={len(signature.inputs)}."
            f" Sent extra: {{{extra}}}. Missing but required: {{{missing}}}."
        )
    for name in given:
        if name not in signature.inputs:
            raise invalid(
                f"input tensor alias not found in signature: {name}. Inputs expected to be in the set"
                f" {{{','.join(signature.inputs)}}}."
            )
    if not wanted:
        return
    seen: set[str] = set()
    for alias in wanted:
        if alias not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set"
                f" {{{','.join(signature.outputs)}}}."
            )
        if alias in seen:
            raise invalid(f"duplicate output tensor alias: {alias}")
        seen.add(alias)


def _feed(name: str, tensor: Any, spec: TensorSpec) -> Array:
    try:
        array = array_of(tensor)
    except RequestError as error:
        raise invalid(f"tensor parsing error: {name}: {error.message}") from error
    if array.dtype != spec.dtype:
        raise invalid(f"input {name}: expected a tensor of type {spec.type_name}, but got {array.dtype}")
    return array
