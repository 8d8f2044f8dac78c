"""Revisions of the tables: find out which one a database has, and migrate it to the newest.

A new database is created from the definitions of the tables. An older one is migrated by alembic, by the files in
``migrations/versions``, inside the transaction that opens it: it has the newest revision afterwards, or is unchanged.

To change a table: change its definition, add a file to ``migrations/versions`` that does the same to a database of the
previous revision, with statements that every database understands (``alembic.op``), and raise `HEAD`. A test compares
migrated databases with new ones.
"""

from collections.abc import Callable

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select

from tidemill.errors import ConfigurationError
from tidemill.store.database.schema import meta

HEAD = "0004"
"""The newest revision. Kept here so that a database that has it opens without alembic, whose import takes as long as
the rest of a start."""

MIGRATIONS = "tidemill.store.database:migrations"

BEFORE_REVISIONS = "schema_version"
"""The row of `meta` that releases before alembic read. They refuse any value but 1."""

# As alembic defines it.
_revision = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def bring_up_to_date(
    connection: Connection, metadata: MetaData, *, database: str, before_creation: Callable[[], None] = lambda: None
) -> None:
    """Create the tables or migrate them to the newest revision, in the transaction of ``connection``.

    Args:
        connection: In a transaction, which the caller commits.
        metadata: All tables that will be used; created if the database is new.
        database: Names the database in messages.
        before_creation: Called before the tables of a new database are created; raises an exception to refuse that.

    Raises:
        ConfigurationError: The database has a revision that this release does not know.
    """
    stored = _stored(connection)
    if stored == HEAD:
        return
    version = None if stored else _version_before_revisions(connection)
    if stored is None and version is None:
        before_creation()
        _create(connection, metadata)
    elif stored is None and version != "1":
        raise _unknown(database, f"version {version}")
    else:
        _migrate(connection, stored, database)


def _stored(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_revision.name):
        return None
    return connection.execute(select(_revision.c.version_num)).scalar()


def _version_before_revisions(connection: Connection) -> str | None:
    if not inspect(connection).has_table(meta.name):
        return None
    return connection.execute(select(meta.c.value).where(meta.c.key == BEFORE_REVISIONS)).scalar()


def _create(connection: Connection, metadata: MetaData) -> None:
    meta.create(connection, checkfirst=True)
    metadata.create_all(connection)
    connection.execute(insert(meta).values(key=BEFORE_REVISIONS, value="2"))
    _revision.create(connection)
    connection.execute(insert(_revision).values(version_num=HEAD))


def _migrate(connection: Connection, stored: str | None, database: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", MIGRATIONS)
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if stored is not None and stored not in known:
        raise _unknown(database, f"revision {stored}")
    command.upgrade(config, "head")


def _unknown(database: str, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the database {database} has schema {found}; this release knows revisions up to {HEAD}."
        " Start the release that wrote it, or another state directory (TIDEMILL_STATE_DIR)"
    )
