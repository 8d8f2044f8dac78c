"""Open CloudWatch Logs: the streams on disk, the records of groups, and what removes old events."""

from dataclasses import dataclass
from pathlib import Path

from tidemill.control.logs.groups import GroupRecords
from tidemill.control.logs.insights.queries import LogQueries
from tidemill.control.logs.removal import LogRemoval
from tidemill.core.clock import Clock
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.logs import LogsService
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.streams import LogStreams
from tidemill.store.records.base import RecordStore


def open_logs(start: Startup, stores: Stores) -> LogsService:
    """Return the service of logs, and remove old events until the service ends.

    Args:
        stores: Stores the records of groups.
    """
    parts = LogParts.of(start.state.logs, stores.records, region=start.settings.region, clock=stores.clock)
    start.stack.push_async_callback(parts.queries.close)
    start.run(parts.removal.run(), "removal of old logs")
    return parts.service


@dataclass(frozen=True, slots=True)
class LogParts:
    """The service of logs and what works beside it.

    Attributes:
        service: Answers requests.
        removal: Removes old events.
        queries: Queries that run, which end with `LogQueries.close`.
    """

    service: LogsService
    removal: LogRemoval
    queries: LogQueries

    @classmethod
    def of(cls, root: Path, records: RecordStore, *, region: str, clock: Clock) -> "LogParts":
        """Make them.

        Args:
            root: Directory of all logs.
        """
        streams, writer, groups = LogStreams(root), PutStreams(root, clock=clock), GroupRecords(records, clock=clock)
        removal, queries = LogRemoval(groups, streams, writer, clock=clock), LogQueries(clock=clock)
        service = LogsService(streams, groups, writer, removal, queries, region=region, clock=clock)
        return cls(service, removal, queries)
