"""Record requests with their answers as TFRecords of PredictionLog.

The files may serve as warm-up requests of a later version, or as test data.
"""

import importlib
import itertools
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tidemill_serving.engine import Array, Signature
from tidemill_serving.errors import Code, invalid
from tidemill_serving.grpc_api.examples import fill_answer
from tidemill_serving.grpc_api.lookup import fill_spec
from tidemill_serving.grpc_api.prediction import Prepared, respond
from tidemill_serving.messages.definitions import messages
from tidemill_serving.messages.tensors import fill_tensor
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Servable
from tidemill_serving.versions.config import LogTarget

_numbers = itertools.count()  # of all files of the process, since two recorders may have a prefix in common
_FILE_BYTES = 64 * 1024 * 1024
_TAG = "serve"
_FIELDS = {
    "Predict": "predict_log",
    "Classify": "classify_log",
    "Regress": "regress_log",
    "MultiInference": "multi_inference_log",
}


class RequestRecorder:
    """Records the requests of one model: a `Recorder`. Any thread may record.

    Args:
        targets: Files and rates.
        model: Name of the model.
        metrics: Counts the records.
        event: Writes an event with its fields to the log.

    Raises:
        RequestError: INVALID_ARGUMENT, the directory of a prefix cannot be written to.
    """

    def __init__(
        self, targets: Sequence[LogTarget], *, model: str, metrics: Metrics, event: Callable[..., None]
    ) -> None:
        self.targets = tuple(targets)
        self._model = model
        self._metrics = metrics
        self._event = event
        self._fault = ""
        self._files = {target: _RecordFiles(target.prefix, model) for target in self.targets}

    def record_run(
        self, verb: str, servable: Servable, signature: Signature, feeds: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        """See `Recorder`."""

        def fill(log: Any) -> None:
            fill_spec(log.request.model_spec, servable, signature=signature.key)
            if verb != "predict":
                log.request.input.example_list.examples.extend(map(messages().Example.FromString, feeds[0]))
                fill_answer(log.response, servable, signature, outputs, verb=verb, rows=len(feeds[0]))
                return
            for (name, spec), array in zip(signature.inputs.items(), feeds, strict=True):
                fill_tensor(log.request.inputs[name], array, spec.type_name)
            prepared = Prepared(signature, list(feeds), ())
            log.response.CopyFrom(respond(prepared, servable, list(outputs), as_content=False))

        self._record(verb.capitalize(), servable, signature.key, fill)

    def record_call(self, method: str, servable: Servable, request: Any, response: Any) -> None:
        """See `Recorder`."""

        def fill(log: Any) -> None:
            log.request.CopyFrom(request)
            log.response.CopyFrom(response)

        spec = None if method == "MultiInference" else response.model_spec
        self._record(method, servable, spec.signature_name if spec is not None else "", fill)

    def close(self) -> None:
        """Close the files."""
        for each in self._files.values():
            each.close()

    def _record(self, method: str, servable: Servable, signature: str, fill: Callable[[Any], None]) -> None:
        chosen = [target for target in self.targets if random.random() < target.rate]  # noqa: S311  # no secret
        if not chosen:
            return
        try:
            log = messages().PredictionLog()
            fill(getattr(log, _FIELDS[method]))
            fill_spec(log.log_metadata.model_spec, servable, signature=signature)
            log.log_metadata.saved_model_tags.append(_TAG)
            for target in chosen:
                log.log_metadata.sampling_config.sampling_rate = target.rate
                self._files[target].write(log.SerializeToString())
        except Exception as error:  # noqa: BLE001  # the request was answered: a full disk must not become its failure
            self._metrics.logged(self._model, status=Code.UNKNOWN.name)
            fault = f"{type(error).__name__}: {error}"
            if fault != self._fault:  # logged once instead of for each request
                self._fault = fault
                self._event("request_log.failed", model=self._model, reason=fault)
            return
        self._metrics.logged(self._model, status=Code.OK.name)


class _RecordFiles:
    """Files with a common prefix, each of which ends when it is large."""

    def __init__(self, prefix: Path, model: str) -> None:
        self._prefix = prefix
        self._model = model
        self._lock = threading.Lock()
        self._writer: Any = None
        self._size = 0
        try:
            prefix.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise invalid(f"model {model}: filename_prefix {str(prefix)!r}: {error}") from error
        if not os.access(prefix.parent, os.W_OK):
            raise invalid(f"model {model}: filename_prefix {str(prefix)!r}: the directory cannot be written to")

    def write(self, record: bytes) -> None:
        with self._lock:
            if self._size >= _FILE_BYTES:
                self._close()
            if self._writer is None:
                self._writer = self._open()
            try:
                self._writer.write(record)
                self._writer.flush()
            except BaseException:
                self._writer, self._size = None, 0  # the file may end in a part of the record: no reader gets past it
                raise
            self._size += len(record)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        writer, self._writer, self._size = self._writer, None, 0
        if writer is not None:
            writer.close()

    def _open(self) -> Any:
        """Open TensorFlow's writer, which works without importing TensorFlow."""
        native = importlib.import_module("tensorflow.python.lib.io._pywrap_record_io")
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        name = f"{self._prefix.name}-{self._model}-{stamp}-{os.getpid()}-{next(_numbers):05}.tfrecord"
        return native.RecordWriter(str(self._prefix.with_name(name)), native.RecordWriterOptions(""))
