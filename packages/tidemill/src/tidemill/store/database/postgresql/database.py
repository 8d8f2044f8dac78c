"""One database of a PostgreSQL server, one service that writes.

The connection of the writer holds an advisory lock for its life, so no two services ever write. A service that has lost
its connection writes again only after it has the lock back, and only if no other service has led meanwhile.

Each transaction of the writer also stores a random mark. If the connection breaks during a commit, the mark in the
database shows whether the commit happened. The id of the transaction would not: after a crash, PostgreSQL gives the ids
of transactions that were only in memory to later ones.
"""

import secrets
import time
from collections.abc import Callable

from sqlalchemy import MetaData, bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

from tidemill.core import faults
from tidemill.core.clock import Clock, SystemClock
from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store.database.pooled import NotCommitted, PendingWork, PooledDatabase, reason_of
from tidemill.store.database.postgresql import engine as postgresql
from tidemill.store.database.postgresql.lead import DatabaseClock, Lead, LeadKeeper, begin_term, read_lead
from tidemill.store.database.postgresql.locks import try_lock
from tidemill.store.database.revisions import bring_up_to_date
from tidemill.store.database.schema import meta

LOCK_WAIT_S = 5.0
"""The server may need a moment to notice that the service that held the lock has died."""
OUTCOME_WAIT_S = 20.0
_PAUSE_S = 0.2

_MARK_KEY = "newest_commit"
_MARK_BYTES = 16
_MARK = insert(meta).values(key=_MARK_KEY, value=bindparam("mark"))
_MARK = _MARK.on_conflict_do_update(index_elements=[meta.c.key], set_={"value": _MARK.excluded.value})
_NEWEST_MARK = select(meta.c.value).where(meta.c.key == _MARK_KEY)


class DatabaseInUse(ConfigurationError):
    """Another service uses the database."""


class PostgresqlDatabase(PooledDatabase):
    """The `Database` on a PostgreSQL server, version 12 or newer. Open it with `PostgresqlDatabase.open`.

    Attributes:
        clock: Wall time by the database's clock.
    """

    def __init__(self, url: URL, clock: Clock) -> None:
        self._lost = False
        self._keeper: LeadKeeper | None = None
        self.clock = DatabaseClock(clock)
        name = url.render_as_string(hide_password=True)
        super().__init__(
            name,
            writer=postgresql.make_engine(url, read_only=False),
            reader=postgresql.make_engine(url, read_only=True),
        )

    @classmethod
    def open(
        cls,
        url: str,
        *,
        metadata: MetaData,
        lock_wait_s: float = LOCK_WAIT_S,
        superseded: Callable[[], None] = lambda: None,
        clock: Clock | None = None,
        before_creation: Callable[[], None] = lambda: None,
    ) -> "PostgresqlDatabase":
        """Connect; create the tables if they are missing, migrate them if an older release made them.

        Args:
            url: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``. The database must exist, its text must be UTF-8.
            metadata: All tables that will be used.
            lock_wait_s: How long to wait for a service that used the database to be gone.
            superseded: Called once, in another thread, when another service has taken the database over. Nothing is
                written any more.
            clock: The machine's clocks. Default: the system's.
            before_creation: Called before the tables of a new database are created; raises an exception to refuse that.

        Raises:
            DatabaseInUse: Another service uses the database.
            ConfigurationError: The server does not answer or refuses, or a newer release has written to the database.
        """
        parsed = postgresql.parse_url(url)
        name = parsed.render_as_string(hide_password=True)
        try:
            database = cls(parsed, clock or SystemClock())
        except DBAPIError as error:
            raise ConfigurationError(f"cannot connect to the database {name}: {reason_of(error).strip()}") from error
        try:
            if not database._take_lock(within_s=lock_wait_s):
                raise DatabaseInUse(
                    f"the database {name} is in use by another service; end that service, give this one a database of"
                    " its own, or let it stand by with --standby"
                )
            with database._connection.begin():
                bring_up_to_date(database._connection, metadata, database=name, before_creation=before_creation)
                lead = begin_term(database._connection)
            database._keep(lead, superseded)
        except DBAPIError as error:
            database.close()
            raise ConfigurationError(f"cannot use the database {name}: {reason_of(error).strip()}") from error
        except BaseException:
            database.close()
            raise
        return database

    @property
    def lead(self) -> LeadKeeper:
        """The thread that renews the lead of this service."""
        assert self._keeper is not None
        return self._keeper

    def close(self) -> None:
        super().close()
        if self._keeper is not None:
            self._keeper.close()

    def _keep(self, lead: Lead, superseded: Callable[[], None]) -> None:
        self._keeper = LeadKeeper(self._engine, lead, clock=self.clock, superseded=superseded)

    def _commit(self, group: list[PendingWork]) -> None:
        for is_last in (False, True):
            try:
                if self._lost:
                    self._come_back()
                self._attempt(group)
            except _Interrupted as failure:
                if is_last:
                    self._refuse(group, failure.reason)
                continue  # nothing was committed: run the group again on a new connection
            except NotCommitted as failure:
                self._refuse(group, reason_of(failure.cause))
            return

    def _attempt(self, group: list[PendingWork]) -> None:
        mark, is_marked = secrets.token_hex(_MARK_BYTES), False
        try:
            with self._connection.begin():
                for pending in group:
                    self._run(pending)
                self._connection.execute(_MARK, {"mark": mark})
                is_marked = True
                faults.point("store.commit.before")
        except NotCommitted as failure:
            self._lost = self._lost or postgresql.has_lost_connection(failure.cause)
            if self._lost:
                raise _Interrupted(reason_of(failure.cause)) from failure
            raise
        except (DBAPIError, OSError) as error:
            if not postgresql.has_lost_connection(error):
                raise NotCommitted(error) from error
            self._lost = True
            if not is_marked or not self._was_committed(mark):
                raise _Interrupted(reason_of(error)) from error
        try:
            faults.point("store.commit.after")
        except OSError as error:  # the reply is lost, the rows are not
            self._refuse(group, str(error))

    def _was_committed(self, mark: str) -> bool:
        """Return whether a transaction was committed whose connection broke during the commit.

        Raises:
            NotCommitted: The server cannot be asked within `OUTCOME_WAIT_S`.
        """
        deadline_s = time.monotonic() + OUTCOME_WAIT_S
        while True:
            try:
                if self._lost:
                    # With the lock back, the old connection has ended, and with it the transaction.
                    self._come_back()
                with self._connection.begin():
                    return self._connection.execute(_NEWEST_MARK).scalar() == mark
            except DBAPIError as error:
                self._lost = True
                failure = NotCommitted(error)
            except NotCommitted as error:
                failure = error
            if time.monotonic() > deadline_s:
                raise failure
            time.sleep(_PAUSE_S)

    def _come_back(self) -> None:
        """Connect again and take the lock.

        Raises:
            NotCommitted: There is no server, the lock is not free, or another service has led meanwhile.
        """
        try:
            self._reconnect()
            has_lock = self._take_lock(within_s=LOCK_WAIT_S)
            with self._connection.begin():
                lead = read_lead(self._connection)
        except DBAPIError as error:
            raise NotCommitted(error) from error
        if lead is None or lead.term != self.lead.term:
            self.lead.lose()
            raise NotCommitted(RuntimeError("another service has taken the database over"))
        if not has_lock:
            raise NotCommitted(RuntimeError("another connection holds the lock of the database"))
        self._lost = False

    def _take_lock(self, *, within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while True:
            with self._connection.begin():
                if try_lock(self._connection):
                    return True
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_PAUSE_S)

    def _give_up_connection(self) -> None:
        self._lost = True  # the next group connects, and takes the lock again

    def _has_lost_transaction(self, error: BaseException) -> bool:
        return postgresql.has_lost_connection(error) or not self._connection.in_transaction()

    def _has_lost_connection(self, error: BaseException) -> bool:
        return postgresql.has_lost_connection(error)

    def _refuse(self, group: list[PendingWork], reason: str) -> None:
        for pending in group:
            pending.error = ServiceUnavailable(
                f"the database {self._name} could not commit: {reason.strip()}. Nothing of this request is certain to"
                " be stored; see to the server, then repeat the request"
            )

    def _translate(self, error: BaseException) -> BaseException:
        if postgresql.is_corrupt(error):
            return StateCorrupt(
                f"the database {self._name} is damaged: {reason_of(error).strip()}; restore it from a backup"
            )
        if postgresql.is_unavailable(error):
            return ServiceUnavailable(
                f"the database {self._name} cannot be used now: {reason_of(error).strip()}; try again"
            )
        return error


class _Interrupted(Exception):
    """The connection broke before the commit: nothing was committed, and the group may run again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
