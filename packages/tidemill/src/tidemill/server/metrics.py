"""Open the services of metrics: those of trial components, CloudWatch's, and the curves of the page."""

from collections.abc import Mapping

from tidemill.control.custom_metrics import CustomMetrics
from tidemill.control.endpoints.call_history import CallHistory
from tidemill.control.experiments.points import MetricPoints
from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.core.clock import Clock
from tidemill.services.cloudwatch import CloudWatchService
from tidemill.services.metrics import MetricsService
from tidemill.services.page import PageService
from tidemill.services.page.metric_points import MetricPointOperations
from tidemill.store.records.base import RecordStore
from tidemill.wire.exchange import Service


def metric_services(
    records: RecordStore,
    training: TrainingMetrics,
    calls: CallHistory,
    samples: InstanceSamples,
    *,
    region: str,
    clock: Clock,
) -> Mapping[str, Service]:
    """Return the services by botocore's names.

    Args:
        records: Stores what clients put.
        training: The metrics in the logs of training jobs.
        calls: The requests to endpoints.
    """
    return {
        "sagemaker-metrics": MetricsService(MetricPoints(records, clock=clock), training),
        "cloudwatch": CloudWatchService(
            training, CustomMetrics(records, clock=clock), calls, samples, region=region, clock=clock
        ),
        "tidemill": PageService(MetricPointOperations(training)),
    }
