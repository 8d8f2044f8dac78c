"""The three formats in which AWS writes times. Values are aware datetimes in UTC."""

import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?([Zz]|[+-]\d\d:?\d\d)?)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_datetime(value: Any) -> datetime:
    """Convert a handler's timestamp, a datetime or epoch seconds, to an aware datetime.

    Args:
        value: A datetime, naive ones in UTC, or seconds since the epoch.
    """
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return parse_epoch(value)


def epoch_seconds(value: Any) -> float | int:
    """Return seconds since the epoch with milliseconds; an integer without a fraction.

    Args:
        value: A datetime or seconds since the epoch.
    """
    seconds = round(to_datetime(value).timestamp(), 3)
    return int(seconds) if seconds.is_integer() else seconds


def iso8601(value: Any) -> str:
    """Format as ``2026-11-21T10:00:00.250Z``; S3 and the query services always show milliseconds or none.

    Args:
        value: A datetime or seconds since the epoch.
    """
    moment = to_datetime(value).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{moment.microsecond // 1000:03d}Z"


def rfc822(value: Any) -> str:
    """Format as ``Sat, 21 Nov 2026 10:00:00 GMT``.

    Args:
        value: A datetime or seconds since the epoch.
    """
    return format_datetime(to_datetime(value).astimezone(UTC), usegmt=True)


def parse_epoch(value: Any) -> datetime:
    """Parse epoch seconds.

    Raises:
        ValueError: The value is not a finite number in the range of the calendar.
    """
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{value} is not a time")
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{value} seconds is out of range") from None


def parse_iso8601(text: str) -> datetime:
    """Parse an ISO 8601 date or time; without a zone it is in UTC.

    Raises:
        ValueError: The text has another form, or there is no such day.
    """
    found = _ISO.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not an ISO 8601 time such as 2026-11-21T10:00:00Z")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    moment = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
    ) + timedelta(seconds=float(f"0.{fraction}") if fraction else 0)
    return moment - _offset(zone)


def parse_rfc822(text: str) -> datetime:
    """Parse an HTTP date.

    Raises:
        ValueError: The text has another form.
    """
    if not text.isascii():
        raise ValueError(f"{text[:64]!r} is not a date")
    moment = parsedate_to_datetime(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _offset(zone: str | None) -> timedelta:
    if zone in (None, "Z", "z"):
        return timedelta()
    digits = zone[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset
