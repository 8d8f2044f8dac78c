"""Conditions of policy statements: IAM's operators, and their evaluation against what is known of a request.

A key of a request has values, is absent, or is `Lack.UNDETERMINED`: this service cannot know its value. A condition on
an undetermined key makes no statement allow and every statement deny, so that no Deny is lost. An absent key is treated
as in IAM: it fulfills the negated operators, ``...IfExists`` and ``ForAllValues``.
"""

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from operator import eq, ge, gt, le, lt

from tidemill.core.globs import (
    ARN_PARTS,
    Resolve,
    Sign,
    Values,
    arn_regex,
    compile_glob,
    lowered,
    placeholders_of,
    resolved,
    split_arn,
    with_values,
)
from tidemill.core.names import ACCOUNT_ID


class Lack(Enum):
    """Why there are no values of a key, other than that the request has none."""

    UNDETERMINED = "undetermined"
    """The value is not known. No Allow with a condition on it applies, and every Deny does."""
    WAIVED = "waived"
    """The key is not checked for this request. No statement with a condition on it applies."""


Fact = tuple[str, ...] | None | Lack
"""The values of a key; None if the request has none."""

Facts = Callable[[str], Fact]
"""Returns the values of a condition key, given by its name in lower case."""

_ALL, _ANY = "ForAllValues", "ForAnyValue"
_IF_EXISTS = "IfExists"
_NULL = "Null"
_PRINCIPAL = "aws:principalarn"

_POSITIVE: dict[str, str] = {
    "StringEquals": "string",
    "StringEqualsIgnoreCase": "text",
    "StringLike": "like",
    "NumericEquals": "number =",
    "NumericLessThan": "number <",
    "NumericLessThanEquals": "number <=",
    "NumericGreaterThan": "number >",
    "NumericGreaterThanEquals": "number >=",
    "DateEquals": "date =",
    "DateLessThan": "date <",
    "DateLessThanEquals": "date <=",
    "DateGreaterThan": "date >",
    "DateGreaterThanEquals": "date >=",
    "Bool": "flag",
    "BinaryEquals": "string",
    "IpAddress": "address",
    "ArnEquals": "arn",
    "ArnLike": "arn",
}
"""Kind of comparison by operator."""
_NEGATED: dict[str, str] = {
    "StringNotEquals": "string",
    "StringNotEqualsIgnoreCase": "text",
    "StringNotLike": "like",
    "NumericNotEquals": "number =",
    "DateNotEquals": "date =",
    "NotIpAddress": "address",
    "ArnNotEquals": "arn",
    "ArnNotLike": "arn",
}
_NAMES = {name.casefold(): name for name in (*_POSITIVE, *_NEGATED, _NULL)}
_WITH_VARIABLES = ("string", "text", "like", "arn")
_FLAGS = ("true", "false")


@dataclass(frozen=True, slots=True)
class Operator:
    """One of IAM's condition operators.

    Attributes:
        name: For example ``StringNotLike``, without prefix and suffix.
        if_exists: Whether an absent key fulfills it (suffix ``IfExists``).
        quantifier: ``ForAllValues``, ``ForAnyValue`` or empty.
    """

    name: str
    if_exists: bool = False
    quantifier: str = ""

    @classmethod
    def parse(cls, text: str) -> "Operator":
        """Parse an operator; case does not matter.

        Raises:
            ValueError: There is no such operator.
        """
        quantifier, colon, rest = text.rpartition(":")
        quantifiers = {each.casefold(): each for each in (_ALL, _ANY)}
        if_exists = rest.casefold().endswith(_IF_EXISTS.casefold())
        name = _NAMES.get((rest[: -len(_IF_EXISTS)] if if_exists else rest).casefold())
        known = name is not None and (not colon or quantifier.casefold() in quantifiers)
        if name is None or not known or (name == _NULL and (if_exists or colon)):
            raise ValueError(
                f"{text!r} is no operator of conditions; there are {', '.join(_NAMES.values())}, with {_ALL}: or"
                f" {_ANY}: before, and {_IF_EXISTS} behind all of them but {_NULL}"
            )
        return cls(name, if_exists, quantifiers.get(quantifier.casefold(), ""))

    @property
    def negated(self) -> bool:
        """Whether it is fulfilled by values that differ."""
        return self.name in _NEGATED

    @property
    def comparison(self) -> str:
        """Kind of the comparison; ``null`` for Null."""
        return _POSITIVE.get(self.name) or _NEGATED.get(self.name) or "null"

    @property
    def without_value(self) -> bool:
        """Whether an absent key fulfills it. That of Null depends on its value."""
        if self.quantifier:
            return self.quantifier == _ALL or self.if_exists
        return self.negated or self.if_exists


@dataclass(frozen=True, slots=True)
class Condition:
    """One operator on one key; several values are alternatives."""

    operator: Operator
    key: str
    """In lower case."""
    values: tuple[str, ...]

    @classmethod
    def read(cls, operator: str, key: str, values: Sequence[str]) -> "Condition":
        """Read a condition of a policy document.

        Raises:
            ValueError: There is no such operator, or a value is none that it compares with.
        """
        parsed = Operator.parse(operator)
        for value in values:
            if parsed.comparison in ("flag", "null"):
                if value.lower() not in _FLAGS:
                    raise ValueError(f"{value!r}; allowed are 'true' and 'false'")
            elif "${" in value and parsed.comparison not in _WITH_VARIABLES:
                raise ValueError(f"{value!r}; variables can only stand in texts and ARNs")
            else:
                _test(parsed.comparison, value, tuple((each.name, "") for each in placeholders_of(value)))
        return cls(parsed, key.casefold(), tuple(values))

    def fulfilled_without_value(self) -> bool:
        """Return whether a request fulfills the condition that has no value of the key."""
        if self.operator.name == _NULL:
            return "true" in (value.lower() for value in self.values)
        return self.operator.without_value

    def fits(self, facts: Facts, resolve: Resolve, *, denies: bool) -> bool:
        """Return whether a request fulfills the condition.

        Args:
            facts: What is known of the request.
            resolve: Returns the values of variables, or raises UnknownValue.
            denies: Whether the statement denies; decides what is not known.
        """
        fact = facts(self.key)
        if isinstance(fact, Lack):
            return denies and fact is Lack.UNDETERMINED
        if not fact:
            return self.fulfilled_without_value()
        if self.operator.name == _NULL:
            return "false" in (each.lower() for each in self.values)
        try:
            return self._compares(fact, resolve, denies=denies)
        except UnknownValue:
            return denies

    def _compares(self, fact: tuple[str, ...], resolve: Resolve, *, denies: bool) -> bool:
        operator = self.operator
        found = [(value, resolved(placeholders_of(value), resolve)) for value in self.values]
        wanted = [(value, values) for value, values in found if values is not None]
        if operator.negated and len(wanted) < len(found):
            return denies  # a value that is not known may be the one that the request must not have
        if self.key == _PRINCIPAL and all(":role/" in each for each in fact):
            # Names of roles are the same in every case, here as on AWS.
            fact = tuple(each.casefold() for each in fact)
            wanted = [lowered(*each) for each in wanted]
        tests = [_test(operator.comparison, *each) for each in wanted]
        matches = [any(test(value) for test in tests) for value in fact]
        if operator.negated:
            return any(not each for each in matches) if operator.quantifier == _ANY else not any(matches)
        return all(matches) if operator.quantifier == _ALL else any(matches)


class UnknownValue(Exception):
    """The value of a policy variable cannot be known."""


def variable(facts: Facts, name: str) -> str | None:
    """Return the value of a policy variable; None if the request has none.

    Args:
        facts: What is known of the request.
        name: Name of a condition key, in lower case.

    Raises:
        UnknownValue: It has several values, or cannot be known.
    """
    fact = facts(name)
    if isinstance(fact, Lack) or (fact and len(fact) > 1):
        raise UnknownValue
    return fact[0] if fact else None


def undetermined(key: str) -> Fact:
    """Return that nothing is known of a key: the facts of a caller that has none."""
    return Lack.UNDETERMINED


@lru_cache(maxsize=4096)
def _test(comparison: str, wanted: str, values: Values) -> Callable[[str], bool]:
    """Return the function that compares a value of a request with one of a condition.

    Raises:
        ValueError: The value of the condition is malformed.
    """
    kind, _, order = comparison.partition(" ")
    tokens = with_values(wanted, values)
    literal = "".join(token.value if isinstance(token, Sign) else token for token in tokens)
    match kind:
        case "like":
            like = re.compile(compile_glob(tokens), re.DOTALL)
            return lambda value: like.fullmatch(value) is not None
        case "arn":
            return _arn_test(wanted, values)
        case "address":
            return _address_test(literal)
        case "number" | "date":
            return _order_test(_number if kind == "number" else _time, order, literal)
        case "string":
            return lambda value: value == literal
        case _:
            folded = literal.casefold()
            return lambda value: value.casefold() == folded


def _arn_test(wanted: str, values: Values) -> Callable[[str], bool]:
    *heads, _ = split_arn(wanted)
    if wanted != "*" and (len(heads) < ARN_PARTS - 1 or any("${" in part for part in heads)):
        raise ValueError(
            f"{wanted!r}; expected an ARN of six parts, with variables only in the last, e.g."
            f" 'arn:aws:iam::{ACCOUNT_ID}:role/*'"
        )
    regex = arn_regex(wanted, values)
    return lambda value: regex.fullmatch(value) is not None


def _address_test(wanted: str) -> Callable[[str], bool]:
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError as error:
        raise ValueError(f"{wanted!r}; expected an address or a network, e.g. '10.0.0.0/8'") from error

    def test(value: str) -> bool:
        try:
            address = ipaddress.ip_address(value)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address) in network

    return test


def _order_test(read: Callable[[str], Decimal], order: str, wanted: str) -> Callable[[str], bool]:
    try:
        bound = read(wanted)
    except (ValueError, InvalidOperation) as error:
        what = "a number" if read is _number else "a date, e.g. '2030-01-31T12:00:00Z'"
        raise ValueError(f"{wanted!r}; expected {what}") from error
    compare = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}[order]

    def test(value: str) -> bool:
        try:
            return bool(compare(read(value), bound))
        except (ValueError, InvalidOperation):
            return False

    return test


def _number(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


def _time(text: str) -> Decimal:
    """Return the seconds since the epoch of a date of ISO 8601, or of a number of seconds."""
    if text.isascii() and text.isdigit():
        return Decimal(text)
    found = datetime.fromisoformat(text)
    return Decimal(str((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()))
