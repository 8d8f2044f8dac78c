"""A database and a state directory belong together, and no database is created beside contents of lost records.

`tests/faults/test_lost_records.py` runs the documented recovery.
"""

import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemill.core.files import read_json
from tidemill.errors import ConfigurationError
from tidemill.server.database import open_postgresql, open_sqlite
from tidemill.server.state import StateDirectory
from tidemill.store.database.schema import metadata

if TYPE_CHECKING:
    from postgresql_server import PostgresqlServer


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    state = StateDirectory(tmp_path / "state")
    state.create()
    return state


def open_and_close(state: StateDirectory) -> None:
    open_sqlite(state, metadata=metadata).close()


def lose(state: StateDirectory) -> None:
    for file in state.root.glob("state.db*"):
        file.unlink()


def content(state: StateDirectory) -> Path:
    file = state.objects / "content/ab/abc"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"content")
    return file


@pytest.mark.parametrize("held", ["objects/content/ab/abc", "objects/trash/now/abc", "jobs/00aa/spec", "backups/1.db"])
@pytest.mark.parametrize("database", ["missing", "empty", "without tables"])
def test_no_database_is_created_beside_what_only_records_explain(
    held: str, database: str, state: StateDirectory
) -> None:
    (state.root / held).parent.mkdir(parents=True)
    (state.root / held).touch()
    log = state.root / "state.db-wal"
    log.write_bytes(b"the log of the lost database")
    if database == "empty":
        state.database.touch()
    if database == "without tables":
        log.unlink()
        with sqlite3.connect(state.database) as connection:
            connection.execute("PRAGMA user_version=1")
        connection.close()
    with pytest.raises(ConfigurationError, match=r"are lost.*backups.*another directory with --state-dir"):
        open_and_close(state)
    assert (state.root / held).exists()
    assert log.exists() == (database != "without tables")
    shutil.rmtree((state.root / held).parent)
    log.unlink(missing_ok=True)
    open_and_close(state)


def test_a_directory_of_an_earlier_release_gets_its_identifier_at_its_first_start(state: StateDirectory) -> None:
    open_and_close(state)
    state.database_owner.unlink()
    with sqlite3.connect(state.database) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'state_directory'")
    connection.close()
    content(state)
    open_and_close(state)
    identifier = read_json(state.database_owner)
    assert identifier is not None
    with sqlite3.connect(state.database) as connection:
        found = connection.execute("SELECT value FROM meta WHERE key = 'state_directory'").fetchall()
    connection.close()
    assert found == [(identifier["id"],)]
    open_and_close(state)


def test_the_database_of_another_directory_is_refused(state: StateDirectory, tmp_path: Path) -> None:
    other = StateDirectory(tmp_path / "other")
    other.create()
    open_and_close(other)
    open_and_close(state)
    file = content(state)
    lose(state)
    shutil.copy(other.database, state.database)
    with pytest.raises(ConfigurationError, match="belongs to another state directory"):
        open_and_close(state)
    assert file.exists()


def test_an_emptied_postgresql_database_is_refused(state: StateDirectory, postgresql: "PostgresqlServer") -> None:
    open_postgresql(postgresql.empty_database(), state, metadata=metadata).close()
    content(state)
    with pytest.raises(ConfigurationError, match=r"are lost.*Restore the database from its backup"):
        open_postgresql(postgresql.empty_database(), state, metadata=metadata)
