"""Open CloudWatch Logs: the streams on disk, the records of groups, and what removes old events."""

from pathlib import Path

from tidemill.control.logs.groups import GroupRecords
from tidemill.control.logs.removal import LogRemoval
from tidemill.core.clock import Clock
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.logs import LogsService
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.streams import LogStreams
from tidemill.store.records.base import RecordStore

__all__ = ["logs_service", "open_logs"]


def open_logs(start: Startup, stores: Stores) -> LogsService:
    """Return the service of logs, and remove old events until the service ends.

    Args:
        start: The start of the service.
        stores: Stores the records of groups.
    """
    service, removal = logs_service(start.state.logs, stores.records, region=start.settings.region, clock=stores.clock)
    start.run(removal.run(), "removal of old logs")
    return service


def logs_service(root: Path, records: RecordStore, *, region: str, clock: Clock) -> tuple[LogsService, LogRemoval]:
    """Return the service of logs, and what removes old events.

    Args:
        root: Directory of all logs.
        records: Stores the records of groups.
        region: The region in ARNs.
        clock: Provides the time.
    """
    streams, writer, groups = LogStreams(root), PutStreams(root, clock=clock), GroupRecords(records, clock=clock)
    removal = LogRemoval(groups, streams, writer, clock=clock)
    return LogsService(streams, groups, writer, removal, region=region, clock=clock), removal
