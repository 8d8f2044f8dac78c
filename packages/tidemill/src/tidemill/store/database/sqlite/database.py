"""One database file, one writer thread, many readers."""

import errno
from pathlib import Path

from sqlalchemy import Engine, MetaData
from sqlalchemy.exc import DBAPIError

from tidemill.core import faults
from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store.database.pooled import NotCommitted, PendingWork, PooledDatabase, reason_of
from tidemill.store.database.revisions import bring_up_to_date
from tidemill.store.database.sqlite import engine as sqlite
from tidemill.store.database.sqlite.reserved_space import ReservedSpace

__all__ = ["SqliteDatabase"]

FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


class SqliteDatabase(PooledDatabase):
    """The `Database` in one SQLite file. Open it with `SqliteDatabase.open`; one process at a time writes."""

    def __init__(self, path: Path, *, writer: Engine, reader: Engine, reserved: ReservedSpace | None = None) -> None:
        self.path = path
        self._reserved = reserved
        super().__init__(str(path), writer=writer, reader=reader)

    @classmethod
    def open(cls, path: Path, *, metadata: MetaData, reserved: ReservedSpace | None = None) -> "SqliteDatabase":
        """Open the database file; create it if it is missing, migrate it if an older release wrote it.

        Args:
            path: The file; its directory must exist.
            metadata: All tables that will be used.
            reserved: Space to release when the disk is full. It is reserved here if it is not reserved yet.

        Raises:
            ConfigurationError: The file is damaged, was written by a newer release, or cannot be opened.
        """
        sqlite.check_file(path)
        writer = sqlite.make_engine(path, read_only=False)
        try:
            with writer.begin() as connection:
                bring_up_to_date(connection, metadata, database=str(path))
        except DBAPIError as error:
            if sqlite.is_corrupt(error):
                raise sqlite.corrupt_file(path, str(error.orig)) from error
            raise ConfigurationError(
                f"cannot open the database {path}: {error.orig}; check that its directory exists, is writable"
                " and has room"
            ) from error
        path.chmod(0o600)
        if reserved is not None:
            reserved.reserve()
        return cls(path, writer=writer, reader=sqlite.make_engine(path, read_only=True), reserved=reserved)

    def _commit(self, group: list[PendingWork]) -> None:
        if self._reserved is not None:
            self._reserved.reserve_if_due()
        try:
            self._attempt(group)
        except NotCommitted as failure:
            if not (_is_full(failure.cause) and self._make_room()):
                self._refuse(group, failure)
                return
            try:
                self._attempt(group)
            except NotCommitted as second:
                self._refuse(group, second)

    def _make_room(self) -> bool:
        released = self._reserved is not None and self._reserved.release()
        return sqlite.shrink_log(self._connection, self.path) or released

    def _attempt(self, group: list[PendingWork]) -> None:
        try:
            with self._connection.begin():
                for pending in group:
                    self._run(pending)
                faults.point("store.commit.before")
        except (DBAPIError, OSError) as error:
            raise NotCommitted(error) from error
        try:
            faults.point("store.commit.after")
        except OSError as error:  # the reply is lost, the rows are not
            self._refuse(group, NotCommitted(error))

    def _run(self, pending: PendingWork) -> None:
        if pending.grows and self._reserved is not None and not self._reserved.has_room:
            pending.result = None
            pending.error = ServiceUnavailable(
                f"the disk of {self.path.parent} is full; only stops and deletes are accepted until there is room"
                " again. Delete objects or jobs, or free space on the disk, then repeat the request"
            )
            return
        super()._run(pending)

    def _has_lost_transaction(self, error: BaseException) -> bool:
        return sqlite.is_full(error) or not sqlite.in_transaction(self._connection)

    def _refuse(self, group: list[PendingWork], failure: NotCommitted) -> None:
        reason = reason_of(failure.cause)
        for pending in group:
            pending.error = ServiceUnavailable(
                f"the database {self.path} could not commit: {reason}. Nothing of this request is certain to be stored;"
                " free space or mend the disk, then repeat the request"
            )

    def _translate(self, error: BaseException) -> BaseException:
        if sqlite.is_corrupt(error):
            return StateCorrupt(str(sqlite.corrupt_file(self.path, reason_of(error))))
        if sqlite.is_unavailable(error):
            return ServiceUnavailable(f"the database {self.path} cannot be used now: {reason_of(error)}; try again")
        return error


def _is_full(error: BaseException) -> bool:
    return sqlite.is_full(error) or getattr(error, "errno", None) in FULL_ERRNOS
