"""Open the executors that the settings select: instances run on this machine or on those of a cluster."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from tidemill.control.admission import Capabilities
from tidemill.core.frameworks import Frameworks
from tidemill.core.instances import Isolation
from tidemill.executors.base import Executor
from tidemill.executors.cluster.executor import ClusterExecutor
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.executors.local import LocalExecutor
from tidemill.executors.split import SplitExecutor
from tidemill.sandbox.private_files import credential_files
from tidemill.server.placements import open_placement
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.settings import Settings
from tidemill.store.leases import SqlLeaseRecords
from tidemill.store.logs.sink import SegmentSink

_log = structlog.get_logger("tidemill.server")
_LINKS_IDLE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """Where instances run.

    Attributes:
        isolation_reason: A sentence that says which sandbox the jobs of this machine get, and why.
        fast_file_fault: As in `tidemill.control.channels.ChannelResolver`.
        agents: Receives the reports of instances on other machines; None if all run on this one.
        keep_clean: Removes what ended jobs of this machine left, until cancelled. To be run once the instances of
            earlier services are known.
    """

    executor: Executor
    isolation_reason: str
    fast_file_fault: Callable[[], str]
    agents: ClusterInstances | None
    keep_clean: Callable[[], Coroutine[Any, Any, None]]

    def capabilities(self, frameworks: Frameworks) -> Capabilities:
        """Return what the service can honor in requests.

        Args:
            frameworks: Selects the environments of jobs.
        """
        return Capabilities(
            frameworks=frameworks,
            no_network=self.executor.no_network,
            mounts=self.executor.isolation is not Isolation.PLAIN,
            clustered=self.agents is not None,
            # The machines of a cluster may come and go while a job waits.
            capacity=None if self.agents else self.executor.capacity(),
        )


def open_executors(start: Startup, stores: Stores) -> Executors:
    """Open the executors, and close them when the service ends; the instances continue to run.

    Raises:
        ConfigurationError: An executor lacks a package, or the isolation does not work here.
    """
    settings, state = start.settings, start.state
    local = LocalExecutor(
        state_dir=state.root,
        environments_dir=settings.environments_dir,
        isolation=settings.isolation,
        instances=settings.max_instances,
        content_file=stores.objects.contents.location,
        remotes=settings.remote_s3,
        logs=state.logs,
        service_url=start.url,
        gpus=settings.gpus,
        share_gpus=settings.share_gpus,
        fast_file_cache_max_bytes=settings.fast_file_cache_max_bytes,
        private=private_paths(settings),
        readable=settings.readable_paths,
    )
    start.stack.callback(local.close)
    if settings.warm:
        local.warm_up(settings.default_framework)
    cluster = None if settings.executor == "local" else _open_cluster(start, stores)
    executor: Executor = SplitExecutor(local, cluster, servers=settings.cluster_servers) if cluster else local
    _log.info("service.isolation", mode=str(executor.isolation), reason=local.isolation_reason)
    _log.info("service.capacity", **asdict(executor.capacity()))
    return Executors(
        executor=executor,
        isolation_reason=local.isolation_reason,
        # With a cluster, only the machine of an instance knows; its shim refuses.
        fast_file_fault=str if cluster else local.fast_file_fault,
        agents=cluster.instances if cluster else None,
        keep_clean=partial(_remove_unused, local),
    )


def private_paths(settings: Settings) -> tuple[Path, ...]:
    """Return the files with secrets of the service and of its user that the settings and the environment name.

    Args:
        settings: Settings of the service.
    """
    tls_key = () if settings.tls_key is None else (settings.tls_key.absolute(),)
    return (*tls_key, *credential_files(os.environ))


def _open_cluster(start: Startup, stores: Stores) -> ClusterExecutor:
    settings, state = start.settings, start.state
    if not start.public_url:
        _log.warning("cluster.one_machine", reason="other machines cannot reach the service: set host, and TLS")
    cluster = ClusterExecutor(
        state.root / "cluster",
        open_placement(settings, state.root),
        logs=SegmentSink(state.logs),
        leases=SqlLeaseRecords(stores.database),
        service_url=lambda: start.public_url or start.url,
        lease_s=settings.lease_s,
        isolation=settings.isolation,
    )
    start.stack.callback(cluster.close)
    start.run(cluster.instances.keep_time(), "time of leases")
    return cluster


async def _remove_unused(local: LocalExecutor) -> None:
    """Remove the links to the data of jobs a while after the last job with that data, and what jobs left behind."""
    while True:
        try:
            removed = await asyncio.to_thread(local.remove_unused_links, idle_s=_LINKS_IDLE_S)
            if removed:
                _log.info("links.removed", directories=removed)
            await asyncio.to_thread(local.remove_leftovers)
        except OSError as error:
            _log.warning("clean_up.delayed", reason=str(error))
        await asyncio.sleep(_LINKS_IDLE_S / 10)
