"""Open pipelines, whose driver sends requests to the other services, and so starts after them."""

from tidemill.control.pipelines.driver import PipelineDriver
from tidemill.control.pipelines.pipelines import Pipelines
from tidemill.server.drivers import Drivers
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores


def open_pipelines(start: Startup, stores: Stores, drivers: Drivers) -> tuple[Pipelines, PipelineDriver]:
    """Return the pipelines and the driver of their executions, which is stopped when the service ends."""
    records, objects, clock = stores.records, stores.objects, stores.clock
    pipelines = Pipelines(records, objects, region=start.settings.region, clock=clock)
    driver = PipelineDriver(records, objects, pipelines, clock=clock)
    start.stack.push_async_callback(driver.close)
    for jobs in (drivers.training, drivers.processing, drivers.transforms):
        jobs.when_ended(driver.job_ended)
    return pipelines, driver
