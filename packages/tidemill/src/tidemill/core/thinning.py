"""Chooses the points of a long curve that are drawn, without losing a peak."""

from collections.abc import Sequence


def thinned(values: Sequence[float], *, most: int) -> Sequence[int]:
    """Return the indices of at most ``most`` values, ascending.

    They are the first and the last value and, of parts of equal length, the least and the greatest one.

    Args:
        values: Finite numbers.
        most: At least 4.
    """
    count = len(values)
    if count <= most:
        return range(count)
    parts = (most - 2) // 2
    kept = {0, count - 1}
    for part in range(parts):
        indices = range(part * count // parts, (part + 1) * count // parts)
        kept |= {min(indices, key=values.__getitem__), max(indices, key=values.__getitem__)}
    return sorted(kept)
