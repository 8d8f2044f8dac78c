"""The operations of CloudWatch Logs that write: groups, their streams, events, retention and tags."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.control.logs.groups import GroupRecords, owner_of
from tidemill.control.logs.removal import LogRemoval
from tidemill.core.clock import Clock
from tidemill.core.segments import put_line
from tidemill.errors import AwsError
from tidemill.services.logs.groups import group_named, invalid, not_found
from tidemill.services.operations import Operations
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.streams import EVENT_OVERHEAD_BYTES, PAGE_MAX_BYTES, LogStreams
from tidemill.wire.exchange import Context

_HOUR_MS = 3600 * 1000
_BATCH_SPAN_MS = 24 * _HOUR_MS
_FUTURE_MS = 2 * _HOUR_MS
_PAST_MS = 14 * 24 * _HOUR_MS
_TAGS_MAX = 50
_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
_NEXT = "0"
"""Clients may pass it back as sequenceToken, which has no effect, as on CloudWatch."""


class LogWriting(Operations):
    """Writes groups, streams and events.

    Args:
        streams: The streams on disk, for reading.
        writer: Writes the streams of clients.
        removal: Removes streams.
    """

    def __init__(
        self,
        groups: GroupRecords,
        streams: LogStreams,
        writer: PutStreams,
        removal: LogRemoval,
        *,
        region: str,
        clock: Clock,
    ) -> None:
        self._groups = groups
        self._streams = streams
        self._writer = writer
        self._removal = removal
        self._region = region
        self._clock = clock

    async def create_log_group(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        name = request["logGroupName"]
        if name.startswith("aws/"):
            raise invalid(f"logGroupName {name!r} begins with aws/, which is not allowed; did you mean {'/' + name!r}?")
        tags, key = request.get("tags", {}), request.get("kmsKeyId")
        if self._streams.names(name) or not await self._groups.create(name, tags=tags, key=key):
            raise _exists("log group", name)
        return {}

    async def create_log_stream(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        group, name = request["logGroupName"], request["logStreamName"]
        self._check_group(group)
        owner = owner_of(group, name)
        if owner is not None:
            raise invalid(
                f"logStreamName {name!r} would pass for a stream of the {owner[0]} {owner[1]!r}: only jobs and"
                f" endpoints write streams with a slash into {group!r}. Choose a name without a slash, or another group"
            )
        if not await asyncio.to_thread(self._writer.create, group, name):
            raise _exists("log stream", name)
        return {}

    async def put_log_events(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Store the events whose time is allowed, and return which ones were not."""
        group, name, events = request["logGroupName"], request["logStreamName"], request["logEvents"]
        _check_batch(events)
        self._check_group(group)
        now_ms = self._clock.now_ms()
        times = [event["timestamp"] for event in events]
        too_old = sum(at_ms < now_ms - _PAST_MS for at_ms in times)
        expired = sum(at_ms < self._groups.shown_from_ms(group) for at_ms in times)
        too_new = sum(at_ms <= now_ms + _FUTURE_MS for at_ms in times)
        lines = [
            (at_ms, put_line(event["message"], at_ms=at_ms, ingested_ms=now_ms))
            for at_ms, event in zip(times, events, strict=True)
        ][max(too_old, expired) : too_new]
        if not await asyncio.to_thread(self._writer.append, group, name, lines):
            if self._streams.open(group, name) is not None:
                raise invalid(f"logStreamName {name!r} is the stream of a job or endpoint, which alone writes it")
            raise not_found("log stream", name)
        rejected = {
            "tooNewLogEventStartIndex": too_new if too_new < len(events) else None,
            "tooOldLogEventEndIndex": too_old or None,
            "expiredLogEventEndIndex": expired if expired > too_old else None,
        }
        shown = {member: index for member, index in rejected.items() if index is not None}
        return {"nextSequenceToken": _NEXT, **({"rejectedLogEventsInfo": shown} if shown else {})}

    async def delete_log_group(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        self._check_group(request["logGroupName"])
        await self._removal.group(request["logGroupName"])
        return {}

    async def delete_log_stream(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        group, name = request["logGroupName"], request["logStreamName"]
        self._check_group(group)
        if self._streams.open(group, name) is None:
            raise not_found("log stream", name)
        await self._removal.stream(group, name)
        return {}

    async def put_retention_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        group, days = request["logGroupName"], request["retentionInDays"]
        if days not in _RETENTION_DAYS:
            raise invalid(f"retentionInDays is {days}; allowed are {', '.join(map(str, _RETENTION_DAYS))}")
        self._check_group(group)
        await self._groups.change(group, lambda document: {**document, "retention_days": days})
        return {}

    async def delete_retention_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        group = request["logGroupName"]
        self._check_group(group)
        await self._groups.change(group, lambda document: {**document, "retention_days": None})
        return {}

    async def tag_resource(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        added: Mapping[str, str] = request["tags"]

        def with_tags(document: Mapping[str, Any]) -> dict[str, Any]:
            tags = {**document.get("tags", {}), **added}
            if len(tags) > _TAGS_MAX:
                raise AwsError(
                    f"The log group would have {len(tags)} tags; allowed are {_TAGS_MAX}. Remove some first",
                    code="TooManyTagsException",
                )
            return {**document, "tags": tags}

        await self._groups.change(self._tagged(request), with_tags)
        return {}

    async def untag_resource(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        removed = set(request["tagKeys"])

        def without_tags(document: Mapping[str, Any]) -> dict[str, Any]:
            tags = {key: value for key, value in document.get("tags", {}).items() if key not in removed}
            return {**document, "tags": tags}

        await self._groups.change(self._tagged(request), without_tags)
        return {}

    async def list_tags_for_resource(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        document = self._groups.get(self._tagged(request)) or {}
        return {"tags": dict(document.get("tags", {}))}

    def _tagged(self, request: Mapping[str, Any]) -> str:
        group = group_named(request["resourceArn"], region=self._region)
        self._check_group(group)
        return group

    def _check_group(self, group: str) -> None:
        if self._groups.get(group) is None and not self._streams.names(group):
            raise not_found("log group", group)


def _check_batch(events: list[dict[str, Any]]) -> None:
    size_bytes = sum(len(each["message"].encode("utf-8", "surrogatepass")) + EVENT_OVERHEAD_BYTES for each in events)
    if size_bytes > PAGE_MAX_BYTES:
        raise invalid(
            f"logEvents has {size_bytes:,} bytes, {EVENT_OVERHEAD_BYTES} for each event included; a batch has at most"
            f" {PAGE_MAX_BYTES:,}. Send several"
        )
    times = [event["timestamp"] for event in events]
    if times != sorted(times):
        raise invalid("Log events in a single PutLogEvents request must be in chronological order; sort logEvents")
    if times and times[-1] - times[0] > _BATCH_SPAN_MS:
        raise invalid("The events of a single PutLogEvents request must be within 24 hours; send several batches")


def _exists(what: str, name: str) -> AwsError:
    return AwsError(f"The specified {what} already exists: {name!r}", code="ResourceAlreadyExistsException")
