"""Queries that run and that have ended. They are in memory only: a restart of the service forgets them."""

import asyncio
import json
import signal
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from tidemill.control.logs.insights.commands import InsightsQuery
from tidemill.control.logs.insights.program import QueryAnswer, QueryTask
from tidemill.core.clock import Clock
from tidemill.errors import TidemillError

_AT_ONCE = 2
_CPU_S = 300
_MEMORY_BYTES = 4 * 1024**3
_KEPT = 1000
_KEPT_BYTES = 32 * 1024 * 1024

_log = structlog.get_logger("tidemill.logs")

SearchedStream = tuple[str, str, str, int]
"""``ACCOUNT:GROUP``, name of the stream, its directory, and since when its events are shown."""


class QueryStatus(StrEnum):
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    TIMEOUT = "Timeout"


@dataclass(slots=True, kw_only=True)
class LogQuery:
    """One query.

    Attributes:
        query_id: Its id.
        text: As it was sent.
        groups: Names of the log groups.
        caller: ARN of its sender.
        created_ms: Milliseconds since the epoch.
        ended_ms: When it ended; 0 before.
        answer: Its result, once it is complete.
        size_bytes: Bytes of the result.
    """

    query_id: str
    text: str
    groups: Sequence[str]
    caller: str
    created_ms: int
    status: QueryStatus = QueryStatus.SCHEDULED
    ended_ms: int = 0
    answer: QueryAnswer | None = None
    size_bytes: int = 0
    _task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    @property
    def is_ended(self) -> bool:
        return self.status not in (QueryStatus.SCHEDULED, QueryStatus.RUNNING)


class LogQueries:
    """Runs each query in a separate process, two at a time, and keeps the last 32 MiB of results.

    Args:
        clock: Provides the time.
        cpu_s: Seconds of CPU that a query may take.
    """

    def __init__(self, *, clock: Clock, cpu_s: int = _CPU_S) -> None:
        self._clock = clock
        self._cpu_s = cpu_s
        self._running = asyncio.Semaphore(_AT_ONCE)
        self._queries: dict[str, LogQuery] = {}

    def start(
        self,
        text: str,
        streams: Callable[[], Sequence[SearchedStream]],
        *,
        groups: Sequence[str],
        start_ms: int,
        end_ms: int,
        limit: int,
        caller: str,
    ) -> LogQuery:
        """Start a query.

        Args:
            text: The query.
            streams: Returns the streams to search; called in a thread.
            groups: Names of their groups.
            start_ms: Earliest time, in milliseconds since the epoch.
            end_ms: Latest time.
            limit: Most events in the result.
            caller: ARN of the sender.

        Raises:
            MalformedQuery: The text is not a query, or one that is not offered.
        """
        InsightsQuery.parse(text, limit=limit)
        query = LogQuery(
            query_id=str(uuid.uuid4()), text=text, groups=groups, caller=caller, created_ms=self._clock.now_ms()
        )
        self._queries[query.query_id] = query
        task = QueryTask(
            query=text,
            limit=limit,
            start_ms=start_ms,
            end_ms=end_ms,
            streams=(),
            cpu_s=self._cpu_s,
            memory_bytes=_MEMORY_BYTES,
        )
        query._task = asyncio.create_task(self._run(query, task, streams), name="log query")
        return query

    def get(self, query_id: str) -> LogQuery | None:
        """Return a query, or None if it is unknown or was removed.

        Args:
            query_id: Its id.
        """
        return self._queries.get(query_id)

    def all(self) -> list[LogQuery]:
        """Return all queries, the newest first."""
        return list(reversed(self._queries.values()))

    async def stop(self, query: LogQuery) -> bool:
        """End a query. Returns False if it has ended already.

        Args:
            query: The query.
        """
        if query.is_ended or query._task is None:
            return False
        query._task.cancel()
        await asyncio.gather(query._task, return_exceptions=True)
        if not query.is_ended:  # it was ended before its task began
            query.status, query.ended_ms = QueryStatus.CANCELLED, self._clock.now_ms()
        return query.status is QueryStatus.CANCELLED

    async def close(self) -> None:
        """End all queries."""
        for query in self.all():
            await self.stop(query)

    async def _run(self, query: LogQuery, task: QueryTask, streams: Callable[[], Sequence[SearchedStream]]) -> None:
        try:
            async with self._running:
                query.status = QueryStatus.RUNNING
                task["streams"] = await asyncio.to_thread(streams)
                status, output = await self._search(task)
            if status is QueryStatus.COMPLETE:
                query.answer, query.size_bytes = json.loads(output), len(output)
            query.status = status
        except asyncio.CancelledError:
            query.status = QueryStatus.CANCELLED
            raise
        except (OSError, TidemillError) as error:
            query.status = QueryStatus.FAILED
            _log.error("logs.query_failed", query_id=query.query_id, error=str(error))
        finally:
            query.ended_ms = self._clock.now_ms()
            self._forget_oldest()

    async def _search(self, task: QueryTask) -> tuple[QueryStatus, bytes]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tidemill.control.logs.insights.program"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await process.communicate(json.dumps(task).encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode == 0:
            return QueryStatus.COMPLETE, output
        if process.returncode == -signal.SIGXCPU:
            return QueryStatus.TIMEOUT, b""
        _log.error("logs.query_failed", status=process.returncode, error=errors.decode("utf-8", "replace")[-2000:])
        return QueryStatus.FAILED, b""

    def _forget_oldest(self) -> None:
        ended = [query for query in self._queries.values() if query.is_ended]
        size_bytes = sum(query.size_bytes for query in ended)
        for query in ended[:-1]:
            if len(self._queries) <= _KEPT and size_bytes <= _KEPT_BYTES:
                return
            size_bytes -= query.size_bytes
            del self._queries[query.query_id]
