"""FilterLogEvents: the events of a group's streams in the order of time."""

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.control.logs.groups import GroupRecords
from tidemill.services.logs.groups import group_of, invalid, not_found
from tidemill.store.logs.search import FoundEvent, FoundPage, Search, search
from tidemill.store.logs.spans import StreamSpans
from tidemill.store.logs.streams import EVENTS_MAX, LogStreams
from tidemill.store.logs.terms import LogTerms


class LogFilter:
    """FilterLogEvents over the streams on disk.

    ``interleaved`` has no effect, as on CloudWatch; neither has ``unmask``, since nothing is masked.
    """

    def __init__(self, streams: LogStreams, groups: GroupRecords, *, region: str) -> None:
        self._streams = streams
        self._groups = groups
        self._region = region
        self._spans = StreamSpans()

    async def events(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return one page of events; the last one has no nextToken."""
        group = group_of(request, region=self._region)
        wanted = _search_of(request, since_ms=self._groups.shown_from_ms(group))
        is_created = self._groups.get(group) is not None
        page = await asyncio.to_thread(self._search, group, request, wanted, is_created=is_created)
        reply: dict[str, Any] = {"events": [_wire(event) for event in page.events], "searchedLogStreams": []}
        return reply | ({"nextToken": page.next_token} if page.next_token else {})

    def _search(self, group: str, request: Mapping[str, Any], wanted: Search, *, is_created: bool) -> FoundPage:
        try:
            return search(self._named(group, request, is_created=is_created), wanted, spans=self._spans)
        except ValueError as error:
            raise invalid(f"The specified nextToken is invalid: {error}") from error

    def _named(self, group: str, request: Mapping[str, Any], *, is_created: bool) -> list[tuple[str, Path]]:
        present = self._streams.names(group, prefix=request.get("logStreamNamePrefix", ""))
        names = sorted(set(request.get("logStreamNames", present)))
        if not present and not is_created and not self._streams.names(group):
            raise not_found("log group", group)
        if "logStreamNames" in request:
            missing = sorted(set(names) - set(present))
            if missing:
                raise not_found("log stream", missing[0])
        return [(name, self._streams.directory(group, name)) for name in names]


def _search_of(request: Mapping[str, Any], *, since_ms: int) -> Search:
    if "logStreamNames" in request and "logStreamNamePrefix" in request:
        raise invalid("logStreamNames and logStreamNamePrefix cannot be combined; give one of them")
    if request.get("startFromHead") is False:
        raise invalid(
            "startFromHead=False is not offered: events come in the order of time. Give startTime, or use GetLogEvents"
            " for the end of a stream"
        )
    start_ms, end_ms = request.get("startTime", 0), request.get("endTime")
    if end_ms is not None and end_ms < start_ms:
        raise invalid(f"endTime {end_ms} is before startTime {start_ms}; swap them")
    try:
        terms = LogTerms.parse(request.get("filterPattern", ""))
    except ValueError as error:
        raise invalid(f"Invalid filter pattern: {error}") from error
    return Search(
        terms=terms,
        start_ms=max(start_ms, since_ms),
        end_ms=end_ms,
        limit=request.get("limit", EVENTS_MAX),
        token=request.get("nextToken"),
    )


def _wire(event: FoundEvent) -> dict[str, Any]:
    return {
        "logStreamName": event.stream,
        "timestamp": event.timestamp_ms,
        "message": event.message,
        "ingestionTime": event.ingested_ms,
        "eventId": _event_id(event),
    }


def _event_id(event: FoundEvent) -> str:
    """Return an event id of 56 digits, as CloudWatch's. Clients that follow a log use it to skip repeated events."""
    stream = int.from_bytes(hashlib.blake2b(event.stream.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return f"{event.timestamp_ms:015}{stream:020}{event.position.segment:08}{event.position.offset:013}"
