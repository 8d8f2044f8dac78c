"""Sizes as texts."""


def size(size_bytes: int) -> str:
    """Format a number of bytes in a binary unit, e.g. ``1.5 GiB``.

    Args:
        size_bytes: The number.
    """
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
