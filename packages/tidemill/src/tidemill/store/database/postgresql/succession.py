"""Watches the lead of a database, for a service that does not lead, and tells when it may take the lead."""

import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from tidemill.store.database.postgresql import engine as postgresql
from tidemill.store.database.postgresql import locks
from tidemill.store.database.postgresql.lead import Lead, read_lead

PATIENCE_S = 5.0
"""A leader that has not renewed its row for this long is considered dead. The time counts from the last change that was
seen here. It starts again after the database could not be reached, because then the leader could not renew either."""


class Succession:
    """Looks at the lead of a database; for one thread.

    Args:
        url: ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.
        patience_s: See `PATIENCE_S`.
        monotonic_s: Gives the seconds since any point in time.

    Raises:
        ConfigurationError: The URL cannot be used.
    """

    def __init__(
        self, url: str, *, patience_s: float = PATIENCE_S, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = postgresql.make_engine(postgresql.parse_url(url), read_only=False)
        self._patience_s = patience_s
        self._monotonic_s = monotonic_s
        self._changed_s = monotonic_s()
        self._holder: int | None = None
        self.lead: Lead | None = None
        """The row as last seen."""

    def is_vacant(self, *, leader_has_ended: bool = False) -> bool:
        """Read the row once. Return whether the lead is free: never taken, given back, or not renewed in time.

        Args:
            leader_has_ended: Whether it is known that the process of the leader has ended. Then the lead is free as
                soon as its lock is.
        """
        try:
            with self._engine.connect() as connection, connection.begin():
                self._holder = locks.holder(connection)
                lead = read_lead(connection)
        except DBAPIError as error:
            if postgresql.lacks_table(error):
                return self._holder is None
            self._changed_s = self._monotonic_s()
            return False
        if lead != self.lead:
            self._changed_s = self._monotonic_s()
        self.lead = lead
        if self._holder is None and (lead is None or lead.ended or leader_has_ended):
            return True
        return self._monotonic_s() - self._changed_s > self._patience_s

    def clear(self) -> None:
        """End the connection of a holder that does not renew its row, so that the lock is free."""
        with self._engine.connect() as connection, connection.begin():
            locks.end_holder(connection)
