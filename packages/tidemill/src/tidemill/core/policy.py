"""IAM policies: statements that allow or deny actions on resources, and their evaluation.

A Deny statement overrides every Allow statement. Permissions that no statement matches are denied. Conditions,
principals, NotAction and NotResource are not supported. The wildcards ``*`` and ``?`` are compiled to regular
expressions that do not backtrack.

    Policy((Statement(Effect.ALLOW, (ActionPattern("s3:Get*"),), (ResourcePattern.parse("arn:aws:s3:::data/*"),)),))
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from typing import NamedTuple

ARN_PARTS = 6
_TOKEN = re.compile(r"\$\{([^}]*)\}|[*?]")
_LITERALS = ("*", "?", "$")


class Permission(NamedTuple):
    """One action on one resource, both without wildcards."""

    action: str
    """E.g. ``s3:GetObject``."""
    resource: str
    """An ARN."""


class PolicyEffect(StrEnum):
    """Effect of a statement on the permissions that it matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class Ruling(StrEnum):
    """Result of evaluating a policy for a permission."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """A Deny statement matches."""
    UNMENTIONED = "unmentioned"
    """No statement matches, so the permission is denied by default."""


class Sign(Enum):
    """A wildcard."""

    ANY = "*"
    """Any text, including the empty text."""
    ONE = "?"
    """Any one character."""


Token = str | Sign
"""Literal text or a wildcard."""


@dataclass(frozen=True, slots=True)
class ActionPattern:
    """``service:Name`` with wildcards, or ``*`` alone. Case does not matter, as in IAM."""

    text: str

    def fits(self, action: str) -> bool:
        """Return whether the pattern matches an action.

        Args:
            action: For example ``s3:GetObject``; case does not matter, as in IAM.
        """
        return _action_fits(self.text, action)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """``${job.NAME}`` in a resource; its value is compared literally."""

    name: str


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """An ARN with wildcards and placeholders, or ``*`` alone. Case matters.

    Wildcards do not match a colon, except in the last of the six parts of an ARN. ``${*}``, ``${?}`` and ``${$}`` are
    the literal characters.
    """

    text: str
    placeholders: tuple[str, ...]
    """Names of the placeholders in the pattern, e.g. ``job.output``."""

    @classmethod
    def parse(cls, text: str) -> "ResourcePattern":
        """Parse a pattern.

        Raises:
            ValueError: It is neither ``*`` nor an ARN of six parts, or a placeholder is not in the last part.
        """
        *heads, last = _parts(text)
        if text != "*" and (heads[:1] != ["arn"] or len(heads) != ARN_PARTS - 1):
            raise ValueError(
                f"{text!r} is not the ARN of a resource; expected '*' or arn:aws:SERVICE:REGION:ACCOUNT:RESOURCE, e.g."
                " 'arn:aws:s3:::bucket/prefix/*'"
            )
        if any(isinstance(token, Placeholder) for part in heads for token in _tokens(part)):
            raise ValueError(f"{text!r}: placeholders can only stand in the last part of an ARN")
        names = {token.name for token in _tokens(last) if isinstance(token, Placeholder)}
        return cls(text, tuple(sorted(names)))

    def fits(self, resource: str, values: Mapping[str, str]) -> bool:
        """Return whether the pattern matches a resource. It matches nothing unless each placeholder has a value.

        Args:
            resource: ARN of the resource.
            values: Values of the placeholders, by name.
        """
        given = tuple((name, values[name]) for name in self.placeholders if name in values)
        if len(given) < len(self.placeholders):
            return False
        return _resource_regex(self.text, given).fullmatch(resource) is not None


@dataclass(frozen=True, slots=True)
class Statement:
    """Allows or denies every listed action on every listed resource."""

    effect: PolicyEffect
    actions: tuple[ActionPattern, ...]
    resources: tuple[ResourcePattern, ...]

    def fits(self, permission: Permission, values: Mapping[str, str]) -> bool:
        """Return whether the statement matches the permission.

        Args:
            permission: Action and resource.
            values: Values of the placeholders, by name.
        """
        return any(action.fits(permission.action) for action in self.actions) and any(
            resource.fits(permission.resource, values) for resource in self.resources
        )


@dataclass(frozen=True, slots=True)
class IamPolicy:
    """The statements that apply to a role."""

    statements: tuple[Statement, ...]
    keeps_published: bool = False
    """Whether the role may not replace or delete what other jobs published, regardless of the statements."""

    def rule(self, permission: Permission, values: Mapping[str, str]) -> Ruling:
        """Evaluate the policy.

        Args:
            permission: The action and the resource.
            values: Text for each placeholder, e.g. ``{"job.name": "digits"}``.
        """
        effects = {statement.effect for statement in self.statements if statement.fits(permission, values)}
        if PolicyEffect.DENY in effects:
            return Ruling.DENIED
        return Ruling.ALLOWED if effects else Ruling.UNMENTIONED


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


def _parts(text: str) -> list[str]:
    return text.split(":", ARN_PARTS - 1)


def _tokens(text: str) -> tuple[Token | Placeholder, ...]:
    found: list[Token | Placeholder] = []
    position = 0
    for match in _TOKEN.finditer(text):
        found.append(text[position : match.start()])
        name = match[1]
        if name is None:
            found.append(Sign(match[0]))
        else:
            found.append(name if name in _LITERALS else Placeholder(name))
        position = match.end()
    found.append(text[position:])
    return tuple(token for token in found if token != "")


@lru_cache(maxsize=8192)
def _action_fits(pattern: str, action: str) -> bool:
    pieces = re.split(r"([*?])", pattern.casefold())
    tokens: list[Token] = [Sign(piece) if piece in ("*", "?") else piece for piece in pieces]
    return re.fullmatch(compile_glob(tokens), action.casefold()) is not None


@lru_cache(maxsize=4096)
def _resource_regex(pattern: str, values: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    known = dict(values)
    *heads, last = [
        [known[token.name] if isinstance(token, Placeholder) else token for token in _tokens(part)]
        for part in _parts(pattern)
    ]
    text = "".join(compile_glob(part, character="[^:]") + ":" for part in heads) + compile_glob(last)
    return re.compile(text, re.DOTALL)
