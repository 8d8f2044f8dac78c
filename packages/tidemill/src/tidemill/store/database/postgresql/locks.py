"""The advisory lock of the service that writes: take it, find its holder, and take it from a holder that hangs."""

from sqlalchemy import BigInteger, Connection, Integer, String, cast, column, func, select, table

_KEY = 0x7469_6465_6D69_6C6C  # "tidemill", distinct from other users of the server
_TRY = select(func.pg_try_advisory_lock(cast(_KEY, BigInteger)))

_locks = table(
    "pg_locks",
    *(column(name, Integer) for name in ("classid", "objid", "objsubid", "pid", "database")),
    column("locktype", String),
    column("granted"),
)
_databases = table("pg_database", column("oid", Integer), column("datname", String))
# The server shows a key of 64 bits as two of 32, with objsubid 1.
_HOLDER = (
    select(_locks.c.pid)
    .where(_locks.c.locktype == "advisory", _locks.c.granted, _locks.c.objsubid == 1)
    .where(cast(_locks.c.classid, BigInteger) == _KEY >> 32, cast(_locks.c.objid, BigInteger) == _KEY & 0xFFFF_FFFF)
    .where(
        _locks.c.database
        == select(_databases.c.oid).where(_databases.c.datname == func.current_database()).scalar_subquery()
    )
)


def try_lock(connection: Connection) -> bool:
    """Take the lock for the lifetime of the connection, if it is free. Returns whether it was taken.

    Args:
        connection: The connection that will hold it; a closed connection releases it.
    """
    return bool(connection.execute(_TRY).scalar())


def holder(connection: Connection) -> int | None:
    """Return the id of the server's process whose connection holds the lock, or None.

    Args:
        connection: Any connection of the database.
    """
    return connection.execute(_HOLDER).scalar()


def end_holder(connection: Connection) -> None:
    """End the connection that holds the lock, and with it what its service was writing.

    Args:
        connection: Any connection of the same user.
    """
    pid = holder(connection)
    if pid is not None:
        connection.execute(select(func.pg_terminate_backend(pid)))
