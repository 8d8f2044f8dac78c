"""Amazon CloudWatch Logs: the streams of jobs, endpoints and clients."""

from tidemill.services.logs.service import LogsService

__all__ = ["LogsService"]
