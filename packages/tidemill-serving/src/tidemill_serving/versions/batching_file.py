"""Read batching parameters from files with TF Serving's BatchingParameters in text form."""

from pathlib import Path
from typing import Any

from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.errors import StartFailed
from tidemill_serving.versions.config import read_text_message

MODEL_FILE = "batching_params.pbtxt"
"""Beside ``saved_model.pb``: the parameters of one version."""


def read_batching_file(path: Path) -> BatchingParameters:
    """Read a file of batching parameters; missing ones get TF Serving's defaults.

    Raises:
        StartFailed: The file cannot be read, or its parameters contradict each other.
    """
    given = read_text_message(path, "BatchingParameters")
    default = BatchingParameters()
    rows = _number(given, "max_batch_size", default.max_batch_size, path)
    split = bool(given.enable_large_batch_splitting.value)
    execution = _number(given, "max_execution_batch_size", rows, path)
    sizes = tuple(given.allowed_batch_sizes)
    most = execution if split else rows
    if sizes and (sizes[0] < 1 or list(sizes) != sorted(set(sizes)) or sizes[-1] != most):
        raise StartFailed(
            f"{path}: allowed_batch_sizes {list(sizes)} must be ascending, and the last one the most rows of a run:"
            f" {most}"
        )
    if execution > rows:
        raise StartFailed(f"{path}: max_execution_batch_size {execution} is more than max_batch_size {rows}")
    return BatchingParameters(
        max_batch_size=rows,
        timeout_s=_number(given, "batch_timeout_micros", 0, path, least=0) / 1e6,
        max_enqueued_batches=_number(given, "max_enqueued_batches", default.max_enqueued_batches, path),
        threads=_number(given, "num_batch_threads", default.threads, path),
        allowed_sizes=sizes,
        pad_variable_length=given.pad_variable_length_inputs,
        split_large=split,
        max_execution_size=execution,
        thread_pool_name=given.thread_pool_name.value or default.thread_pool_name,
    )


def _number(given: Any, name: str, default: int, path: Path, *, least: int = 1) -> int:
    value = int(getattr(given, name).value) if given.HasField(name) else default
    if value < least:
        raise StartFailed(f"{path}: {name} is {value}; expected at least {least}")
    return value
