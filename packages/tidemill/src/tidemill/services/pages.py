"""Pages of lists that are in memory. The token of a page is the position of its first entry."""

_MAX_DIGITS = 15


def position_of(token: str) -> int | None:
    """Return the position at which a page begins; None for a text that is no token of a page.

    Args:
        token: What a client sent, of any length: Python converts only so many digits.
    """
    return int(token) if token.isascii() and token.isdecimal() and len(token) <= _MAX_DIGITS else None
