"""Amazon CloudWatch Logs: the streams of jobs and endpoints, for reading."""

from tidemill.services.logs.service import LogsService

__all__ = ["LogsService"]
