"""Open the services by which jobs are observed: their metrics, and tidemill's own operations on jobs and their logs."""

from collections.abc import Mapping

from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.logs.groups import GroupRecords
from tidemill.control.tags import Tags
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.server.drivers import Drivers
from tidemill.server.metrics import metric_services
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page import PageService
from tidemill.services.page.jobs import JobOperations, JobResources
from tidemill.services.page.log_lines import LogLineOperations
from tidemill.store.logs.streams import LogStreams
from tidemill.wire.exchange import Service


def open_observation(
    start: Startup, stores: Stores, drivers: Drivers, metrics: TrainingMetrics
) -> Mapping[str, Service]:
    """Return the services by botocore's names.

    Args:
        stores: Stores the jobs.
        drivers: Know the queue, and the requests to endpoints.
        metrics: The metrics in the logs of training jobs.
    """
    records, clock, logs = stores.records, stores.clock, start.state.logs
    of_metrics = metric_services(
        records,
        metrics,
        drivers.endpoints.counts.history,
        InstanceSamples(records, logs=logs),
        region=start.settings.region,
        clock=clock,
    )
    resources = JobResources(records=records, tags=Tags(records, clock=clock), metrics=metrics, slots=drivers.slots)
    own = PageService(
        of_metrics["tidemill"],
        JobOperations(resources),
        LogLineOperations(
            LogStreams(logs),
            GroupRecords(records, clock=clock),
            search_cpu_s=start.settings.log_search_cpu_s,
        ),
    )
    return {**of_metrics, "tidemill": own}
