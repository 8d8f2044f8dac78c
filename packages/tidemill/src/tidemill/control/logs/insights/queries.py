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

from tidemill.control.logs.insights.program import QueryAnswer, QueryTask
from tidemill.core.clock import Clock
from tidemill.errors import AwsError, TidemillError

_AT_ONCE = 2
_CPU_S = 300
_MEMORY_BYTES = 4 * 1024**3
_UNENDED = 100
_KEPT = 1000
_KEPT_BYTES = 32 * 1024 * 1024

_log = structlog.get_logger("tidemill.logs")


class _TimedOut(Exception):
    """A query took too much CPU."""


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
        text: As it was sent.
        groups: Names of the log groups.
        caller: ARN of its sender.
        created_ms: Milliseconds since the epoch.
        ended_ms: When it ended; 0 before.
        answer: Its result, once it is complete.
        size_bytes: Bytes of the result.
        reason: Why it has no result, once it has failed or timed out.
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
    reason: str = ""
    _task: "asyncio.Task[None] | None" = field(default=None, repr=False)

    @property
    def is_ended(self) -> bool:
        return self.status not in (QueryStatus.SCHEDULED, QueryStatus.RUNNING)


class LogQueries:
    """Runs each query in a separate process, two at a time, and keeps the last 32 MiB of results.

    Args:
        cpu_s: Seconds of CPU that a query may take.
    """

    def __init__(self, *, clock: Clock, cpu_s: int = _CPU_S) -> None:
        self._clock = clock
        self._cpu_s = cpu_s
        self._running = asyncio.Semaphore(_AT_ONCE)
        self._queries: dict[str, LogQuery] = {}
        self._ended: list[LogQuery] = []  # in the order in which they ended

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
            text: A query that `InsightsQuery.parse` accepts.
            streams: Returns the streams to search; called in a thread.
            groups: Names of their groups.
            start_ms: Earliest time, in milliseconds since the epoch.
            end_ms: Latest time.
            limit: Most events in the result.
            caller: ARN of the sender.

        Raises:
            AwsError: LimitExceededException: too many queries have not ended.
        """
        if len(self._queries) - len(self._ended) >= _UNENDED:
            raise AwsError(
                f"{_UNENDED} queries run or wait, which is the limit; {_AT_ONCE} run at a time. Wait for their ends, or"
                " stop some",
                code="LimitExceededException",
            )
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
            query.status = QueryStatus.CANCELLED
            self._note_end(query)
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
                output = await self._search(task)
            query.answer, query.size_bytes = json.loads(output), len(output)
            query.status = QueryStatus.COMPLETE
        except asyncio.CancelledError:
            query.status = QueryStatus.CANCELLED
            raise
        except _TimedOut as error:
            query.status, query.reason = QueryStatus.TIMEOUT, str(error)
        except (OSError, TidemillError) as error:
            query.status, query.reason = QueryStatus.FAILED, str(error)
            _log.error("logs.query_failed", query_id=query.query_id, error=str(error))
        finally:
            self._note_end(query)

    async def _search(self, task: QueryTask) -> bytes:
        """Return the `QueryAnswer` as JSON; raise what becomes the reason if there is none."""
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
            return output
        if process.returncode == -signal.SIGXCPU:
            raise _TimedOut(f"the query has used {task['cpu_s']} s of CPU; search a shorter time, or fewer groups")
        words = errors.decode("utf-8", "replace").strip()
        _log.error("logs.query_failed", status=process.returncode, error=words[-2000:])
        if "MemoryError" in words or process.returncode == -signal.SIGKILL:
            limit = f"{task['memory_bytes'] / 2**30:g} GiB"
            raise TidemillError(f"the query needs more than {limit} of memory; search a shorter time, or fewer groups")
        last = words.splitlines()[-1] if words else "no message"
        raise TidemillError(f"its process ended with status {process.returncode}: {last[-500:]}")

    def _note_end(self, query: LogQuery) -> None:
        """Note when a query ended, and forget those that ended first. The result of this one is still to be read."""
        query.ended_ms = self._clock.now_ms()
        self._ended.append(query)
        size_bytes = sum(each.size_bytes for each in self._ended)
        while len(self._ended) > 1 and (len(self._queries) > _KEPT or size_bytes > _KEPT_BYTES):
            oldest = self._ended.pop(0)
            size_bytes -= oldest.size_bytes
            del self._queries[oldest.query_id]
