"""Patterns with ``*`` and ``?`` as IAM has them, compiled to regular expressions that run in linear time.

Neither sign is special inside a value that is filled in for a placeholder, and no other sign is special at all.
"""

import re
from collections.abc import Sequence
from enum import Enum

__all__ = ["Sign", "Token", "compile_glob"]


class Sign(Enum):
    """What a pattern may hold besides literal text."""

    ANY = "*"
    """Any text, also none."""
    ONE = "?"
    """Any one character."""


Token = str | Sign
"""Literal text, or a sign."""


def compile_glob(tokens: Sequence[Token], *, character: str = ".") -> str:
    """Return a regular expression for ``re.fullmatch`` with ``re.DOTALL``.

    Each stretch between two ``*`` is matched at its first place and never tried again (an atomic group). The first
    place is always as good as a later one, and no pattern takes exponential time on a text that was made for it.

    Args:
        tokens: The pattern.
        character: Regular expression for what the signs stand for, e.g. ``[^:]`` for one part of an ARN.
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
