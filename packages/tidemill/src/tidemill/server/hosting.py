"""Open models and endpoints, and the service that sends requests to them."""

from tidemill.control.admission import Capabilities
from tidemill.control.async_queue import AsyncQueue
from tidemill.control.hosting import Hosting
from tidemill.server.access import Access
from tidemill.server.drivers import Drivers
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.runtime import RuntimeService


async def open_hosting(
    start: Startup, stores: Stores, access: Access, drivers: Drivers, *, capabilities: Capabilities
) -> tuple[Hosting, RuntimeService]:
    """Return the models and endpoints, and the service of their requests. Requests that were kept are sent again.

    Args:
        access: Says what the roles of endpoints may do.
        drivers: Run the endpoints.
        capabilities: What the service can honor in requests.
    """
    settings, region, endpoints = start.settings, start.settings.region, drivers.endpoints
    records, clock = stores.records, stores.clock
    hosting = Hosting(records, region=region, clock=clock, wake=endpoints.wake, frameworks=capabilities.frameworks)
    queue = AsyncQueue(
        records, stores.objects, endpoints, endpoint_of=hosting.in_service, roles=access.roles, clock=clock
    )
    start.stack.push_async_callback(queue.close)
    await queue.start()
    runtime = RuntimeService(
        hosting, endpoints, queue, region=region, timeout_s=settings.invoke_timeout_s, spans=start.spans
    )
    return hosting, runtime
