"""The composition root: opens stores, executors and drivers, in this order, and the gateway to all services."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from tidemill.control.admission import Capabilities
from tidemill.control.async_queue import AsyncQueue
from tidemill.control.experiments.components import TrialComponents
from tidemill.control.experiments.experiments import Experiments
from tidemill.control.experiments.points import MetricPoints
from tidemill.control.hosting import Hosting
from tidemill.control.processing.jobs import Processing
from tidemill.control.registry.packages import Registry
from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.transform.jobs import TransformJobs
from tidemill.core.frameworks import Frameworks
from tidemill.core.instances import Isolation
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.server.access import Access
from tidemill.server.drivers import open_drivers
from tidemill.server.executors import open_executors
from tidemill.server.keys import Keys
from tidemill.server.pipelines import open_pipelines
from tidemill.server.services import open_gateway
from tidemill.server.startup import Startup
from tidemill.server.state import StateDirectory
from tidemill.server.stores import open_stores
from tidemill.server.tuning import open_tuning
from tidemill.services.metrics import MetricsService
from tidemill.services.runtime import RuntimeService
from tidemill.services.sagemaker import SageMakerService
from tidemill.settings import Settings
from tidemill.wire.gateway import Gateway

__all__ = ["Application"]


class Application:
    """All parts of the service, which are opened and closed together. Nothing is opened before `opened`.

    Args:
        settings: The settings.
        state: The state directory, locked.
        keys: The owner's keys.
        url: Returns the URL for clients and jobs of this machine.
        public_url: URL for other machines; empty if the service does not listen for them.
        relay: Host and port at which a standby service reaches this one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        state: StateDirectory,
        keys: Keys,
        url: Callable[[], str],
        public_url: str = "",
        relay: tuple[str, int] = ("", 0),
    ) -> None:
        self._start = partial(Startup, settings=settings, state=state, keys=keys, public_url=public_url, relay=relay)
        self._url = url
        self._agents: ClusterInstances | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Gateway]:
        """Open every part, and close all of them when the block ends. Yields what answers all requests."""
        async with AsyncExitStack() as stack:
            yield await self._open(self._start(stack, url=self._url()))

    def begin_leases(self) -> None:
        """Begin the leases of instances on other machines, whose agents reach the service from now on."""
        if self._agents is not None:
            self._agents.begin_leases()

    def end_waits(self) -> None:
        """Answer requests at once that wait for news: the service is about to end."""
        if self._agents is not None:
            self._agents.close()

    async def _open(self, start: Startup) -> Gateway:
        settings, region = start.settings, start.settings.region
        frameworks = Frameworks(settings.images)
        stores = await open_stores(start)
        records, objects, clock = stores.records, stores.objects, stores.clock
        executors = open_executors(start, stores)
        self._agents, executor = executors.agents, executors.executor
        access = Access.of(start, stores)
        drivers = await open_drivers(start, stores, executors, access, frameworks=frameworks)
        endpoints = drivers.endpoints
        hosting = Hosting(records, region=region, clock=clock, wake=endpoints.wake, frameworks=frameworks)
        queue = AsyncQueue(records, objects, endpoints, endpoint_of=hosting.in_service, roles=access.roles, clock=clock)
        start.stack.push_async_callback(queue.close)
        await queue.start()
        start.run(stores.sweep(), "sweep of objects")
        capabilities = Capabilities(
            frameworks=frameworks,
            no_network=executor.no_network,
            mounts=executor.isolation is not Isolation.PLAIN,
            clustered=self._agents is not None,
            # The machines of a cluster may come and go while a job waits.
            capacity=None if self._agents else executor.capacity(),
        )
        training = Training(
            records, objects, region=region, clock=clock, wake=drivers.training.wake, capabilities=capabilities
        )
        processing = Processing(
            records, objects, region=region, clock=clock, wake=drivers.processing.wake, capabilities=capabilities
        )
        transforms = TransformJobs(records, objects, region=region, clock=clock, wake=drivers.transforms.wake)
        registry = Registry(records, region=region, clock=clock)
        experiments = Experiments(records, region=region, clock=clock)
        components = TrialComponents(records, region=region, clock=clock)
        tags = Tags(records, clock=clock)
        pipelines, pipeline_driver = open_pipelines(start, stores, drivers)
        tuning = await open_tuning(start, stores, drivers, training, tags, when_ended=pipeline_driver.job_ended)
        services = {
            "sagemaker": SageMakerService(
                training,
                processing,
                hosting,
                transforms,
                tuning,
                registry,
                experiments,
                components,
                records,
                tags,
                access.kms,
                pipelines=pipelines,
                executions=pipeline_driver.executions,
            ),
            "sagemaker-metrics": MetricsService(MetricPoints(records, clock=clock)),
            "sagemaker-runtime": RuntimeService(
                hosting, endpoints, queue, region=region, timeout_s=settings.invoke_timeout_s
            ),
        }
        gateway = await open_gateway(start, stores, executors, access, services, pipeline_driver)
        # The models load in the background; an earlier request loads the model that it needs.
        start.run(asyncio.to_thread(gateway.warm), "models")
        return gateway
