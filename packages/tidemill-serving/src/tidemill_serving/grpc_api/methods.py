"""The unary methods: each answers a message with a message. They may run in any thread but the event loop's."""

import asyncio
import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill_serving.batching import Job
from tidemill_serving.engine import Array, Signature
from tidemill_serving.errors import Code, RequestError, failed_precondition, invalid
from tidemill_serving.grpc_api.examples import classify, multi_inference, regress
from tidemill_serving.grpc_api.health import CHECK_PATH, Health
from tidemill_serving.grpc_api.lookup import Run, lease, parsed
from tidemill_serving.grpc_api.models import get_model_metadata, get_model_status
from tidemill_serving.grpc_api.prediction import predict
from tidemill_serving.messages.definitions import messages
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Registry, Servable

_PREDICTION = "/tensorflow.serving.PredictionService/"
_MODELS = "/tensorflow.serving.ModelService/"
PREDICT_PATH = f"{_PREDICTION}Predict".encode()
Reload = Callable[[Any], Coroutine[Any, Any, None]]
"""Replaces the served models with those of a ModelServerConfig message; raises RequestError."""
Answer = Callable[[bytes, float], Any]
"""Returns the answer of a serialized request. The second argument is the time until the deadline, in seconds."""
_RUNNING: dict[str, tuple[str, Callable[[Any, Servable, Run], Any]]] = {
    "Predict": ("PredictRequest", predict),
    "Classify": ("ClassificationRequest", classify),
    "Regress": ("RegressionRequest", regress),
    "MultiInference": ("MultiInferenceRequest", multi_inference),
}


class UnaryMethods:
    """The unary methods of all services.

    Args:
        metrics: Records the calls.
        loop: The running event loop.
        health: Answers Check.
        as_content: Answer Predict with ``tensor_content`` instead of typed values.
        reload: Answers HandleReloadConfigRequest; None refuses such requests.

    Attributes:
        by_path: Methods by ``/service/method``.
    """

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        *,
        loop: asyncio.AbstractEventLoop,
        health: Health,
        as_content: bool,
        reload: Reload | None,
    ) -> None:
        self._registry = registry
        self._metrics = metrics
        self._loop = loop
        self._health = health
        self._as_content = as_content
        self._reload = reload
        self.by_path: dict[bytes, Answer] = {
            f"{_PREDICTION}{name}".encode(): functools.partial(self._run_method, name) for name in _RUNNING
        }
        self.by_path[f"{_PREDICTION}GetModelMetadata".encode()] = self._metadata
        self.by_path[f"{_MODELS}GetModelStatus".encode()] = self._status
        self.by_path[f"{_MODELS}HandleReloadConfigRequest".encode()] = self._reload_config
        self.by_path[CHECK_PATH] = self._check_health

    def _run_method(self, name: str, data: bytes, left_s: float) -> Any:
        kind, method = _RUNNING[name]
        request = parsed(kind, data)
        if kind == "MultiInferenceRequest" and not request.tasks:
            raise invalid("Inference request must contain at least one task.")
        named = request.tasks[0] if kind == "MultiInferenceRequest" else request
        begin_s = time.perf_counter()
        servable = lease(named, self._registry)
        status = Code.INTERNAL
        try:
            run = functools.partial(self._run, servable, name, left_s)
            if method is predict:
                response = predict(request, servable, run, as_content=self._as_content)
            else:
                response = method(request, servable, run)
            if servable.recorder is not None:
                servable.recorder.record_call(name, servable, request, response)
            status = Code.OK
        except RequestError as error:
            status = error.code
            raise
        except TimeoutError:
            status = Code.DEADLINE_EXCEEDED
            raise
        finally:
            servable.leases.leave()
            latency_s = time.perf_counter() - begin_s
            self._metrics.request(servable.version.name, name, "GRPC", status=status.name, latency_s=latency_s)
        return response

    def _metadata(self, data: bytes, _: float) -> Any:
        return get_model_metadata(parsed("GetModelMetadataRequest", data), self._registry)

    def _status(self, data: bytes, _: float) -> Any:
        return get_model_status(parsed("GetModelStatusRequest", data), self._registry)

    def _check_health(self, data: bytes, _: float) -> Any:
        return self._health.check(parsed("HealthCheckRequest", data))

    def _reload_config(self, data: bytes, left_s: float) -> Any:
        request = parsed("ReloadConfigRequest", data)
        if self._reload is None:
            raise failed_precondition(
                "the models of this server come from archives; only a server started with a configuration reloads it"
            )
        reload = asyncio.run_coroutine_threadsafe(self._reload(request.config), self._loop)
        reload.result(left_s)
        response = messages().ReloadConfigResponse()
        response.status.error_code = Code.OK.number
        return response

    def _run(
        self, servable: Servable, api: str, timeout_s: float, signature: Signature, feeds: list[Array]
    ) -> list[Array]:
        begin_s = time.perf_counter()
        runner = servable.runners[signature.key]
        is_over = threading.Event()
        job = Job(feeds, lambda outputs: None, is_over.is_set)
        if runner.takes_here(job):
            outputs = runner.run_here(job)
        else:
            result: concurrent.futures.Future[list[Array] | RequestError] = concurrent.futures.Future()
            job.done = result.set_result
            self._loop.call_soon_threadsafe(runner.submit, job)
            try:
                outputs = result.result(timeout_s)
            except TimeoutError:
                is_over.set()
                raise
        self._metrics.run(servable.version.name, api, rows=(job.rows,), latency_s=time.perf_counter() - begin_s)
        if isinstance(outputs, RequestError):
            raise outputs
        return outputs
