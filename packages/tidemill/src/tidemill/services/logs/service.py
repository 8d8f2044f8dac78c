"""The operations of CloudWatch Logs, over the log segments."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.control.logs.groups import GroupRecords
from tidemill.control.logs.insights.queries import LogQueries
from tidemill.control.logs.removal import LogRemoval
from tidemill.core.clock import Clock
from tidemill.core.names import ACCOUNT_ID
from tidemill.services.logs.filtering import LogFilter
from tidemill.services.logs.groups import LogGroups, group_of, invalid, not_found
from tidemill.services.logs.querying import LogQuerying
from tidemill.services.logs.writing import LogWriting
from tidemill.services.operations import Operations
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.streams import LogReader, LogStream, LogStreams
from tidemill.wire.exchange import Context, Handler

_EVENTS_DEFAULT = 10_000


class LogsService(Operations):
    """Amazon CloudWatch Logs.

    Args:
        writer: Writes the streams of clients.
        removal: Removes streams.
        queries: The queries of Logs Insights.
    """

    def __init__(
        self,
        streams: LogStreams,
        groups: GroupRecords,
        writer: PutStreams,
        removal: LogRemoval,
        queries: LogQueries,
        *,
        region: str,
        clock: Clock,
    ) -> None:
        self._streams = streams
        self._records = groups
        self._writing = LogWriting(groups, streams, writer, removal, region=region, clock=clock)
        self._querying = LogQuerying(groups, streams, queries, region=region)
        self._region = region
        self._groups = LogGroups(streams, groups, region=region)
        self._filter = LogFilter(streams, groups, region=region)

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {**super().handlers, **self._writing.handlers, **self._querying.handlers}

    async def describe_log_groups(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._groups.describe(request)

    async def filter_log_events(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await self._filter.events(request)

    async def describe_log_streams(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return all matching streams in one reply: AWS's SDKs do not pass a nextToken back, and would loop forever."""
        group = group_of(request, region=self._region)
        is_created = self._records.get(group) is not None
        found = await asyncio.to_thread(self._describe, group, request.get("logStreamNamePrefix", ""))
        if found is None and not is_created:
            raise not_found("log group", group)
        found = found or []
        if request.get("orderBy") == "LastEventTime":
            found.sort(key=lambda stream: stream.last_event_ms or 0)
        if request.get("descending"):
            found.reverse()
        return {"logStreams": [self._wire(stream) for stream in found]}

    async def get_log_events(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        group, name = group_of(request, region=self._region), request["logStreamName"]
        reader = self._streams.open(group, name)
        if reader is None:
            raise not_found("log stream", name)
        return await asyncio.to_thread(_page, reader, request, since_ms=self._records.shown_from_ms(group))

    def _describe(self, group: str, prefix: str) -> list[LogStream] | None:
        """Return the streams of a group; None if it is not shown unless a client has created it.

        As on CloudWatch, clients see a stream of a job from its first line on, and a group of jobs from the first line
        of any stream on.
        """
        described = (self._streams.describe(group, name) for name in self._streams.names(group, prefix=prefix))
        found = [stream for stream in described if stream is not None and _is_shown(stream)]
        return found if found or self._has_line(group) else None

    def _has_line(self, group: str) -> bool:
        readers = (self._streams.open(group, name) for name in self._streams.names(group))
        return any(reader is not None and reader.first_event_ms() is not None for reader in readers)

    def _wire(self, stream: LogStream) -> dict[str, Any]:
        times = {
            "firstEventTimestamp": stream.first_event_ms,
            "lastEventTimestamp": stream.last_event_ms,
            "lastIngestionTime": stream.last_ingested_ms,
        }
        return {
            "logStreamName": stream.name,
            "creationTime": stream.created_ms,
            **{name: at_ms for name, at_ms in times.items() if at_ms is not None},
            "storedBytes": stream.stored_bytes,
            "arn": f"arn:aws:logs:{self._region}:{ACCOUNT_ID}:log-group:{stream.group}:log-stream:{stream.name}",
        }


def _is_shown(stream: LogStream) -> bool:
    return stream.of_client or stream.first_event_ms is not None


def _page(reader: LogReader, request: Mapping[str, Any], *, since_ms: int) -> dict[str, Any]:
    try:
        page = reader.read(
            token=request.get("nextToken"),
            start_from_head=request.get("startFromHead", False),
            start_time_ms=max(request.get("startTime", 0), since_ms) or None,
            end_time_ms=request.get("endTime"),
            limit=request.get("limit", _EVENTS_DEFAULT),
        )
    except ValueError as error:
        raise invalid(f"The specified nextToken {request.get('nextToken')!r} is invalid: {error}") from error
    return {
        "events": [
            {"timestamp": event.timestamp_ms, "message": event.message, "ingestionTime": event.ingested_ms}
            for event in page.events
        ],
        "nextForwardToken": page.forward_token,
        "nextBackwardToken": page.backward_token,
    }
