"""Amazon CloudWatch: the metrics of training jobs."""

from tidemill.services.cloudwatch.service import CloudWatchService

__all__ = ["CloudWatchService"]
