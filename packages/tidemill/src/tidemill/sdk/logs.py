"""Read a job's log lines from all its instances, each line once and in order.

A page has up to 10,000 events. botocore's parser visits each member of each event in Python, which costs five times as
much as the rest of following a log. JSON pages are therefore decoded here, in a hook of botocore's; botocore parses all
other answers.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any

TRAINING_JOBS = "/aws/sagemaker/TrainingJobs"
_MAX_PAGES = 20
_BATCH_LINES = 10_000
_STARTED_S = re.compile(r"-[0-9]+$")


LogLine = tuple[int, str, str]
"""Time at which the service received the line, in milliseconds since the epoch; text of the line as the script wrote
it; name of its instance, e.g. ``algo-2``. A plain tuple, because a job may write millions of lines."""

_timestamp = itemgetter("timestamp")
_message = itemgetter("message")


class StreamReader:
    """Reads one log stream, each event once. The next call continues after the last page read.

    Args:
        client: boto3's ``logs`` client. The attribute of this name may be replaced, e.g. when the service has moved.
        group: Log group.
        stream: Log stream.
        ask: Wraps each request, e.g. to retry it while the service is unreachable.
        since_ms: Only events of then or later, in milliseconds since the epoch. Default: all.
        newest: Begin with so many of the newest events, at most 10,000. Default: with the first.
    """

    def __init__(
        self,
        client: Any,
        *,
        group: str,
        stream: str,
        ask: Callable[[Callable[[], Any]], Any] | None = None,
        since_ms: int | None = None,
        newest: int | None = None,
    ) -> None:
        self.client = client
        self._ask = ask or _once
        self._place: dict[str, Any] = {
            "logGroupName": group,
            "logStreamName": stream,
            "startFromHead": newest is None,
            **({} if since_ms is None else {"startTime": since_ms}),
            **({} if newest is None else {"limit": newest}),
        }

    @property
    def client(self) -> Any:
        """boto3's ``logs`` client."""
        return self._client

    @client.setter
    def client(self, client: Any) -> None:
        self._client = client
        client.meta.events.register(
            "before-parse.cloudwatch-logs.GetLogEvents", _decode_page, unique_id="tidemill-decode-page"
        )

    def pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the new events page by page, until the stream has no more for now."""
        while True:
            page = self._ask(lambda: self.client.get_log_events(**self._place))
            moved = page["nextForwardToken"] != self._place.get("nextToken")
            self._place.pop("limit", None)  # of the first request only
            self._place["nextToken"] = page["nextForwardToken"]
            if page["events"]:
                yield page["events"]
            if not moved or not page["events"]:
                return


class LogTail:
    """Reads the new lines of a job since the last read, with the service's page tokens.

    Args:
        client: boto3's ``logs`` client.
        group: Log group.
        prefix: Prefix of the names of the job's streams, one per instance.
        instances: Number of streams.
        ask: Wraps each request, e.g. to retry it while the service is unreachable.
    """

    def __init__(
        self,
        client: Any,
        *,
        group: str = TRAINING_JOBS,
        prefix: str,
        instances: int,
        ask: Callable[[Callable[[], Any]], Any] | None = None,
    ) -> None:
        self._client = client
        self._ask = ask or _once
        self._group = group
        self._prefix = prefix
        self.instances = instances
        self._streams: dict[str, StreamReader] = {}

    @property
    def several(self) -> bool:
        """Whether the job has more than one instance."""
        return max(self.instances, len(self._streams)) > 1

    def read(self, *, everything: bool = False) -> Iterator[list[LogLine]]:
        """Yield the new lines of all streams, ordered by time, in batches of up to 10,000.

        Args:
            everything: Whether to read to the end even if lines arrive faster than they are read; for ended jobs.
        """
        self._find_streams()
        max_pages = None if everything else _MAX_PAGES
        names = sorted(self._streams, key=instance_order)
        return merged({instance_of(name): islice(self._streams[name].pages(), max_pages) for name in names})

    def _find_streams(self) -> None:
        if len(self._streams) >= self.instances:
            return
        try:
            found = self._ask(
                lambda: self._client.describe_log_streams(
                    logGroupName=self._group, logStreamNamePrefix=self._prefix, orderBy="LogStreamName"
                )
            )
        except self._client.exceptions.ResourceNotFoundException:
            return  # no instance has written a line yet
        names = [stream["logStreamName"] for stream in found["logStreams"]]
        for name in sorted(set(names) - set(self._streams), key=instance_order):
            self._streams[name] = StreamReader(self._client, group=self._group, stream=name, ask=self._ask)


def instance_of(stream: str) -> str:
    """Return the name of the instance that writes a log stream: ``algo-2`` for ``JOB/algo-2-1700000000``.

    For other streams, e.g. those of endpoints (``VARIANT/i-0123abc``), return the part after the first slash.

    Args:
        stream: Name of the stream.
    """
    name = stream.partition("/")[2] or stream
    return _STARTED_S.sub("", name) if name.startswith("algo-") and name.count("-") > 1 else name


def instance_order(stream: str) -> tuple[int, str]:
    """Return the key that sorts log streams by instance: ``JOB/algo-10`` comes after ``JOB/algo-2``.

    Args:
        stream: Name of the stream.
    """
    number = stream.rpartition("/")[2].removeprefix("algo-").partition("-")[0]
    return (int(number) if number.isdigit() else 0, stream)


def merged(pages: Mapping[str, Iterable[list[dict[str, Any]]]]) -> Iterator[list[LogLine]]:
    """Yield the lines of several instances ordered by time, in batches of up to 10,000.

    Lines of one instance keep their order; lines with equal times come in the order of ``pages``.

    Args:
        pages: Pages of events by the name of their instance.
    """
    lines = heapq.merge(*(_lines(each, instance) for instance, each in pages.items()), key=itemgetter(0))
    while batch := list(islice(lines, _BATCH_LINES)):
        yield batch


def _once(request: Callable[[], Any]) -> Any:
    return request()


def _lines(pages: Iterable[list[dict[str, Any]]], instance: str) -> Iterator[LogLine]:
    return chain.from_iterable(zip(map(_timestamp, page), map(_message, page), repeat(instance)) for page in pages)


def _decode_page(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Copy the members of a page into the answer unchanged, and leave an empty page for botocore to parse."""
    media_type = response_dict["headers"].get("content-type", "")
    if response_dict["status_code"] != 200 or not media_type.startswith("application/x-amz-json"):
        return
    try:
        page = json.loads(response_dict["body"])
    except ValueError:
        return  # botocore reports the error
    if isinstance(page, dict):
        customized_response_dict.update(page)
        response_dict["body"] = b"{}"
