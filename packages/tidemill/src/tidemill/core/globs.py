"""Texts with wildcards and placeholders, as they stand in policies, compiled to regular expressions.

``*`` and ``?`` are wildcards; ``${*}``, ``${?}`` and ``${$}`` are the literal characters; ``${NAME}`` and
``${NAME, 'DEFAULT'}`` are placeholders, whose values are compared literally. Regular expressions do not backtrack.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

ARN_PARTS = 6
_TOKEN = re.compile(r"\$\{([^}]*)\}|[*?]")
_DEFAULTED = re.compile(r"([^,\s]+)\s*,\s*'(.*)'", re.DOTALL)
_LITERALS = ("*", "?", "$")

Resolve = Callable[[str], str | None]
"""Returns the value of a placeholder, or None without one."""

Values = tuple[tuple[str, str], ...]
"""Values by name of the placeholder."""


class Sign(Enum):
    """A wildcard."""

    ANY = "*"
    """Any text, including the empty text."""
    ONE = "?"
    """Any one character."""


Token = str | Sign
"""Literal text or a wildcard."""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """``${NAME}``; its value is compared literally.

    Attributes:
        name: For example ``job.name`` or ``aws:username``; names with a colon in lower case, as case does not matter.
        default: Its value if there is no other; None for none.
    """

    name: str
    default: str | None = None


def tokens_of(text: str) -> tuple[Token | Placeholder, ...]:
    """Return the parts of a text.

    Args:
        text: A text with wildcards and placeholders.
    """
    found: list[Token | Placeholder] = []
    position = 0
    for match in _TOKEN.finditer(text):
        found.append(text[position : match.start()])
        name = match[1]
        if name is None:
            found.append(Sign(match[0]))
        else:
            found.append(name if name in _LITERALS else _placeholder(name))
        position = match.end()
    found.append(text[position:])
    return tuple(token for token in found if token != "")


def placeholders_of(text: str) -> tuple[Placeholder, ...]:
    """Return the placeholders in a text.

    Args:
        text: A text with wildcards and placeholders.
    """
    return tuple(token for token in tokens_of(text) if isinstance(token, Placeholder)) if "${" in text else ()


def resolved(placeholders: Iterable[Placeholder], resolve: Resolve) -> Values | None:
    """Return the values of placeholders; None if one has no value.

    Args:
        resolve: Returns the value of a name.
    """
    found: dict[str, str] = {}
    for each in placeholders:
        value = resolve(each.name)
        value = each.default if value is None else value
        if value is None:
            return None
        found[each.name] = value
    return tuple(found.items())


def with_values(text: str, values: Values) -> tuple[Token, ...]:
    """Return the parts of a text, with its placeholders replaced.

    Args:
        text: A text with wildcards and placeholders.
        values: The value of each placeholder.
    """
    known = dict(values)
    return tuple(known[token.name] if isinstance(token, Placeholder) else token for token in tokens_of(text))


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


def lowered(text: str, values: Values) -> tuple[str, Values]:
    """Return a pattern and its values in lower case, for names that are the same in every case.

    The names of placeholders are in lower case already.

    Args:
        text: A text with wildcards and placeholders.
        values: The value of each placeholder.
    """
    return text.casefold(), tuple((name.casefold(), value.casefold()) for name, value in values)


def split_arn(text: str) -> list[str]:
    """Return the parts of an ARN, at most six.

    Args:
        text: An ARN, with wildcards and placeholders.
    """
    return text.split(":", ARN_PARTS - 1)


@lru_cache(maxsize=4096)
def arn_regex(pattern: str, values: Values) -> re.Pattern[str]:
    """Return the regular expression of an ARN: wildcards match no colon, except in the last of the six parts.

    Args:
        pattern: An ARN with wildcards and placeholders, or ``*``.
        values: The value of each placeholder.
    """
    *heads, last = [with_values(part, values) for part in split_arn(pattern)]
    text = "".join(compile_glob(part, character="[^:]") + ":" for part in heads) + compile_glob(last)
    return re.compile(text, re.DOTALL)


def _placeholder(text: str) -> Placeholder:
    defaulted = _DEFAULTED.fullmatch(text.strip())
    name = defaulted[1] if defaulted else text
    return Placeholder(name.casefold() if ":" in name else name, defaulted[2] if defaulted else None)
