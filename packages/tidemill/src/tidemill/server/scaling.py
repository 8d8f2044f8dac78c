"""Open Application Auto Scaling, and start what follows its policies."""

from tidemill.control.hosting import Hosting
from tidemill.control.scaling.autoscaler import Autoscaler
from tidemill.control.scaling.targets import ScalableTargets
from tidemill.server.drivers import Drivers
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.autoscaling import AutoScalingService


def open_scaling(start: Startup, stores: Stores, drivers: Drivers, hosting: Hosting) -> AutoScalingService:
    """Return the service; the autoscaler runs until the service ends.

    Args:
        stores: Stores records.
        drivers: Count the requests of endpoints.
        hosting: Changes the endpoints.
    """
    targets = ScalableTargets(stores.records, clock=stores.clock)
    autoscaler = Autoscaler(
        targets,
        hosting,
        invocations=drivers.endpoints.invocations,
        clock=stores.clock,
        capacity=lambda: drivers.endpoints.capacity,
    )
    start.run(autoscaler.run(), "automatic scaling")
    return AutoScalingService(targets, region=start.settings.region)
