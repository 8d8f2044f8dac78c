"""What a server serves: the models of an archive, of a configuration or on request, and the user's code."""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemill_serving.batch_queue import BatchingParameters
from tidemill_serving.batch_threads import BatchThreads
from tidemill_serving.engine import Engine
from tidemill_serving.handlers.code import UserCode
from tidemill_serving.handlers.wire import PYTHON
from tidemill_serving.http.message import Application
from tidemill_serving.loading import Loader
from tidemill_serving.metrics import Metrics
from tidemill_serving.models import DEFAULT_MODEL_VARIABLE, ModelVersion, default_model, find_exported, find_versions
from tidemill_serving.multi_model.api import MultiModelApi
from tidemill_serving.multi_model.host import ModelHost
from tidemill_serving.options import ServerOptions
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.report import (
    ExampleLog,
    event,
    report_grpc,
    report_loaded,
    report_placement,
    report_schedule,
    report_twin,
    report_unshared,
)
from tidemill_serving.rest.api import Api
from tidemill_serving.user_code import ModelPort, Ports, open_grpc, start_handlers
from tidemill_serving.versions.batching_file import MODEL_FILE, read_batching_file
from tidemill_serving.versions.manager import ModelManager
from tidemill_serving.versions.warmup import warm_up

if TYPE_CHECKING:
    from tidemill_serving.grpc_api.server import GrpcServer


class Served:
    """The served models, from the archive or loaded on request, and the user's code.

    Args:
        environment: Environment variables of the server.
        engine: Runs the models.
        threads: Run the batches.
        batching: How requests share runs, unless a model brings a file of its own; None if they do not.
        cleanup: Closes the parts when the server ends.
        metrics_path: Path of the metrics; None does not serve them.
    """

    def __init__(
        self,
        options: ServerOptions,
        environment: Mapping[str, str],
        engine: Engine,
        threads: BatchThreads,
        batching: BatchingParameters | None,
        cleanup: contextlib.AsyncExitStack,
        *,
        metrics_path: str | None,
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
            loaded=report_loaded,
            unshared=report_unshared,
            placed=report_placement,
            scheduled=report_schedule,
            twinned=report_twin,
            metrics=self._metrics,
        )
        self._registry = Registry([], default_name="")
        self._manager: ModelManager | None = None
        self.api = Api(
            self._registry,
            self._metrics,
            metrics_path=metrics_path,
            cors=options.cors,
            is_container=options.managed is None,
        )
        self.application: Application = self.api
        self._grpc: GrpcServer | None = None

    async def load(self) -> None:
        """Load the models of the archive or of the configuration; multi-model endpoints load on request."""
        if self._options.managed is not None:
            self._registry.default_name = self._environment.get(DEFAULT_MODEL_VARIABLE, "")
            self._manager = ModelManager(self._registry, self._loader, settings=self._options.managed, event=event)
            self._cleanup.push_async_callback(self._manager.close)
            await self._manager.start()
        elif not self._options.multi_model:
            await self._load_archive()

    async def open_ports(self, code: UserCode | None) -> None:
        """Open the loopback port of the models, which handlers may call while loading, and start the user's code."""
        port = ModelPort(self.api.models_only, options=self._options, loop=asyncio.get_running_loop())
        await port.open()
        self._cleanup.push_async_callback(port.close)
        self._ports = Ports(port.number, await self.open_grpc(for_code=True))
        event("handler.ports", rest=self._ports.rest, grpc=self._ports.grpc)
        if code is None:
            self.api.ping_without_model = True
            self.application = self._host()
            return
        pool = await start_handlers(
            code, options=self._options, ports=self._ports, default_model=self._registry.default_name, event=event
        )
        self._cleanup.push_async_callback(pool.close)
        self.api.handlers = pool

    async def open_grpc(self, *, for_code: bool) -> int:
        """Serve gRPC to clients and, if wanted, to user code; return its port, 0 if there is none."""
        reload = None if self._manager is None else self._manager.reload
        loop = asyncio.get_running_loop()
        self._grpc = await open_grpc(
            self._registry, self._metrics, options=self._options, loop=loop, reload=reload, for_code=for_code
        )
        if self._options.grpc_socket is not None:
            self._cleanup.callback(self._options.grpc_socket.unlink, missing_ok=True)
        report_grpc(self._options, port=self._grpc.port)
        return self._grpc.port

    def report_examples(self, address: str) -> None:
        """Log an example request of each model, now and when others are loaded.

        Args:
            address: Where REST is served: ``http://HOST:PORT``, or ``unix:PATH``.
        """
        examples = ExampleLog(self._registry, address=address)
        examples.update()
        self._registry.watchers.append(examples.update)

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
        requests = warm_up(servable, times=self._options.warm_ups)
        if requests:
            version, seconds = servable.version, time.monotonic() - begin
            self._metrics.warm_up(version.place, requests=requests, latency_s=seconds)
            fields = {"name": version.name, "version": version.version, "requests": requests}
            event("model.warmed_up", **fields, seconds=f"{seconds:.2f}")

    async def _load_archive(self) -> None:
        versions = archive_versions(self._options)
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
            event=event,
        )
        self._cleanup.push_async_callback(host.close)
        return MultiModelApi(self.api, host, self._registry)


def archive_versions(options: ServerOptions) -> tuple[ModelVersion, ...]:
    """Return the versions of the models in the archive of an endpoint."""
    return find_exported(options.model_dir) if options.kind == PYTHON else find_versions(options.model_dir)
