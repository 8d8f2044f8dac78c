"""The composition root: opens stores, executors, drivers and services, in this order, behind one gateway."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from tidemill.core.frameworks import Frameworks
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.server.access import Access
from tidemill.server.drivers import open_drivers
from tidemill.server.executors import open_executors
from tidemill.server.keys import Keys
from tidemill.server.monitors import open_monitors
from tidemill.server.sagemaker import open_sagemaker
from tidemill.server.services import open_gateway
from tidemill.server.startup import Startup
from tidemill.server.state import StateDirectory
from tidemill.server.stores import open_stores
from tidemill.server.tracing import open_tracing
from tidemill.server.webhooks import open_webhooks
from tidemill.settings import Settings
from tidemill.wire.gateway import Gateway


class Application:
    """All parts of the service, which are opened and closed together. Nothing is opened before `opened`.

    Args:
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
        self._ends_waits: list[Callable[[], None]] = []

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
        for end in self._ends_waits:
            end()

    async def _open(self, start: Startup) -> Gateway:
        frameworks = Frameworks(start.settings.images)
        start = replace(start, spans=open_tracing(start))
        stores = await open_stores(start)
        executors = open_executors(start, stores)
        self._agents, self._ends_waits = executors.agents, start.ends_waits
        if executors.agents is not None:
            start.ends_waits.append(executors.agents.close)
        access = Access.of(start, stores)
        webhooks = await open_webhooks(start, stores)
        drivers = await open_drivers(start, stores, executors, access, frameworks=frameworks)
        start.run(stores.sweep(), "sweep of objects")
        sagemaker, pipelines = await open_sagemaker(
            start, stores, access, drivers, capabilities=executors.capabilities(frameworks)
        )
        monitors = open_monitors(start, stores, executors, access, drivers, webhooks)
        gateway = await open_gateway(start, stores, executors, access, drivers, sagemaker, pipelines, monitors)
        # The models load in the background; an earlier request loads the model that it needs.
        start.run(asyncio.to_thread(gateway.warm), "models")
        return gateway
