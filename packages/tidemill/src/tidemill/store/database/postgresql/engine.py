"""Connections to a PostgreSQL server: how one is opened, which settings make it durable, what its errors mean."""

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from tidemill.errors import ConfigurationError

SCHEMES = ("postgresql", "postgres")

CONNECT_TIMEOUT_S = 10
_SESSION = {
    "application_name": "tidemill",
    # An acknowledged write is on the disk of the server, regardless of the server's default.
    "options": "-c synchronous_commit=on -c lock_timeout=15s -c timezone=UTC",
    # A server that disappears without closing the connection is noticed within 15 s, also during a statement.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 5,
    "tcp_user_timeout": 15_000,
    "connect_timeout": CONNECT_TIMEOUT_S,
}

# SQLSTATE, or its class: https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
_UNAVAILABLE = (*_LOST, "53", "55P03", "57014", "58", "40001", "40P01")
_CORRUPT = ("XX001", "XX002")


def parse_url(text: str) -> URL:
    """Parse the URL of a database.

    Raises:
        ConfigurationError: It is not one of PostgreSQL, or the driver is not installed.
    """
    allowed = "expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    try:
        url = make_url(text)
    except ArgumentError:
        raise ConfigurationError(f"the database URL cannot be read; {allowed}") from None  # it may contain a password
    if url.drivername not in SCHEMES or not url.database:
        shown = url.render_as_string(hide_password=True)
        raise ConfigurationError(f"the database URL {shown} is not one of PostgreSQL; {allowed}")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise ConfigurationError("records in PostgreSQL need its driver: pip install 'tidemill[postgresql]'") from None
    return url.set(drivername="postgresql+psycopg")


def make_engine(url: URL, *, read_only: bool) -> Engine:
    """Make an engine without a pool.

    Args:
        url: From `parse_url`.
        read_only: If true, transactions read one snapshot and cannot write. If false, each statement sees all rows
            that are committed when it starts.
    """
    engine = create_engine(url, poolclass=NullPool, connect_args=_SESSION)
    if read_only:
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return engine.execution_options(isolation_level="READ COMMITTED")


def has_lost_connection(error: BaseException) -> bool:
    """Return whether the connection is lost, so that only the server knows whether an open transaction was committed.

    Args:
        error: Any error; only those of the driver can be it.
    """
    return isinstance(error, DBAPIError) and (error.connection_invalidated or _state(error).startswith(_LOST))


def is_unavailable(error: BaseException) -> bool:
    """Return whether the server cannot be used at this time, for a reason other than the statement.

    Args:
        error: Any error.
    """
    if not isinstance(error, DBAPIError):
        return False
    # An error without a state comes from the driver: there is no server, or the connection to it was lost.
    is_of_driver = not _state(error) and type(error.orig).__name__ in ("OperationalError", "InterfaceError")
    return has_lost_connection(error) or is_of_driver or _state(error).startswith(_UNAVAILABLE)


def is_corrupt(error: BaseException) -> bool:
    """Return whether the server found its files damaged.

    Args:
        error: Any error.
    """
    return isinstance(error, DBAPIError) and _state(error).startswith(_CORRUPT)


def lacks_table(error: BaseException) -> bool:
    """Return whether a table does not exist, since no service has used the database yet.

    Args:
        error: Any error.
    """
    return isinstance(error, DBAPIError) and _state(error) == "42P01"


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""
