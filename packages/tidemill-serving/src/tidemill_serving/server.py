"""Assemble the server: find and load models, listen, and shut down gracefully."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill_serving._shared.http.listener import Listener
from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.batching import BatchThreads
from tidemill_serving.engine import Engine, Parallelism, open_engine, suffices_one_thread
from tidemill_serving.engine.placement import Placement
from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.code import UserCode
from tidemill_serving.handlers.wire import PYTHON
from tidemill_serving.http.listener import bind_tcp, bind_unix, new_listener
from tidemill_serving.http.message import Application
from tidemill_serving.loading import Loader
from tidemill_serving.metrics import DEFAULT_PATH, Metrics
from tidemill_serving.models import DEFAULT_MODEL_VARIABLE, ModelVersion, default_model, find_exported, find_versions
from tidemill_serving.multi_model.api import MultiModelApi
from tidemill_serving.multi_model.host import ModelHost
from tidemill_serving.options import ServerOptions
from tidemill_serving.processors import num_processors
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.rest.api import Api
from tidemill_serving.rest.native_library import load_native_json
from tidemill_serving.user_code import ModelPort, Ports, find_code, open_grpc, start_handlers
from tidemill_serving.versions.batching_file import MODEL_FILE, read_batching_file
from tidemill_serving.versions.config import read_text_message
from tidemill_serving.versions.manager import ModelManager
from tidemill_serving.versions.warmup import warm_up

if TYPE_CHECKING:
    from tidemill_serving.grpc_api.server import GrpcServer

__all__ = ["serve"]

_CORES_PER_SLOT = 2
_MAX_SLOTS = 256
_ANSWER_MARGIN_S = 5.0


async def serve(options: ServerOptions, environment: Mapping[str, str]) -> int:
    """Load every model and answer requests until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 if every received request was answered, 1 if some were cut off.

    Raises:
        StartFailed: There is no model, a model or user code does not load, or an address cannot be listened on.
    """
    begin = time.monotonic()
    loop = asyncio.get_running_loop()
    stop = _stop_on_signals(loop)
    np.seterr(over="ignore")  # a JSON number above float32's range becomes Infinity, as in TF Serving
    for name, reason in options.without_effect.items():
        _event("variable.ignored", name=name, value=json.dumps(environment[name]), reason=json.dumps(reason))
    has_archive = not options.multi_model and options.managed is None
    code = None if not has_archive else find_code(options, environment, event=_event, warn=_print_line)
    parallelism = _parallelism(options) if has_archive else options.parallelism
    engine = open_engine(options.engine, parallelism=parallelism, op_libraries=options.op_libraries)
    _report_json()
    _event("engine.ready", engine=engine.name, runs_on=json.dumps(engine.description))
    batching = options.batching if options.batching_file is None else read_batching_file(options.batching_file)
    slots = max(1, num_processors() // _CORES_PER_SLOT) if batching is None else batching.threads
    threads = BatchThreads(slots=min(slots, _MAX_SLOTS))
    if batching is not None:
        _print_batching(batching)
    async with contextlib.AsyncExitStack() as cleanup:
        cleanup.callback(threads.close)
        served = _Served(options, environment, engine, threads, batching, cleanup)
        if not await _unless_stopped(_in_time(served.load(), options.start_timeout_s), stop):
            return 0
        limits = options.limits
        if options.multi_model or code is not None:
            # A request may wait for a handler for the timeout and then run in it as long; or it may load a model.
            timeout_s = max(2 * options.handlers.timeout_s, options.load_timeout_s if options.multi_model else 0)
            limits = replace(limits, answer_timeout_s=timeout_s + _ANSWER_MARGIN_S)
            if not await _unless_stopped(served.open_ports(code), stop):
                return 0
        elif options.grpc_port is not None:
            await served.open_grpc()
        listener = new_listener(served.application, limits=limits, loop=loop)
        addresses = await _listen(listener, options, cleanup)
        # Not after versions that are loaded later: it would remove pages that current requests use.
        engine.release_memory()
        gc.collect()
        gc.freeze()  # loaded objects stay alive: exclude them from later collections
        _event("server.ready", seconds=f"{time.monotonic() - begin:.2f}", address=",".join(addresses))
        _print_line("Entering the event loop")
        await stop.wait()
        served.api.ready = False
        _event("server.draining")
        in_time = await listener.drain(grace_s=options.drain_grace_s, timeout_s=options.drain_timeout_s)
        in_time = await served.drain_grpc() and in_time
    _event("server.stopped", every_request_answered=str(in_time).lower())
    return 0 if in_time else 1


class _Served:
    """The served models, from the archive or loaded on request, and the user's code."""

    def __init__(
        self,
        options: ServerOptions,
        environment: Mapping[str, str],
        engine: Engine,
        threads: BatchThreads,
        batching: BatchingParameters | None,
        cleanup: contextlib.AsyncExitStack,
    ) -> None:
        self._options = options
        self._batching = batching
        self._environment = environment
        self._cleanup = cleanup
        self._metrics = Metrics()
        self._loader = Loader(
            engine=engine,
            threads=threads,
            loop=asyncio.get_running_loop(),
            max_rows=options.max_rows,
            batching=self._batching_of,
            warm_up=self._warm_up,
            loaded=_report,
            unshared=_report_unshared,
            placed=_report_placement,
            metrics=self._metrics,
        )
        self._registry = Registry([], default_name="")
        self._manager: ModelManager | None = None
        self.api = Api(self._registry, self._metrics, metrics_path=_metrics_path(options), cors=options.cors)
        self.application: Application = self.api
        self._grpc: GrpcServer | None = None

    async def load(self) -> None:
        """Load the models of the archive or of the configuration; multi-model endpoints load on request."""
        if self._options.managed is not None:
            self._registry.default_name = self._environment.get(DEFAULT_MODEL_VARIABLE, "")
            self._manager = ModelManager(self._registry, self._loader, settings=self._options.managed, event=_event)
            self._cleanup.push_async_callback(self._manager.close)
            await self._manager.start()
        elif not self._options.multi_model:
            await self._load_archive()

    async def open_ports(self, code: UserCode | None) -> None:
        """Open the loopback port of the models, which handlers may call while loading, and start the user's code."""
        port = ModelPort(self.api.models_only, options=self._options, loop=asyncio.get_running_loop())
        await port.open()
        self._cleanup.push_async_callback(port.close)
        self._ports = Ports(port.number, await self.open_grpc())
        _event("handler.ports", rest=self._ports.rest, grpc=self._ports.grpc)
        if code is None:
            self.api.ping_without_model = True
            self.application = self._host()
            return
        pool = await start_handlers(
            code, options=self._options, ports=self._ports, default_model=self._registry.default_name, event=_event
        )
        self._cleanup.push_async_callback(pool.close)
        self.api.handlers = pool

    async def open_grpc(self) -> int:
        """Serve gRPC; return its port."""
        reload = None if self._manager is None else self._manager.reload
        loop = asyncio.get_running_loop()
        self._grpc = await open_grpc(self._registry, self._metrics, options=self._options, loop=loop, reload=reload)
        if self._options.grpc_port is not None:
            _event("grpc.ready", address=f"{self._options.host}:{self._grpc.port}")
        return self._grpc.port

    async def drain_grpc(self) -> bool:
        """Refuse new gRPC calls and wait for running ones; return whether all ended in time."""
        return self._grpc is None or await self._grpc.drain(timeout_s=self._options.drain_timeout_s)

    def _batching_of(self, version: ModelVersion) -> BatchingParameters | None:
        if not self._options.model_batching:
            return self._batching
        file = version.path / MODEL_FILE
        return read_batching_file(file) if file.is_file() else None

    def _warm_up(self, servable: Servable) -> None:
        begin = time.monotonic()
        requests = warm_up(servable)
        if requests:
            version, seconds = servable.version, time.monotonic() - begin
            self._metrics.warm_up(str(version.path), requests=requests, latency_s=seconds)
            fields = {"name": version.name, "version": version.version, "requests": requests}
            _event("model.warmed_up", **fields, seconds=f"{seconds:.2f}")

    async def _load_archive(self) -> None:
        versions = _archive_versions(self._options)
        is_python = self._options.kind == PYTHON
        default_name = versions[0].name if is_python else default_model(versions, self._environment)
        self._registry.add(await self._loader.load_beside(versions))
        self._registry.default_name = default_name

    def _host(self) -> MultiModelApi:
        host = ModelHost(
            self._registry,
            loader=self._loader,
            options=self._options,
            ports=self._ports,
            environment=self._environment,
            event=_event,
        )
        self._cleanup.push_async_callback(host.close)
        return MultiModelApi(self.api, host, self._registry)


def _archive_versions(options: ServerOptions) -> tuple[ModelVersion, ...]:
    return find_exported(options.model_dir) if options.kind == PYTHON else find_versions(options.model_dir)


def _parallelism(options: ServerOptions) -> Parallelism:
    """Return the thread counts for the models of an archive: one thread inside operations if more would be slower."""
    chosen = options.parallelism
    if chosen.intra_op or options.batching is not None or options.batching_file is not None:
        return chosen
    if not suffices_one_thread([version.path for version in _archive_versions(options)]):
        return chosen
    _event(
        "engine.one_thread", reason=json.dumps("small dense networks; set SAGEMAKER_TFS_INTRA_OP_PARALLELISM for more")
    )
    return replace(chosen, intra_op=1)


def _metrics_path(options: ServerOptions) -> str | None:
    """Return the path of the metrics: TF Serving's default, unless a monitoring configuration overrides it."""
    if options.monitoring_config is None:
        return DEFAULT_PATH
    config = read_text_message(options.monitoring_config, "MonitoringConfig").prometheus_config
    path = config.path or DEFAULT_PATH
    if not path.startswith("/"):
        raise StartFailed(f"{options.monitoring_config}: path {path!r} does not begin with /")
    return path if config.enable else None


def _print_batching(batching: BatchingParameters) -> None:
    """Log the parameters as SageMaker's container does."""
    for name, value in (
        ("max_batch_size", batching.max_batch_size),
        ("batch_timeout_micros", round(batching.timeout_s * 1e6)),
        ("num_batch_threads", batching.threads),
        ("max_enqueued_batches", batching.max_enqueued_batches),
    ):
        _print_line(f"{name} {{ value: {value} }}")


async def _in_time(loading: Coroutine[Any, Any, None], timeout_s: float | None) -> None:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            await loading
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise StartFailed(
            f"the models were not loaded within {timeout_s} s: allow more by SAGEMAKER_TFS_WAIT_TIME_SECONDS"
        ) from error


async def _unless_stopped(starting: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Wait for the start; return False if a stop is requested first."""
    start, stopped = asyncio.ensure_future(starting), asyncio.ensure_future(stop.wait())
    await asyncio.wait((start, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not start.done():
        start.cancel()
        await asyncio.wait((start,))
        return False
    start.result()
    return True


def _report_json() -> None:
    """Load, and if necessary compile, the native library now, and log whether JSON parsing is native."""
    library = load_native_json()
    if isinstance(library, str):
        _event("json.python", reason=json.dumps(library, ensure_ascii=False))
    else:
        _event("json.native", source=library.source)


def _report(servable: Servable) -> None:
    for key, runner in servable.runners.items():
        _report_placement(servable.version, key, runner.placement, event="signature.ready")
        fault = servable.model.signatures[key].json_fault
        if fault is not None:
            _event(
                "signature.grpc_only",
                model=servable.version.name,
                version=servable.version.version,
                signature=key,
                reason=json.dumps(fault, ensure_ascii=False),
            )
    for key, reason in servable.model.unusable.items():
        _event(
            "signature.unusable",
            model=servable.version.name,
            version=servable.version.version,
            signature=key,
            reason=json.dumps(reason, ensure_ascii=False),
        )
    _event(
        "model.loaded",
        name=servable.version.name,
        version=servable.version.version,
        path=servable.version.path,
        seconds=f"{servable.load_s:.2f}",
    )


def _report_placement(
    version: ModelVersion, signature: str, placement: Placement, *, event: str = "signature.placed"
) -> None:
    _event(
        event,
        model=version.name,
        version=version.version,
        signature=signature,
        runs="on_loop" if placement.on_loop else "on_thread",
        pooled=str(placement.pooled).lower(),
    )


def _report_unshared(version: ModelVersion, signature: str, reason: str) -> None:
    advice = (
        "runs of several requests fail although each succeeds alone, and cost double; serve this model with"
        " SAGEMAKER_TFS_ENABLE_BATCHING=false, or export it so that each row of its outputs depends on one row of input"
    )
    _event(
        "batching.failed",
        model=version.name,
        version=version.version,
        signature=signature,
        reason=json.dumps(reason, ensure_ascii=False),
        advice=json.dumps(advice),
    )


async def _listen(listener: Listener, options: ServerOptions, cleanup: contextlib.AsyncExitStack) -> list[str]:
    addresses = []
    if options.unix_socket is not None:
        await listener.open(bind_unix(options.unix_socket))
        cleanup.callback(options.unix_socket.unlink, missing_ok=True)
        addresses.append(f"unix:{options.unix_socket}")
    if options.port is not None:
        sock = bind_tcp(options.host, options.port)
        addresses.append(f"http://{options.host}:{sock.getsockname()[1]}")
        await listener.open(sock)
    if not addresses:
        raise StartFailed("nowhere to listen: give --unix-socket or --port")
    return addresses


def _stop_on_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)  # second signal: exit immediately
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stop


def _event(name: str, /, **fields: object) -> None:
    _print_line(" ".join([name, *(f"{key}={value}" for key, value in fields.items())]))


def _print_line(line: str) -> None:
    print(line, file=sys.stdout, flush=True)  # noqa: T201  # standard output is the endpoint's log
