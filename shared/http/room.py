"""The open connections of a listener, and which of them make room for others.

A connection is *proven* after its first signed request. Anybody can open connections, so the unproven ones are limited
per client, and leave a quarter of the room to proven ones. Beyond a limit, the oldest unproven connection that waits
for its client is closed: a client that sends its request at once gets in, however many idle connections there are. The
limit per client applies after a few seconds, so that many good clients can come together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from .limits import Limits

OwnerOf = Callable[[Any, Any], Hashable]
"""Returns the user who owns a loopback connection, for the addresses of the client's and of the server's end."""

_LOOPBACK = "loopback"
_GRACE_S = 5.0


class Entrant(Protocol):
    """What a room must know of a connection."""

    @property
    def waits(self) -> bool:
        """Whether the next step is the client's: no complete request is being answered."""

    def abort(self) -> None:
        """Close at once."""


@dataclass(slots=True)
class _Origin:
    client: Hashable
    peer: Any
    own: Any
    since_s: float


class Room:
    """Counts the connections of a listener.

    Args:
        limits: ``connections`` and ``unproven`` are checked.
        now_s: A monotonic clock, in seconds.
        owner_of: Tells the users of this machine apart; called only while there are more unproven connections than one
            client may have. Default: all clients on loopback are one.
    """

    def __init__(self, limits: Limits, *, now_s: Callable[[], float], owner_of: OwnerOf | None = None) -> None:
        self._limits = limits
        self._now_s = now_s
        self._owner_of = owner_of
        self._connections: set[Entrant] = set()
        # Dictionaries keep the order: the oldest comes first.
        self._unproven: dict[Entrant, _Origin] = {}
        self._of_client: dict[Hashable, dict[Entrant, None]] = {}
        self._unresolved: dict[Entrant, None] = {}  # whose owner was not needed so far

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._connections)

    def __contains__(self, connection: Entrant) -> bool:
        return connection in self._connections

    def enter(self, connection: Entrant, *, peer: Any, own: Any) -> bool:
        """Add a connection; return whether there is room for it. If not, it is to be refused, and leaves as usual.

        Args:
            peer: Address of the client; empty for a unix socket.
            own: Address of the server's end.
        """
        limits = self._limits
        self._connections.add(connection)
        if limits.unproven is None or not peer:
            return len(self._connections) <= limits.connections
        client = _LOOPBACK if _is_loopback(peer[0]) else peer[0]
        self._unproven[connection] = _Origin(client, peer, own, self._now_s())
        self._of_client.setdefault(client, {})[connection] = None
        if client == _LOOPBACK and self._owner_of is not None:
            self._unresolved[connection] = None
        if len(self._unproven) > limits.unproven and self._owner_of is not None:
            self._resolve(self._owner_of)
        return self._shrink(connection)

    def trim(self) -> None:
        """Apply the limit of each client. The listener calls this once a second."""
        limit, before_s = self._limits.unproven, self._now_s() - _GRACE_S
        if limit is None:
            return
        for group in [each for each in self._of_client.values() if len(each) > limit]:
            for connection in list(group)[: len(group) - limit]:
                if connection.waits and self._unproven[connection].since_s < before_s:
                    self._evict(connection)

    def prove(self, connection: Entrant) -> None:
        """Exempt a connection from the limits on unproven ones: a request of it was signed."""
        origin = self._unproven.pop(connection, None)
        if origin is not None:
            self._leave_group(connection, origin.client)
            self._unresolved.pop(connection, None)

    def leave(self, connection: Entrant) -> None:
        """Remove a connection, if it is there."""
        self._connections.discard(connection)
        self.prove(connection)

    def _leave_group(self, connection: Entrant, client: Hashable) -> None:
        group = self._of_client[client]
        del group[connection]
        if not group:
            del self._of_client[client]

    def _resolve(self, owner_of: OwnerOf) -> None:
        """Find the owners of loopback connections: from here on, each owner is a client."""
        while self._unresolved:
            connection, _ = self._unresolved.popitem()
            origin = self._unproven[connection]
            self._leave_group(connection, origin.client)
            origin.client = (_LOOPBACK, owner_of(origin.peer, origin.own))
            self._of_client.setdefault(origin.client, {})[connection] = None

    def _shrink(self, newcomer: Entrant) -> bool:
        """Close waiting connections, of the largest client if not of the newcomer's; return whether there is room."""
        limits = self._limits
        while len(self._unproven) > limits.connections * 3 // 4 or len(self._connections) > limits.connections:
            group = self._of_client[self._unproven[newcomer].client]
            if len(group) <= (limits.unproven or 0):
                group = max(self._of_client.values(), key=len)
            for each in chain(group, self._unproven):
                if each is not newcomer and each.waits:
                    self._evict(each)
                    break
            else:
                return False
        return True

    def _evict(self, connection: Entrant) -> None:
        self.leave(connection)
        connection.abort()


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.removeprefix("::ffff:").startswith("127.")
