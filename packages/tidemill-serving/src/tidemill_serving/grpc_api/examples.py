"""The gRPC methods on Examples: Classify, Regress, and MultiInference, which runs several of both on one input."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tidemill_serving.engine import Array, Signature
from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.grpc_api.lookup import Run, fill_spec, find_signature
from tidemill_serving.messages.definitions import messages
from tidemill_serving.registry import Servable
from tidemill_serving.rest.examples import CLASSES, OUTPUTS, SCORES, check_examples_signature

_METHODS = {"tensorflow/serving/classify": "classify", "tensorflow/serving/regress": "regress"}


def classify(request: Any, servable: Servable, run: Run) -> Any:
    """Answer a ClassificationRequest.

    Raises:
        RequestError: The request or the model does not fit this method, or the run failed.
    """
    response = messages().ClassificationResponse()
    _answer(request, servable, run, response, verb="classify")
    return response


def regress(request: Any, servable: Servable, run: Run) -> Any:
    """Answer a RegressionRequest.

    Raises:
        RequestError: The request or the model does not fit this method, or the run failed.
    """
    response = messages().RegressionResponse()
    _answer(request, servable, run, response, verb="regress")
    return response


def multi_inference(request: Any, servable: Servable, run: Run) -> Any:
    """Answer a MultiInferenceRequest: run each of its tasks on the same input.

    Raises:
        RequestError: The tasks cannot be combined, or one of them fails.
    """
    tasks = _tasks(request, servable)
    examples = _examples(request.input)
    response = messages().MultiInferenceResponse()
    for signature, verb in tasks:
        made = response.results.add()
        fill_spec(made.model_spec, servable, signature=signature.key)
        result = made.classification_result if verb == "classify" else made.regression_result
        result.SetInParent()
        _FILLERS[verb](result, signature, run(signature, [examples]), len(examples))
    return response


def fill_answer(
    response: Any, servable: Servable, signature: Signature, outputs: Sequence[Array], *, verb: str, rows: int
) -> None:
    """Fill a ClassificationResponse or RegressionResponse with the outputs of a run.

    Args:
        response: The message to change.
        servable: The version that ran.
        signature: The signature that ran.
        outputs: Arrays in the order of its outputs.
        verb: ``classify`` or ``regress``.
        rows: Number of examples.

    Raises:
        RequestError: INVALID_ARGUMENT, the shapes of the outputs do not fit the number of examples.
    """
    fill_spec(response.model_spec, servable, signature=signature.key)
    response.result.SetInParent()
    _FILLERS[verb](response.result, signature, outputs, rows)


def _answer(request: Any, servable: Servable, run: Run, response: Any, *, verb: str) -> None:
    signature = _signature(request.model_spec, servable, verb=verb)
    examples = _examples(request.input)
    fill_answer(response, servable, signature, run(signature, [examples]), verb=verb, rows=len(examples))


def _signature(spec: Any, servable: Servable, *, verb: str) -> Signature:
    signature = find_signature(spec, servable, missing=_missing_signature)
    check_examples_signature(signature, verb=verb)
    return signature


def _missing_signature(name: str) -> RequestError:
    return invalid(f"No signature was found with the name: {name}.")


def _tasks(request: Any, servable: Servable) -> list[tuple[Signature, str]]:
    """Return signature and method of each task."""
    tasks: list[tuple[Signature, str]] = []
    for task in request.tasks:
        if not task.model_spec.name:
            raise invalid("Found ModelSpec with an empty model name.")
        if task.model_spec.name != request.tasks[0].model_spec.name:
            raise invalid("All ModelSpecs in a MultiInferenceRequest must access the same model name.")
        verb = _METHODS.get(task.method_name)
        if verb is None:
            raise RequestError(Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}")
        signature = _signature(task.model_spec, servable, verb=verb)
        if any(signature is other for other, _ in tasks):
            raise invalid(f"Duplicate evaluation of signature: {signature.key}")
        tasks.append((signature, verb))
    return tasks


def _examples(given: Any) -> Array:
    """Return the serialized Examples of an Input; each includes the features of the Input's context."""
    with_context = given.WhichOneof("kind") == "example_list_with_context"
    source = given.example_list_with_context if with_context else given.example_list
    if not source.examples:
        raise invalid("Input is empty.")
    serialized = np.empty(len(source.examples), dtype=object)
    for index, example in enumerate(source.examples):
        joined = example
        if with_context:
            joined = messages().Example()
            joined.CopyFrom(source.context)
            joined.MergeFrom(example)
        serialized[index] = joined.SerializeToString()
    return serialized


def _fill_classification(result: Any, signature: Signature, outputs: Sequence[Array], rows: int) -> None:
    named = dict(zip(signature.outputs, outputs, strict=True))
    labels, scores = named.get(CLASSES), named.get(SCORES)
    shapes = {array.shape for array in (labels, scores) if array is not None}
    if len(shapes) != 1 or any(len(shape) != 2 or shape[0] != rows for shape in shapes):
        got = " and ".join(f"{alias} {list(named[alias].shape)}" for alias in (CLASSES, SCORES) if alias in named)
        raise invalid(f"Expected Tensor shape: [batch_size num_classes] with {rows} rows, but got: {got}")
    (_, columns), *_ = shapes
    for row in range(rows):
        classes = result.classifications.add().classes
        for column in range(columns):
            made = classes.add()
            if labels is not None:
                label = labels[row, column]
                made.label = label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)
            if scores is not None:
                made.score = float(scores[row, column])


def _fill_regression(result: Any, signature: Signature, outputs: Sequence[Array], rows: int) -> None:
    values = dict(zip(signature.outputs, outputs, strict=True))[OUTPUTS]
    if values.shape not in ((rows,), (rows, 1)):
        raise invalid(
            f"Expected output Tensor shape to be either [batch_size] or [batch_size 1] with {rows} rows, but got:"
            f" {list(values.shape)}"
        )
    for value in values.reshape(-1).tolist():
        result.regressions.add(value=float(value))


_FILLERS: dict[str, Callable[[Any, Signature, Sequence[Array], int], None]] = {
    "classify": _fill_classification,
    "regress": _fill_regression,
}
