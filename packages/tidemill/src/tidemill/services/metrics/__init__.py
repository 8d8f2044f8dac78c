"""Amazon SageMaker Metrics: the metrics of trial components."""

from tidemill.services.metrics.service import MetricsService

__all__ = ["MetricsService"]
