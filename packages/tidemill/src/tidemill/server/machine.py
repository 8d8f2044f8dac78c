"""Open the operations about this machine, its environments and archives, and the servers of endpoints."""

import importlib.metadata
import os
import platform
from collections.abc import Sequence
from functools import partial
from typing import Any

from tidemill import __version__
from tidemill.control.hosting import Hosting
from tidemill.environments.builder import Environments
from tidemill.server.doctor import examine
from tidemill.server.drivers import Drivers
from tidemill.server.executors import Executors
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page.archives import ArchiveOperations
from tidemill.services.page.doctor import DoctorOperations
from tidemill.services.page.endpoints import EndpointOperations
from tidemill.services.page.environments import EnvironmentOperations
from tidemill.services.page.machine import MachineFacts, MachineOperations
from tidemill.services.times import when
from tidemill.wire.exchange import Service

_DISTRIBUTIONS = ("botocore", "boto3", "SQLAlchemy", "uv", "tidemill-runtime", "tidemill-serving")


def open_places(start: Startup, stores: Stores, executors: Executors, drivers: Drivers) -> Sequence[Service]:
    """Return the operations.

    Args:
        stores: Stores the objects and endpoints.
        executors: Run the instances.
        drivers: Know the queue, and the servers of endpoints.
    """
    settings = start.settings
    machine = MachineFacts(
        slots=drivers.slots,
        capacity=executors.executor.capacity,
        disks={"state": start.state.root, "environments": settings.environments_dir.absolute()},
        service=_service(start, stores, executors),
        versions=_versions(),
    )
    hosting = Hosting(stores.records, region=settings.region, clock=stores.clock, wake=drivers.endpoints.wake)
    return (
        ArchiveOperations(stores.objects),
        MachineOperations(machine),
        EnvironmentOperations(Environments(settings.environments_dir.absolute())),
        DoctorOperations(partial(examine, settings)),
        EndpointOperations(hosting, drivers.endpoints),
    )


def _service(start: Startup, stores: Stores, executors: Executors) -> dict[str, Any]:
    settings = start.settings
    return {
        "Url": start.url,
        **({"PublicUrl": start.public_url} if start.public_url else {}),
        "Region": settings.region,
        "StateDir": str(start.state.root),
        "Pid": os.getpid(),
        "StartTime": when(stores.clock.now_ms()),
        "Isolation": str(executors.executor.isolation),
        "IsolationReason": executors.isolation_reason,
        "Warm": settings.warm,
        "Executor": settings.executor,
        "DefaultFramework": settings.default_framework,
    }


def _versions() -> dict[str, str]:
    """Return the versions of tidemill, Python, and the distributions on which it depends most."""
    found = {"tidemill": __version__, "Python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
