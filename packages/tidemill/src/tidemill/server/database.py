"""The database of the service's records: a file in the state directory, or PostgreSQL if `database_url` is set."""

import os
import secrets
from pathlib import Path

import structlog
from sqlalchemy import Connection, MetaData, insert, select

from tidemill.core.files import read_json, write_json
from tidemill.errors import ConfigurationError
from tidemill.server.state import StateDirectory
from tidemill.store.database.base import Database
from tidemill.store.database.postgresql.database import DatabaseInUse, PostgresqlDatabase
from tidemill.store.database.schema import meta
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.database.sqlite.reserved_space import ReservedSpace

__all__ = ["SUPERSEDED_STATUS", "DatabaseInUse", "open_postgresql", "open_sqlite"]

SUPERSEDED_STATUS = 4
"""Exit status of a service after another one has taken over."""

_OWNER = "state_directory"

_log = structlog.get_logger("tidemill.server")


def open_sqlite(state: StateDirectory, *, metadata: MetaData) -> SqliteDatabase:
    """Open the database in a state directory; raises like `SqliteDatabase.open`.

    Raises:
        ConfigurationError: The records of the state directory are in PostgreSQL.
    """
    if state.database_owner.exists():
        raise ConfigurationError(
            f"the records of the state directory {state.root} are in PostgreSQL: set database_url, or give this service"
            " a state directory of its own with --state-dir"
        )
    return SqliteDatabase.open(state.database, metadata=metadata, reserved=ReservedSpace(state.root / "ballast"))


def open_postgresql(url: str, state: StateDirectory, *, metadata: MetaData) -> PostgresqlDatabase:
    """Open the database of a PostgreSQL server; raises like `PostgresqlDatabase.open`.

    Objects, logs and jobs stay in the state directory. Directory and database identify each other: with the records of
    another directory, the service would delete objects as leftovers and treat jobs as lost.

    Raises:
        ConfigurationError: The state directory and the database do not belong together.
    """
    if state.database.exists():
        raise ConfigurationError(
            f"the state directory {state.root} has its records in {state.database.name}; a service with a database_url"
            " needs a state directory of its own: give one with --state-dir"
        )
    database = PostgresqlDatabase.open(url, metadata=metadata, superseded=_end)
    try:
        _claim(database, state.database_owner)
    except BaseException:
        database.close()
        raise
    return database


def _end() -> None:
    """Exit immediately, because another service leads. Jobs see no difference from a crash."""
    _log.error("service.superseded", reason="another service has taken the database over")
    os._exit(SUPERSEDED_STATUS)


def _claim(database: Database, file: Path) -> None:
    """Store in the state directory and the database that they belong together, or compare what is stored."""
    if not file.exists():
        write_json(file, {"version": 1, "id": secrets.token_hex(16)})
    mine = str((read_json(file) or {}).get("id", ""))
    query = select(meta.c.value).where(meta.c.key == _OWNER)

    def claim(connection: Connection) -> str:
        present = connection.execute(query).scalar()
        if present is None:
            connection.execute(insert(meta).values(key=_OWNER, value=mine))
        return mine if present is None else str(present)

    if database.write_sync(claim) != mine:
        raise ConfigurationError(
            f"the database of database_url belongs to another state directory than {file.parent}; name that directory"
            " with --state-dir, or use an empty database"
        )
