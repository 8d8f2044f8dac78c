"""Times on the wire."""

from datetime import UTC, datetime

__all__ = ["milliseconds", "when"]


def when(milliseconds_since_epoch: int) -> datetime:
    """A stored time as the wire's serializer wants it."""
    return datetime.fromtimestamp(milliseconds_since_epoch / 1000, tz=UTC)


def milliseconds(value: datetime | None) -> int | None:
    """A parsed request time as the store wants it."""
    return None if value is None else int(value.timestamp() * 1000)
