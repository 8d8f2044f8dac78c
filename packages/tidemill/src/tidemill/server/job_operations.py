"""Open tidemill's own operations on jobs and their logs."""

from collections.abc import Sequence

from tidemill.control.logs.groups import GroupRecords
from tidemill.control.tags import Tags
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.server.drivers import Drivers
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page.jobs import JobOperations, JobResources
from tidemill.services.page.log_lines import LogLineOperations
from tidemill.store.logs.streams import LogStreams
from tidemill.wire.exchange import Service


def open_job_operations(
    start: Startup, stores: Stores, drivers: Drivers, metrics: TrainingMetrics
) -> Sequence[Service]:
    """Return the operations.

    Args:
        start: The start of the service.
        stores: Stores the jobs.
        drivers: Know the queue.
        metrics: The metrics in the logs of training jobs.
    """
    records, clock = stores.records, stores.clock
    resources = JobResources(
        records=records,
        tags=Tags(records, clock=clock),
        metrics=metrics,
        slots=drivers.slots,
    )
    return (
        JobOperations(resources),
        LogLineOperations(LogStreams(start.state.logs), GroupRecords(records, clock=clock)),
    )
