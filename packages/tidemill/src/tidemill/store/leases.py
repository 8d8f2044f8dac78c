"""Leases of a cluster's instances over many starts of the service.

Each start has a number, and stores for how long agents could reach it. Each lease has the number of the start that
last renewed it: the first renewal by a start is stored, later ones are not. The times of all later starts together are
a part of the time since the last renewal. Two services on one database count as starts that follow each other, because
only the leading service can write.
"""

import asyncio
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, bindparam, delete, func, insert, select, update

from tidemill.core.instances import InstanceRef
from tidemill.instance.lease import StoredLease
from tidemill.store.database.base import Database
from tidemill.store.database.schema import leases, starts

_ONE = and_(
    leases.c.job_id == bindparam("job"),
    leases.c.instance_index == bindparam("index"),
    leases.c.attempt == bindparam("number"),
)


class SqlLeaseRecords:
    """The records of one start. Implements `tidemill.executors.cluster.lease_records.LeaseRecords`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._start = 0
        self._renewed: list[InstanceRef] = []
        self._write: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def begin(self) -> Mapping[InstanceRef, StoredLease]:
        self._start, found = self._database.write_sync(_begin)
        return found

    def add(self, ref: InstanceRef, *, lease_s: float) -> None:
        """Store the lease of an instance that was launched now, as `LeaseRecords.add`."""
        self._database.write_sync(lambda connection: _add(connection, [ref], start=self._start, lease_s=lease_s))

    def adopt(self, refs: Collection[InstanceRef], *, lease_s: float) -> None:
        """Store leases of instances that an earlier start of the service launched.

        Args:
            lease_s: Length of the leases in seconds.
        """
        before = self._start - 1
        self._database.write_sync(lambda connection: _add(connection, refs, start=before, lease_s=lease_s))

    async def renew(self, ref: InstanceRef) -> None:
        # After a start, thousands of agents report at the same time. One write stores the renewals of all that wait.
        """Store that this start of the service has renewed a lease; returns after the commit."""
        self._renewed.append(ref)
        if self._write is None:
            self._write = asyncio.create_task(self._store_renewed())
        await asyncio.shield(self._write)

    async def store_reachable(self, seconds: float) -> None:
        """Store for how long this start of the service could be reached, as `LeaseRecords.store_reachable`."""
        statement = update(starts).where(starts.c.number == self._start).values(reachable_ms=int(seconds * 1000))
        await self._database.write(lambda connection: connection.execute(statement) and None)

    def remove(self, refs: Collection[InstanceRef]) -> None:
        """Delete the leases of instances that have ended."""
        self._database.write_sync(lambda connection: _remove(connection, refs))

    async def _store_renewed(self) -> None:
        async with self._writing:
            refs, self._write = self._renewed, None
            self._renewed = []
            await self._database.write(lambda connection: _renew(connection, refs, start=self._start))


def _begin(connection: Connection) -> tuple[int, dict[InstanceRef, StoredLease]]:
    """Add a start, and remove the starts that count for no lease. Return its number, and the leases."""
    newest = connection.execute(select(func.max(starts.c.number))).scalar() or 0
    oldest = connection.execute(select(func.min(leases.c.start))).scalar()
    counts_for_none = (starts.c.reachable_ms == 0) | (starts.c.number <= (newest if oldest is None else oldest))
    connection.execute(delete(starts).where(counts_for_none))
    connection.execute(insert(starts).values(number=newest + 1, reachable_ms=0))
    reachable_ms = connection.execute(select(starts.c.number, starts.c.reachable_ms)).all()
    silent_ms: dict[int, int] = {}
    found = {}
    for job_id, index, attempt, start, lease_ms in connection.execute(select(leases)):
        if start not in silent_ms:
            silent_ms[start] = sum(each_ms for number, each_ms in reachable_ms if number > start)
        found[InstanceRef(job_id, index, attempt)] = StoredLease(lease_ms / 1000, silent_ms[start] / 1000)
    return newest + 1, found


def _add(connection: Connection, refs: Collection[InstanceRef], *, start: int, lease_s: float) -> None:
    _remove(connection, refs)  # a launch may be repeated
    rows = [
        {
            "job_id": ref.job_id,
            "instance_index": ref.instance_index,
            "attempt": ref.attempt,
            "start": start,
            "lease_ms": math.ceil(lease_s * 1000),
        }
        for ref in refs
    ]
    if rows:
        connection.execute(insert(leases), rows)


def _renew(connection: Connection, refs: Iterable[InstanceRef], *, start: int) -> None:
    connection.execute(update(leases).where(_ONE).values(start=start), _keys(refs))


def _remove(connection: Connection, refs: Collection[InstanceRef]) -> None:
    if refs:
        connection.execute(delete(leases).where(_ONE), _keys(refs))


def _keys(refs: Iterable[InstanceRef]) -> list[dict[str, Any]]:
    return [{"job": ref.job_id, "index": ref.instance_index, "number": ref.attempt} for ref in refs]
