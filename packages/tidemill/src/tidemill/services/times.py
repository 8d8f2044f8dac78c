"""Times on the wire."""

from datetime import UTC, datetime


def when(milliseconds_since_epoch: int) -> datetime:
    """Convert a stored time to the type that the wire serializes."""
    return datetime.fromtimestamp(milliseconds_since_epoch / 1000, tz=UTC)


def milliseconds(value: datetime | None) -> int | None:
    """Convert a time in a request to the form in which it is stored."""
    return None if value is None else int(value.timestamp() * 1000)
