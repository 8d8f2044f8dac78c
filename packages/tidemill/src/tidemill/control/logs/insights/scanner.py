"""The tokens of a query. Whether a slash begins a regular expression depends on what is expected there."""

import re
from dataclasses import dataclass
from typing import Literal, NoReturn

_SPACE = re.compile(r"(?:\s+|#[^\n]*)*")
_TOKEN = re.compile(
    r"""(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w))
    |(?P<period>\d+[A-Za-z]+)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<field>`[^`]+`|@?[A-Za-z_]\w*(?:\.[\w@]+)*)
    |(?P<sign><=|>=|!=|=~|[-+*/%^=<>(),|\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/((?:[^/\\]|\\.)*)/", re.DOTALL)
_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")


DIGITS_MAX = 15
"""Digits of the largest integer in a query."""


class MalformedQuery(ValueError):
    """A query has a mistake, or something that is not offered.

    Attributes:
        begin: Offset of its first character in the query.
        end: Offset after it.
    """

    def __init__(self, message: str, *, begin: int, end: int) -> None:
        super().__init__(message)
        self.begin = begin
        self.end = end


@dataclass(frozen=True, slots=True)
class QueryToken:
    """A token.

    Attributes:
        kind: What it is; ``end`` after the last one.
        text: As it is written.
        begin: Its offset in the query.
    """

    kind: Literal["number", "period", "string", "field", "sign", "end"]
    text: str
    begin: int

    @property
    def word(self) -> str:
        """A name in lower case, as keywords are compared; empty for other tokens."""
        return self.text.lower() if self.kind == "field" else ""


class QueryScanner:
    """Reads the tokens of a query one by one."""

    def __init__(self, query: str) -> None:
        self.query = query
        self._place = 0

    @property
    def place(self) -> int:
        """Offset of the next token."""
        match = _SPACE.match(self.query, self._place)
        return match.end() if match is not None else self._place

    def peek(self) -> QueryToken:
        """Return the next token without reading it."""
        begin = self.place
        if begin == len(self.query):
            return QueryToken("end", "", begin)
        match = _TOKEN.match(self.query, begin)
        if match is None or match.lastgroup is None:
            raise MalformedQuery(f"unexpected {self.query[begin]!r} at position {begin}", begin=begin, end=begin + 1)
        return QueryToken(match.lastgroup, match[0], begin)  # type: ignore[arg-type] - names of the groups

    def take(self) -> QueryToken:
        """Read the next token."""
        token = self.peek()
        self._place = token.begin + len(token.text)
        return token

    def take_if(self, *texts: str) -> bool:
        """Read the next token if it is one of these signs or words.

        Args:
            texts: Signs, and words in lower case.
        """
        token = self.peek()
        found = (token.word or token.text) in texts and token.kind in ("field", "sign")
        if found:
            self.take()
        return found

    def expect(self, *texts: str) -> None:
        """Read one of these signs or words.

        Raises:
            MalformedQuery: Something else is next.
        """
        if not self.take_if(*texts):
            self.fail(f"expected {' or '.join(texts)}")

    def take_regex(self) -> re.Pattern[str] | None:
        """Read ``/EXPRESSION/``; None if something else is next. Groups may be named as ``(?<name>...)``.

        Raises:
            MalformedQuery: It is no regular expression of Python.
        """
        begin = self.place
        match = _REGEX.match(self.query, begin)
        if match is None:
            return None
        self._place = match.end()
        try:
            return re.compile(_NAMED_GROUP.sub("(?P<", match[1].replace("\\/", "/")))
        except (re.error, ValueError, OverflowError, RecursionError) as error:
            raise MalformedQuery(
                f"{match[0]} is not a regular expression: {error}", begin=begin, end=match.end()
            ) from error

    def fail(self, expected: str, token: QueryToken | None = None) -> NoReturn:
        """Raise the error for a token.

        Args:
            expected: What would be allowed, or what is not offered.
            token: The token. Default: the next one.

        Raises:
            MalformedQuery: Always.
        """
        token = token or self.peek()
        shown = repr(token.text) if token.text else "the end"
        raise MalformedQuery(
            f"{shown} at position {token.begin}: {expected}", begin=token.begin, end=token.begin + len(token.text)
        )


def whole_number(digits: str) -> int | None:
    """Return an integer; None for other text, and for one with too many digits.

    Args:
        digits: As in the query.
    """
    return int(digits) if digits.isdecimal() and len(digits) <= DIGITS_MAX else None
