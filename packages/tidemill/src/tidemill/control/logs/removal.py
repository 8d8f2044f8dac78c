"""Removes log streams: those that a client deletes, and those that a retention policy no longer keeps."""

import asyncio
from collections.abc import Sequence, Set

import structlog

from tidemill.control.logs.groups import GroupRecords, owner_of
from tidemill.core.clock import Clock
from tidemill.errors import AwsError, TidemillError
from tidemill.store.logs.put_streams import PutStreams
from tidemill.store.logs.streams import LogReader, LogStreams

_INTERVAL_S = 3600.0
_UNUSED_MS = 60 * 24 * 3600 * 1000
"""An empty stream of a client stays so long: programs keep a stream open, and may write into it again."""

_log = structlog.get_logger("tidemill.logs")


class LogRemoval:
    """Removes streams and groups.

    Args:
        streams: The streams on disk, for reading.
        writer: Removes streams.
    """

    def __init__(self, groups: GroupRecords, streams: LogStreams, writer: PutStreams, *, clock: Clock) -> None:
        self._groups = groups
        self._streams = streams
        self._writer = writer
        self._clock = clock

    async def stream(self, group: str, name: str) -> None:
        """Remove one stream.

        Args:
            group: Name of the group.
            name: Name of a stream that exists.

        Raises:
            AwsError: OperationAbortedException: a job that runs, or an endpoint, writes it.
        """
        self._refuse_running(group, [name])
        await asyncio.to_thread(self._writer.remove, group, name)

    async def group(self, group: str) -> None:
        """Remove a group and all of its streams.

        Args:
            group: Name of the group.

        Raises:
            AwsError: OperationAbortedException: a job that runs, or an endpoint, writes one of them. All stay.
        """
        names = self._streams.names(group)
        self._refuse_running(group, names)
        for name in names:
            await asyncio.to_thread(self._writer.remove, group, name)
        await asyncio.to_thread(self._writer.remove_group, group)
        await self._groups.delete(group)

    async def run(self) -> None:
        """Remove what is too old every hour, until cancelled."""
        while True:
            try:
                await self.sweep()
            except (OSError, TidemillError) as error:
                _log.warning("logs.sweep_failed", reason=str(error))
            await asyncio.sleep(_INTERVAL_S)

    async def sweep(self) -> None:
        """Remove the streams, and the segments of clients' streams, whose events are all older than the policy allows.

        The streams of a job that runs stay: the policy hides their old events.
        """
        for group in sorted(await self._groups.all()):
            before_ms = self._groups.shown_from_ms(group)
            if before_ms:
                names = await asyncio.to_thread(self._streams.names, group)
                running = {owner for owner in _owners(group, names) if self._groups.is_running(owner)}
                await asyncio.to_thread(self._expire, group, names, before_ms, running)

    def _expire(self, group: str, names: Sequence[str], before_ms: int, running: Set[tuple[str, str]]) -> None:
        unused_before_ms = self._clock.now_ms() - _UNUSED_MS
        for name in names:
            owner = owner_of(group, name)
            if owner is None:
                self._writer.expire(group, name, before_ms=before_ms, unused_before_ms=unused_before_ms)
            elif owner not in running:
                last_ms = LogReader(self._streams.directory(group, name)).last_event_ms()
                if (last_ms or 0) < before_ms:
                    self._writer.remove(group, name)

    def _refuse_running(self, group: str, names: list[str]) -> None:
        for kind, name in sorted(_owners(group, names)):
            if self._groups.is_running((kind, name)):
                raise AwsError(
                    f"Streams of the log group {group!r} belong to the {kind} {name!r}, which still writes them; end"
                    " it first",
                    code="OperationAbortedException",
                )


def _owners(group: str, names: Sequence[str]) -> set[tuple[str, str]]:
    """Return kind and name of the jobs and endpoints that streams belong to."""
    return {owner for name in names if (owner := owner_of(group, name)) is not None}
