"""The interface between the stores (records, objects) and a database: durable tables, read and changed by functions.

Such a function gets a connection and is called a *work*. It uses only SQLAlchemy Core expressions, without SQL text and
without anything of one dialect, so that all implementations share one set of statements. There are two implementations,
`sqlite` and `postgresql`; both pass the same tests (``tests/store/database_contract.py``).
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Delete, Dialect, Insert, Select, Update, insert, select

from tidemill.core.exposition import DURATIONS_S, Histogram
from tidemill.store.database.schema import meta

T = TypeVar("T")


class ConstantStatement:
    """A constant statement with bind parameters, for works that run it often (`pooled.execute`) and for `Database.row`.

    Args:
        core: Expression of SQLAlchemy Core, without constants.

    Attributes:
        compiled: Result of `compile`, once it was called.
    """

    def __init__(self, core: Select[*tuple[Any, ...]] | Insert | Update | Delete) -> None:
        self.core = core
        self.compiled: tuple[str, Sequence[str]] | None = None

    def compile(self, dialect: Dialect) -> tuple[str, Sequence[str]]:
        """Return the text for a driver with positional parameters, and the names of these in their order.

        Args:
            dialect: That of the only database of the process.

        Raises:
            ValueError: The statement has a constant.
        """
        compiled = self.core.compile(dialect=dialect)
        constants = [name for name, value in compiled.params.items() if value is not None]
        if constants:
            raise ValueError(f"the constants {constants} must be parameters, in {compiled}")
        self.compiled = str(compiled), compiled.positiontup or ()
        return self.compiled


@dataclass(slots=True)
class Commits:
    """The commits of groups since the start of the service: plain numbers, which the writer changes.

    Attributes:
        works: Works that were in these groups.
        seconds: From the first statement of a group to the end of its commit, of all groups together.
        by_duration: Number of commits by `DURATIONS_S`, and of longer ones.
    """

    works: int = 0
    seconds: float = 0.0
    by_duration: list[int] = field(default_factory=lambda: [0] * (len(DURATIONS_S) + 1))

    @property
    def durations(self) -> Histogram:
        """The durations, for a monitor that asks."""
        return Histogram(counts=self.by_duration, total=self.seconds)


class Database(Protocol):
    """Durable tables. A `write` that returned survives kill -9 and power loss.

    Works that write are serializable: their effect is that of one after another. Works that read see one snapshot of
    the committed rows. They do not wait for writers, and writers do not wait for them.
    """

    @property
    def commits(self) -> Commits:
        """What the writer has done."""
        ...

    async def write(self, work: Callable[[Connection], T], *, grows: bool = False) -> T:
        """Run ``work`` in a transaction and return its result once it is durable.

        Args:
            work: Gets the connection, inside a transaction that it must neither commit nor roll back. It runs in
                another thread, and runs again if its first transaction could not be committed. So it must change
                nothing but the database, and must not use the network, start processes or wait. If a statement
                fails, the work must end: some databases accept no further statement in that transaction.
            grows: Whether the work stores something new. Such works are refused while the disk is full; others
                (deletes, stops) are still accepted.

        Raises:
            ServiceUnavailable: Not committed: the disk is full or failing, or the database is closed.
            StateCorrupt: The database is damaged.
            Exception: The exception that ``work`` raised. Its changes are rolled back, those of other works are not.

        Cancelling the caller does not cancel its work.
        """

    def write_sync(self, work: Callable[[Connection], T], *, grows: bool = False) -> T:
        """Do the same as `write`, for plain threads. Never call it in an event loop or inside a work.

        Args:
            grows: Whether it is refused while the disk is full.
        """

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on one snapshot of the committed rows. For look-ups that are quick enough for the event loop.

        Raises:
            ServiceUnavailable: The database cannot be read now.
            StateCorrupt: The database is damaged.
            Exception: The exception that ``work`` raised. A statement that writes fails.
        """

    def row(self, statement: ConstantStatement, parameters: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return the first of the committed rows that a statement selects, or None. For look-ups by key.

        Args:
            parameters: Values of the bind parameters, by name.

        Raises:
            ServiceUnavailable: The database cannot be read now.
            StateCorrupt: The database is damaged.
        """

    async def read_in_thread(self, work: Callable[[Connection], T]) -> T:
        """Do the same as `read` in a thread: for everything that may take longer than a millisecond.

        Args:
            work: Runs in a transaction that only reads.

        Returns:
            What ``work`` returned.
        """

    def close(self) -> None:
        """Commit the works that were submitted before, then close. Closing twice does nothing."""


def stored_secret(database: Database, name: str) -> str:
    """Return the random secret ``name`` of this database (64 hexadecimal digits), created at first use.

    Args:
        database: The database; it is written at first use.
    """
    key = f"secret.{name}"
    query = select(meta.c.value).where(meta.c.key == key)

    def create(connection: Connection) -> str:
        present = connection.execute(query).scalar()
        if present is not None:
            return str(present)
        value = secrets.token_hex(32)
        connection.execute(insert(meta).values(key=key, value=value))
        return value

    present = database.read(lambda connection: connection.execute(query).scalar())
    return str(present) if present is not None else database.write_sync(create)
