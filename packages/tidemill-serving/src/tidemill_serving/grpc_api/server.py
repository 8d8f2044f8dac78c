"""The gRPC server. Its threads parse messages and run small models; longer runs go to the batch threads."""

import asyncio
import concurrent.futures
import functools
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc  # pyrefly: ignore[missing-import]  # comes with TensorFlow

from tidemill_serving.batching import Job
from tidemill_serving.engine import Array, Signature
from tidemill_serving.errors import Code, RequestError, StartFailed, failed_precondition, invalid
from tidemill_serving.grpc_api.examples import classify, multi_inference, regress
from tidemill_serving.grpc_api.lookup import Run, lease, parsed
from tidemill_serving.grpc_api.models import get_model_metadata, get_model_status
from tidemill_serving.grpc_api.prediction import predict
from tidemill_serving.messages.definitions import messages
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Registry, Servable

__all__ = ["GrpcServer", "GrpcSettings", "Reload"]

_PREDICTION = "tensorflow.serving.PredictionService"
_MODELS = "tensorflow.serving.ModelService"
_MAX_MESSAGE_BYTES = 2**31 - 1
_STATUS = {code.value[0]: code for code in grpc.StatusCode}
_MAX_DETAIL_BYTES = 2048  # a byte may become three on the wire, and clients refuse trailers above 8 KiB

Reload = Callable[[Any], Coroutine[Any, Any, None]]
"""Replaces the served models with those of a ModelServerConfig message; raises RequestError."""
_Answer = Callable[[bytes, "float | None"], Any]
_RUNNING: dict[str, tuple[str, Callable[[Any, Servable, Run], Any]]] = {
    "Predict": ("PredictRequest", predict),
    "Classify": ("ClassificationRequest", classify),
    "Regress": ("RegressionRequest", regress),
    "MultiInference": ("MultiInferenceRequest", multi_inference),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """Settings of the gRPC server.

    Attributes:
        host: Address to listen on.
        ports: Ports to try, in order; 0 means any free port.
        threads: Maximum number of calls handled at the same time, and so of calls that share a run.
        waiting: Maximum number of calls that wait for a thread; further calls are answered RESOURCE_EXHAUSTED.
        message_bytes: Maximum size of a request in bytes.
        timeout_s: Maximum duration of a call in seconds, even if the call's own deadline is later.
        as_content: Answer Predict with ``tensor_content`` instead of typed values.
    """

    host: str = "127.0.0.1"
    ports: range | tuple[int, ...] = (0,)
    threads: int = 8
    waiting: int = 1024
    message_bytes: int = 100 * 1000 * 1000
    timeout_s: float = 300.0
    as_content: bool = False


class GrpcServer:
    """Serves a registry's models over gRPC.

    Args:
        registry: The models.
        metrics: Records the calls.
        loop: The event loop that models are run from.
        settings: See `GrpcSettings`.
        reload: Answers HandleReloadConfigRequest; None refuses it.

    Raises:
        StartFailed: None of the ports is free.
    """

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        *,
        loop: asyncio.AbstractEventLoop,
        settings: GrpcSettings,
        reload: Reload | None,
    ) -> None:
        messages()  # defines the classes once, before threads use them
        self._registry = registry
        self._metrics = metrics
        self._loop = loop
        self._settings = settings
        self._reload = reload
        self._server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(settings.threads, thread_name_prefix="grpc"),
            maximum_concurrent_rpcs=settings.threads + settings.waiting,
            options=(
                ("grpc.max_receive_message_length", min(settings.message_bytes, _MAX_MESSAGE_BYTES)),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ),
        )
        running = {name: functools.partial(self._run_method, name) for name in _RUNNING}
        self._add(_PREDICTION, {**running, "GetModelMetadata": self._metadata})
        self._add(_MODELS, {"GetModelStatus": self._status, "HandleReloadConfigRequest": self._reload_config})
        self.port = self._bind()

    def start(self) -> None:
        """Start accepting calls."""
        self._server.start()

    async def drain(self, *, timeout_s: float) -> bool:
        """Refuse new calls and wait for calls in progress; return whether all of them ended in time."""
        ended = self._server.stop(grace=timeout_s)
        return bool(await asyncio.to_thread(ended.wait, timeout_s))

    def _bind(self) -> int:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        for port in self._settings.ports:
            with suppress(RuntimeError):
                return int(self._server.add_insecure_port(f"{host}:{port}"))
        raise StartFailed(f"cannot listen for gRPC on {host}: no port of {self._settings.ports} is free")

    def _add(self, service: str, methods: dict[str, _Answer]) -> None:
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(functools.partial(_answered, method))
            for name, method in methods.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def _run_method(self, name: str, data: bytes, remaining_s: float | None) -> Any:
        kind, method = _RUNNING[name]
        request = parsed(kind, data)
        if kind == "MultiInferenceRequest" and not request.tasks:
            raise invalid("Inference request must contain at least one task.")
        named = request.tasks[0] if kind == "MultiInferenceRequest" else request
        begin_s = time.perf_counter()
        servable = lease(named, self._registry)
        status = Code.INTERNAL
        try:
            run = functools.partial(self._run, servable, name, self._timeout_s(remaining_s))
            if method is predict:
                response = predict(request, servable, run, as_content=self._settings.as_content)
            else:
                response = method(request, servable, run)
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

    def _metadata(self, data: bytes, _: float | None) -> Any:
        return get_model_metadata(parsed("GetModelMetadataRequest", data), self._registry)

    def _status(self, data: bytes, _: float | None) -> Any:
        return get_model_status(parsed("GetModelStatusRequest", data), self._registry)

    def _reload_config(self, data: bytes, remaining_s: float | None) -> Any:
        request = parsed("ReloadConfigRequest", data)
        if self._reload is None:
            raise failed_precondition(
                "the models of this server come from archives; only a server started with a configuration reloads it"
            )
        reload = asyncio.run_coroutine_threadsafe(self._reload(request.config), self._loop)
        reload.result(self._timeout_s(remaining_s))
        response = messages().ReloadConfigResponse()
        response.status.error_code = Code.OK.number
        return response

    def _run(
        self, servable: Servable, api: str, timeout_s: float, signature: Signature, feeds: list[Array]
    ) -> list[Array]:
        begin_s = time.perf_counter()
        runner = servable.runners[signature.key]
        job = Job(feeds, lambda outputs: None)
        if runner.takes_here(job):
            outputs = runner.run_here(job)
        else:
            result: concurrent.futures.Future[list[Array] | RequestError] = concurrent.futures.Future()
            job.done = result.set_result
            self._loop.call_soon_threadsafe(runner.submit, job)
            outputs = result.result(timeout_s)
        self._metrics.run(servable.version.name, api, rows=(job.rows,), latency_s=time.perf_counter() - begin_s)
        if isinstance(outputs, RequestError):
            raise outputs
        return outputs

    def _timeout_s(self, remaining_s: float | None) -> float:
        limit_s = self._settings.timeout_s
        return limit_s if remaining_s is None else min(remaining_s, limit_s)


def _answered(method: _Answer, request: bytes, context: Any) -> bytes:
    """Answer a call; turn every error into the call's status."""
    try:
        return bytes(method(request, context.time_remaining()).SerializeToString())
    except RequestError as error:
        _abort(context, error.code, error.message)
    except TimeoutError:
        _abort(context, Code.DEADLINE_EXCEEDED, "the model did not answer within the deadline of the call")
    except MemoryError as error:
        _abort(context, Code.RESOURCE_EXHAUSTED, f"Memory exhausted: {error}")
    except Exception as error:  # noqa: BLE001  # an error of one call must not stop the server
        traceback.print_exception(error, file=sys.stderr)
        _abort(context, Code.INTERNAL, f"{type(error).__name__}: {error}")
    raise AssertionError("unreachable: abort raises")


def _abort(context: Any, code: Code, message: str) -> None:
    shown = message.encode("utf-8", "replace")[:_MAX_DETAIL_BYTES]
    context.abort(_STATUS[code.number], shown.decode("utf-8", "ignore"))
