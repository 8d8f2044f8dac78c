"""Open hyperparameter tuning, whose driver creates training jobs and so needs what other drivers do not."""

from collections.abc import Callable

from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.control.tuning.driver import TuningDriver
from tidemill.control.tuning.jobs import TuningJobs
from tidemill.core.tuning import TuningJob
from tidemill.server.drivers import Drivers
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores


async def open_tuning(
    start: Startup,
    stores: Stores,
    drivers: Drivers,
    training: Training,
    tags: Tags,
    metrics: TrainingMetrics,
    *,
    when_ended: Callable[[TuningJob], None],
) -> TuningJobs:
    """Start the driver of tuning jobs, stop it when the service ends, and return the jobs.

    Args:
        stores: Stores the jobs.
        drivers: Run the trainings.
        tags: Adds the tags of the tuning job to its trainings.
        metrics: The objectives, in the logs of the trainings.
        when_ended: Called with each tuning job that has ended.
    """
    records, clock = stores.records, stores.clock
    driver = TuningDriver(records, training, metrics, tags=tags, clock=clock)
    start.stack.push_async_callback(driver.close)
    drivers.training.when_ended(driver.training_ended)
    driver.when_ended(when_ended)
    await driver.start()
    return TuningJobs(records, training, region=start.settings.region, clock=clock, wake=driver.wake)
