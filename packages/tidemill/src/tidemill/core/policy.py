"""Policies in the shape of IAM's: statements that allow or deny actions on resources.

Pure evaluation, without input or output. A statement that denies wins over every statement that allows, and what no
statement mentions is denied. Conditions, principals and negated lists do not exist here.

    Policy((Statement(Effect.ALLOW, (ActionPattern("s3:Get*"),), (ResourcePattern.parse("arn:aws:s3:::data/*"),)),))
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from tidemill.core.globs import Sign, Token, compile_glob

__all__ = ["ActionPattern", "Effect", "Permission", "Policy", "ResourcePattern", "Ruling", "Statement"]

ARN_PARTS = 6
_TOKEN = re.compile(r"\$\{([^}]*)\}|[*?]")
_LITERALS = ("*", "?", "$")


class Permission(NamedTuple):
    """One action on one resource, both literal: what a request needs."""

    action: str
    """E.g. ``s3:GetObject``."""
    resource: str
    """An ARN."""


class Effect(StrEnum):
    """What a statement does with the permissions that it matches."""

    ALLOW = "Allow"
    DENY = "Deny"


class Ruling(StrEnum):
    """What a policy says of a permission."""

    ALLOWED = "allowed"
    DENIED = "denied"
    """By a statement."""
    UNMENTIONED = "unmentioned"
    """By default: no statement matches."""


@dataclass(frozen=True, slots=True)
class ActionPattern:
    """``service:Name`` with ``*`` and ``?``, or ``*`` alone. Case does not matter, as in IAM."""

    text: str

    def fits(self, action: str) -> bool:
        """Whether an action falls under the pattern."""
        return _action_regex(self.text).fullmatch(action.casefold()) is not None


@dataclass(frozen=True, slots=True)
class Placeholder:
    """``${job.NAME}`` in a resource; its value is compared literally."""

    name: str


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """An ARN with ``*``, ``?`` and placeholders, or ``*`` alone; case matters.

    A sign never reaches over a colon, except in the last of the six parts of an ARN, where it stands for anything.
    ``${*}``, ``${?}`` and ``${$}`` are the literal characters.
    """

    text: str
    parts: tuple[tuple[Token | Placeholder, ...], ...]
    """One for each part of the ARN; a single one for ``*``."""

    @classmethod
    def parse(cls, text: str) -> "ResourcePattern":
        """Read a pattern.

        Raises:
            ValueError: It is not ``*`` and not an ARN of six parts, or a placeholder stands before the last of them.
        """
        if text == "*":
            return cls(text, ((Sign.ANY,),))
        parts = text.split(":", ARN_PARTS - 1)
        if parts[0] != "arn" or len(parts) != ARN_PARTS:
            raise ValueError(
                f"{text!r} is not the ARN of a resource; expected '*' or arn:aws:SERVICE:REGION:ACCOUNT:RESOURCE, e.g."
                " 'arn:aws:s3:::bucket/prefix/*'"
            )
        tokens = tuple(_tokens(part) for part in parts)
        if any(isinstance(token, Placeholder) for part in tokens[:-1] for token in part):
            raise ValueError(f"{text!r}: placeholders can only stand in the last part of an ARN")
        return cls(text, tokens)

    @property
    def placeholders(self) -> frozenset[str]:
        """Names of the placeholders in the pattern, e.g. ``job.output``."""
        return frozenset(token.name for part in self.parts for token in part if isinstance(token, Placeholder))

    def fits(self, resource: str, values: Mapping[str, str]) -> bool:
        """Whether a resource falls under the pattern. It does not if a placeholder has no value."""
        used = self.placeholders
        if not used <= values.keys():
            return False
        regex = _resource_regex(self, tuple((name, values[name]) for name in sorted(used)))
        return regex.fullmatch(resource) is not None


@dataclass(frozen=True, slots=True)
class Statement:
    """Allows or denies every listed action on every listed resource."""

    effect: Effect
    actions: tuple[ActionPattern, ...]
    resources: tuple[ResourcePattern, ...]

    def fits(self, permission: Permission, values: Mapping[str, str]) -> bool:
        """Whether the statement is about the permission."""
        return any(action.fits(permission.action) for action in self.actions) and any(
            resource.fits(permission.resource, values) for resource in self.resources
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """What a role may do."""

    statements: tuple[Statement, ...]

    def rule(self, permission: Permission, values: Mapping[str, str]) -> Ruling:
        """Evaluate the policy.

        Args:
            permission: What is asked for.
            values: Text for each placeholder, e.g. ``{"job.name": "digits"}``. A resource whose placeholder has no
                value matches nothing.
        """
        effects = {statement.effect for statement in self.statements if statement.fits(permission, values)}
        if Effect.DENY in effects:
            return Ruling.DENIED
        return Ruling.ALLOWED if effects else Ruling.UNMENTIONED


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


@lru_cache(maxsize=1024)
def _action_regex(text: str) -> re.Pattern[str]:
    tokens: list[Token] = [Sign(piece) if piece in ("*", "?") else piece for piece in re.split(r"([*?])", text)]
    return re.compile(compile_glob([token if isinstance(token, Sign) else token.casefold() for token in tokens]))


@lru_cache(maxsize=4096)
def _resource_regex(pattern: ResourcePattern, values: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    known = dict(values)
    *heads, last = [
        [known[token.name] if isinstance(token, Placeholder) else token for token in part] for part in pattern.parts
    ]
    text = "".join(compile_glob(part, character="[^:]") + ":" for part in heads) + compile_glob(last)
    return re.compile(text, re.DOTALL)
