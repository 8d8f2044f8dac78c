"""IAM's wildcards ``*`` and ``?``, compiled to regular expressions that do not backtrack."""

import re
from collections.abc import Sequence
from enum import Enum

__all__ = ["Sign", "Token", "compile_glob"]


class Sign(Enum):
    """A wildcard."""

    ANY = "*"
    """Any text, including the empty text."""
    ONE = "?"
    """Any one character."""


Token = str | Sign
"""Literal text or a wildcard."""


def compile_glob(tokens: Sequence[Token], *, character: str = ".") -> str:
    """Return a regular expression for ``re.fullmatch`` with ``re.DOTALL``.

    Each literal between two ``*`` is matched at its first occurrence only (an atomic group). A later occurrence never
    matches more, and without backtracking the time is bounded by pattern length times text length.

    Args:
        tokens: The pattern.
        character: Regular expression for one character that a wildcard matches, e.g. ``[^:]`` inside a part of an ARN.
    """
    stretches: list[str] = [""]
    for token in tokens:
        if token is Sign.ANY:
            stretches.append("")
        else:
            stretches[-1] += character if token is Sign.ONE else re.escape(token)
    first, *middle = stretches
    if not middle:
        return first
    *between, last = middle
    return first + "".join(f"(?>{character}*?{stretch})" for stretch in between) + f"{character}*{last}"
