"""Points over time in records of at most 1,000, so that a further point changes one small record.

The owner of a series keeps the list of its blocks in its own record, and changes both in one transaction. A read
fetches only the blocks of its window.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidemill.store.records.base import Record, RecordStore, Transaction

_KIND = "point-block"
_POINTS = 1000


class BlockSpan(NamedTuple):
    """A block of a series, and the times of its points in milliseconds since the epoch."""

    number: int
    first_ms: int
    last_ms: int


class SeriesPoint(NamedTuple):
    """One point.

    Attributes:
        at_ms: Milliseconds since the epoch.
        value: A finite number.
        detail: What else the owner of the series keeps of a point: a unit, or the number of a step.
    """

    at_ms: int
    value: float
    detail: str | int | None


def spans_of(stored: Sequence[Sequence[int]]) -> list[BlockSpan]:
    """Return the blocks of a series from the JSON in its owner's record.

    Args:
        stored: Number and times of each block.
    """
    return [BlockSpan(*each) for each in stored]


def append_points(
    transaction: Transaction, series: str, spans: Sequence[BlockSpan], points: Sequence[SeriesPoint], *, at_ms: int
) -> list[BlockSpan]:
    """Store points behind those that a series has, and return its blocks.

    Args:
        transaction: The transaction, in which the caller stores the blocks.
        series: Name of the series, unique among all.
        spans: The blocks so far.
        points: In the order in which they came.
        at_ms: The current time, in milliseconds since the epoch.
    """
    blocks, left = list(spans), list(points)
    while left:
        number = blocks[-1].number if blocks else 0
        held = _held(transaction.get(_KIND, _name(series, number)))
        if len(held) >= _POINTS:
            number += 1
            held.clear()
        elif blocks:
            blocks.pop()
        taken = _POINTS - len(held)
        held, left = [*held, *left[:taken]], left[taken:]
        times = [point.at_ms for point in held]
        blocks.append(BlockSpan(number, min(times), max(times)))
        name, document = _name(series, number), {"points": [list(point) for point in held]}
        transaction.delete(_KIND, name)
        transaction.insert(Record(kind=_KIND, name=name, created_ms=at_ms, modified_ms=at_ms, document=document))
    return blocks


def points_of(
    records: RecordStore,
    series: str,
    spans: Sequence[BlockSpan],
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
) -> Iterator[SeriesPoint]:
    """Yield the points of a series in the order in which they came.

    Args:
        start_ms: Only points at or after this time, in milliseconds since the epoch. Default: all.
        end_ms: Only points before this time. Default: all.
    """
    for number, first_ms, last_ms in spans:
        if (start_ms is not None and last_ms < start_ms) or (end_ms is not None and first_ms >= end_ms):
            continue
        for point in _held(records.get(_KIND, _name(series, number))):
            if (start_ms is None or start_ms <= point.at_ms) and (end_ms is None or point.at_ms < end_ms):
                yield point


def delete_blocks(transaction: Transaction, series: str, spans: Sequence[BlockSpan]) -> None:
    """Remove blocks of a series.

    Args:
        transaction: The transaction, in which the caller removes them from its own record.
    """
    for span in spans:
        transaction.delete(_KIND, _name(series, span.number))


def _held(record: Record | None) -> list[SeriesPoint]:
    return [SeriesPoint(*point) for point in record.document["points"]] if record is not None else []


def _name(series: str, number: int) -> str:
    return f"{series}.{number:09}"
