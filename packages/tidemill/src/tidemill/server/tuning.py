"""Open hyperparameter tuning, whose driver creates training jobs and so needs what other drivers do not."""

from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.control.tuning.driver import TuningDriver
from tidemill.control.tuning.jobs import TuningJobs
from tidemill.server.drivers import Drivers
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores

__all__ = ["open_tuning"]


async def open_tuning(start: Startup, stores: Stores, drivers: Drivers, training: Training, tags: Tags) -> TuningJobs:
    """Start the driver of tuning jobs, stop it when the service ends, and return the jobs."""
    records, clock = stores.records, stores.clock
    metrics = TrainingMetrics(records, logs=start.state.logs)
    driver = TuningDriver(records, training, metrics, tags=tags, clock=clock)
    start.stack.push_async_callback(driver.close)
    drivers.training.when_ended(driver.training_ended)
    await driver.start()
    return TuningJobs(records, training, region=start.settings.region, clock=clock, wake=driver.wake)
