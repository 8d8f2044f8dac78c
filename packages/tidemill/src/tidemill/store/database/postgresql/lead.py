"""The lead among several services on one database: a row that the leader renews every second.

The advisory lock prevents two services from writing at the same time. The row has the term in which the lock was taken,
the address where the leader listens, and the time of the last renewal, which shows that the leader is alive. A service
that takes the lead begins a new term. A service that finds a newer term than its own has lost the lead permanently,
because its data in memory may be outdated.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog
from sqlalchemy import BigInteger, ColumnElement, Connection, cast, func, insert, select, update
from sqlalchemy.exc import DBAPIError

from tidemill.store.database.schema import meta

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from tidemill.core.clock import Clock

BEAT_S = 1.0
_RETRY_S = 0.2
CERTAIN_S = 3.0
"""How long a leader that cannot renew its row may still answer. It must be shorter than `succession.PATIENCE_S`."""
_TOLERANCE_MS = 100
"""Differences between the clocks up to this are taken for the time of the round trip to the server."""

_KEY = "lead"
_NOW_MS: ColumnElement[Any] = cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
_READ = select(meta.c.value).where(meta.c.key == _KEY)
_READ_AND_LOCK = select(meta.c.value, _NOW_MS).where(meta.c.key == _KEY).with_for_update()

_log = structlog.get_logger("tidemill.store")


@dataclass(frozen=True, slots=True)
class Lead:
    """The row of the leader.

    Attributes:
        term: Counts the services that have led, from 1.
        beat_ms: When the leader renewed the row, by the database's clock, in milliseconds since the epoch.
        ended: Whether the leader has given the lead back at its end, so that no service leads.
        local_url: URL for clients on the leader's machine; empty until it listens.
        relay: Host and port at which a standby service reaches the leader; None until it listens.
    """

    term: int
    beat_ms: int
    ended: bool = False
    local_url: str = ""
    relay: tuple[str, int] | None = None

    @classmethod
    def from_text(cls, text: str) -> Lead:
        """Read the row's value.

        Args:
            text: JSON, as `to_text` writes it.
        """
        content = json.loads(text)
        relay = content["relay"]
        return cls(
            term=content["term"],
            beat_ms=content["beat_ms"],
            ended=content["ended"],
            local_url=content["local_url"],
            relay=(relay[0], relay[1]) if relay else None,
        )

    def to_text(self) -> str:
        """Return the row's value."""
        return json.dumps(asdict(self))


def read_lead(connection: Connection) -> Lead | None:
    """Read the row; None if no service has led yet.

    Args:
        connection: Any connection of the database.
    """
    value = connection.execute(_READ).scalar()
    return None if value is None else Lead.from_text(value)


def begin_term(connection: Connection) -> Lead:
    """Begin a new term, on the connection that holds the lock and in its transaction.

    Returns:
        The new row; its term is one more than the last.
    """
    before = read_lead(connection)
    lead = Lead(before.term + 1 if before else 1, int(connection.execute(select(_NOW_MS)).scalar_one()))
    if before is None:
        connection.execute(insert(meta).values(key=_KEY, value=lead.to_text()))
    else:
        connection.execute(update(meta).where(meta.c.key == _KEY).values(value=lead.to_text()))
    return lead


class DatabaseClock:
    """Wall time by the database's clock, so that the times of services on several machines are in order."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return self._own.now_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        return self._own.monotonic_s()

    def compare(self, database_ms: int) -> None:
        """Set the difference to the database's clock, whose current time is ``database_ms``.

        Args:
            database_ms: Milliseconds since the epoch. Small differences change nothing.
        """
        ahead_ms = database_ms - self._own.now_ms()
        if abs(ahead_ms - self._ahead_ms) > _TOLERANCE_MS:
            self._ahead_ms = ahead_ms


class LeadKeeper:
    """Renews the row in a thread and on a connection of its own, for as long as this service leads.

    Args:
        engine: Makes the connection.
        lead: The row of this service's term.
        clock: Follows the database's clock.
        superseded: Called once, in the thread, when another service leads. This service must write nothing more.
    """

    def __init__(self, engine: Engine, lead: Lead, *, clock: DatabaseClock, superseded: Callable[[], None]) -> None:
        self._engine = engine
        self._lead = lead
        self._clock = clock
        self._superseded = superseded
        self._renewed_s = clock.monotonic_s()
        self._wake = threading.Event()
        self._closed = False
        self._is_lost = threading.Event()
        clock.compare(lead.beat_ms)
        self._thread = threading.Thread(target=self._keep, name="store-lead", daemon=True)
        self._thread.start()

    @property
    def term(self) -> int:
        """The term of this service."""
        return self._lead.term

    def is_certain(self) -> bool:
        """Whether it is certain that no other service leads."""
        return not self._is_lost.is_set() and self._clock.monotonic_s() - self._renewed_s < CERTAIN_S

    def publish(self, *, local_url: str, relay: tuple[str, int]) -> None:
        """Write into the row where this service listens.

        Args:
            local_url: Address on this machine.
            relay: Host and port for standbys.
        """
        self._lead = replace(self._lead, local_url=local_url, relay=relay)
        self._wake.set()

    def lose(self) -> None:
        """Give the lead up, because another service leads. Only the first call has an effect."""
        if not self._is_lost.is_set():
            self._is_lost.set()
            self._superseded()

    def close(self) -> None:
        """Stop, and mark in the row that no service leads."""
        self._closed = True
        self._wake.set()
        self._thread.join()

    def _keep(self) -> None:
        connection: Connection | None = None
        pause_s = BEAT_S
        while not self._is_lost.is_set():
            ended = self._closed
            try:
                connection = connection or self._engine.connect()
                self._renew(connection, ended=ended)
                pause_s = BEAT_S
            except DBAPIError as error:
                if pause_s == BEAT_S:
                    _log.warning("lead.not_renewed", reason=str(error.orig).strip())
                connection = _without(connection)
                pause_s = _RETRY_S
            if ended:
                break
            self._wake.wait(pause_s)
            self._wake.clear()
        _without(connection)

    def _renew(self, connection: Connection, *, ended: bool) -> None:
        begin_s = self._clock.monotonic_s()
        with connection.begin():
            row = connection.execute(_READ_AND_LOCK).one_or_none()
            if row is None or Lead.from_text(row[0]).term != self._lead.term:
                self.lose()
                return
            now_ms = int(row[1])
            renewed = replace(self._lead, beat_ms=now_ms, ended=ended)
            connection.execute(update(meta).where(meta.c.key == _KEY).values(value=renewed.to_text()))
        self._renewed_s = begin_s
        self._clock.compare(now_ms)


def _without(connection: Connection | None) -> None:
    """Close a connection that may be broken; returns None in its place."""
    if connection is not None:
        with contextlib.suppress(DBAPIError):
            connection.invalidate()
            connection.close()
