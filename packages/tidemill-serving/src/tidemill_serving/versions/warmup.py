"""Warm up a version with the requests in its ``assets.extra/tf_serving_warmup_requests``, TFRecords of PredictionLog.

A version whose requests fail is not served.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tidemill_serving.engine import Array, Signature
from tidemill_serving.errors import RequestError, StartFailed
from tidemill_serving.grpc_api.examples import classify, multi_inference, regress
from tidemill_serving.grpc_api.lookup import Run, parsed
from tidemill_serving.grpc_api.prediction import predict
from tidemill_serving.registry import Servable

WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"
MAX_RECORDS = 1000
_METHODS: Mapping[str, Callable[[Any, Servable, Run], Any]] = {
    "predict_log": predict,
    "classify_log": classify,
    "regress_log": regress,
    "multi_inference_log": multi_inference,
}


def warm_up(servable: Servable, *, times: int) -> int:
    """Replay the requests of a version, ignoring the model and version that they name; return their number.

    Args:
        times: How often each request is sent.

    Raises:
        StartFailed: The file is damaged or too long, or a request fails.
    """
    file = servable.version.path / WARMUP_FILE
    if not times or not file.is_file():
        return 0
    count = 0

    def run(signature: Signature, feeds: list[Array]) -> list[Array]:
        return servable.runners[signature.key].warm_up(feeds)

    for index, record in enumerate(_records(file)):
        count += 1
        if index == MAX_RECORDS:
            raise StartFailed(f"{file}: Number of warmup records exceeds the maximum ({MAX_RECORDS})")
        try:
            log = parsed("PredictionLog", record)
            kind = log.WhichOneof("log_type")
            if kind not in _METHODS:
                raise StartFailed(f"{file}: record {index} is a {kind}; expected one of {', '.join(_METHODS)}")
            for _ in range(times):
                _METHODS[kind](getattr(log, kind).request, servable, run)
        except RequestError as error:
            raise StartFailed(f"{file}: the warm-up request {index} failed: {error.message}") from error
    return count


def _records(file: Path) -> Iterator[bytes]:
    """Yield records from TensorFlow's reader, which verifies checksums and works without importing TensorFlow."""
    reader = importlib.import_module("tensorflow.python.lib.io._pywrap_record_io")
    errors = importlib.import_module("tensorflow.python.framework.errors_impl")
    try:
        yield from reader.RecordIterator(str(file), "")
    except errors.OpError as error:
        raise StartFailed(f"{file} is damaged: {error.message}") from error
