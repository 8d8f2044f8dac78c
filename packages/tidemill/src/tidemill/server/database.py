"""The database of the service's records: a file in the state directory, or PostgreSQL if `database_url` is set.

State directory and database carry the same identifier. With other records than its own, or without records, the service
would treat contents and jobs as leftovers. So it does not start with another database, nor with an empty one if the
directory holds anything that only records explain.
"""

import os
import secrets
from collections.abc import Callable

import structlog
from sqlalchemy import Connection, MetaData, insert, select

from tidemill.core.files import read_json, write_json
from tidemill.errors import ConfigurationError
from tidemill.server.state import StateDirectory
from tidemill.store.database.base import Database
from tidemill.store.database.postgresql.database import PostgresqlDatabase
from tidemill.store.database.schema import meta
from tidemill.store.database.sqlite.database import ReservedSpace, SqliteDatabase, way_back

SUPERSEDED_STATUS = 4
"""Exit status of a service after another one has taken over."""

_OWNER = "state_directory"
_SQLITE = "sqlite"
_POSTGRESQL = "postgresql"

_log = structlog.get_logger("tidemill.server")


def open_sqlite(state: StateDirectory, *, metadata: MetaData) -> SqliteDatabase:
    """Open the database in a state directory; raises like `SqliteDatabase.open`.

    Raises:
        ConfigurationError: The records of the state directory are in PostgreSQL, are lost, or belong to another one.
    """
    if _kind(state) == _POSTGRESQL:
        raise ConfigurationError(
            f"the records of the state directory {state.root} are in PostgreSQL: set database_url, or give this service"
            " a state directory of its own with --state-dir"
        )
    database = SqliteDatabase.open(
        state.database,
        metadata=metadata,
        reserved=ReservedSpace(state.root / "ballast"),
        before_creation=_require_nothing_held(state, str(state.database), lambda: way_back(state.database)),
    )
    _claim(database, state, kind=_SQLITE, name=str(state.database))
    return database


def open_postgresql(url: str, state: StateDirectory, *, metadata: MetaData) -> PostgresqlDatabase:
    """Open the database of a PostgreSQL server; raises like `PostgresqlDatabase.open`.

    Objects, logs and jobs stay in the state directory.

    Raises:
        ConfigurationError: The records of the state directory are in a file, are lost, or belong to another one.
    """
    if state.database.exists() or _kind(state) == _SQLITE:
        raise ConfigurationError(
            f"the state directory {state.root} has its records in {state.database.name}; a service with a database_url"
            " needs a state directory of its own: give one with --state-dir"
        )
    advice = "Restore the database from its backup, or name the database that this directory has used"
    database = PostgresqlDatabase.open(
        url,
        metadata=metadata,
        superseded=_end,
        before_creation=_require_nothing_held(state, "the database of database_url", lambda: advice),
    )
    _claim(database, state, kind=_POSTGRESQL, name="the database of database_url")
    return database


def _end() -> None:
    """Exit immediately, because another service leads. Jobs see no difference from a crash."""
    _log.error("service.superseded", reason="another service has taken the database over")
    os._exit(SUPERSEDED_STATUS)


def _kind(state: StateDirectory) -> str | None:
    """Return the kind of the directory's database; None if the directory has no identifier yet."""
    record = read_json(state.database_owner)
    # Earlier releases wrote the file for PostgreSQL only.
    return None if record is None else str(record.get("records", _POSTGRESQL))


def _require_nothing_held(state: StateDirectory, name: str, advice: Callable[[], str]) -> Callable[[], None]:
    """Return a function that refuses to start with an empty database beside contents, jobs or backups."""

    def check() -> None:
        held = state.holdings()
        if held:
            raise ConfigurationError(
                f"the records are lost: {name} is missing or empty, but the state directory {state.root} holds"
                f" {', '.join(held)}. Without records the service would treat them as leftovers, so it does not start."
                f" {advice()}. To begin anew, name another directory with --state-dir"
            )

    return check


def _claim(database: Database, state: StateDirectory, *, kind: str, name: str) -> None:
    """Store in the state directory and the database that they belong together, or compare what is stored.

    Raises:
        ConfigurationError: They do not belong together. The database is closed then.
    """
    file = state.database_owner
    try:
        if not file.exists():
            write_json(file, {"version": 1, "id": secrets.token_hex(16), "records": kind})
        mine = str((read_json(file) or {}).get("id", ""))
        found = database.read(_owner) or database.write_sync(lambda connection: _own(connection, mine))
        if found != mine:
            raise ConfigurationError(
                f"{name} belongs to another state directory than {state.root}; name that directory with --state-dir, or"
                f" use the database of this one, whose identifier is in {file.name}"
            )
    except BaseException:
        database.close()
        raise


def _owner(connection: Connection) -> str | None:
    return connection.execute(select(meta.c.value).where(meta.c.key == _OWNER)).scalar()


def _own(connection: Connection, identifier: str) -> str:
    connection.execute(insert(meta).values(key=_OWNER, value=identifier))
    return identifier
