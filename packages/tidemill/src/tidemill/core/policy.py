"""IAM policies: statements that allow or deny actions on resources, and their evaluation.

A Deny statement overrides every Allow statement. Permissions that no statement matches are denied.

    Policy((Statement(Effect.ALLOW, (ActionPattern("s3:Get*"),), (ResourcePattern.parse("arn:aws:s3:::data/*"),)),))
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from tidemill.core.conditions import Condition, Facts, UnknownValue, undetermined, variable
from tidemill.core.globs import (
    ARN_PARTS,
    Placeholder,
    Resolve,
    Sign,
    Token,
    arn_regex,
    compile_glob,
    lowered,
    placeholders_of,
    resolved,
    split_arn,
)
from tidemill.core.names import ACCOUNT_ID, role_name

_ROLE = f"arn:aws:iam::{ACCOUNT_ID}:role/"
_OF_ROLES = ("iam:PassRole", "sts:AssumeRole")
_NAMED = re.compile(r"\$\{(?![*?$]\})")
"""The beginning of a placeholder; one in a head of an ARN may be cut by the split at colons."""


class Permission(NamedTuple):
    """One action on one resource, both without wildcards."""

    action: str
    """E.g. ``s3:GetObject``."""
    resource: str
    """An ARN."""

    @property
    def of_role(self) -> str | None:
        """The ARN of the role that takes effect, if this is about passing or assuming one and gives another ARN.

        Only the name decides which role that is, in whatever account and path the request puts it.
        """
        if self.action not in _OF_ROLES:
            return None
        arn = f"{_ROLE}{role_name(self.resource)}"
        return None if arn == self.resource else arn


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
class ResourcePattern:
    """An ARN with wildcards and placeholders, or ``*`` alone. Case matters, but in names of roles.

    Wildcards do not match a colon, except in the last of the six parts of an ARN. ``${*}``, ``${?}`` and ``${$}`` are
    the literal characters.
    """

    text: str
    placeholders: tuple[Placeholder, ...]
    """The placeholders in the pattern, e.g. ``job.output`` and ``aws:username``."""

    @classmethod
    def parse(cls, text: str) -> "ResourcePattern":
        """Parse a pattern.

        Raises:
            ValueError: It is neither ``*`` nor an ARN of six parts, or a placeholder is not in the last part.
        """
        *heads, last = split_arn(text)
        if text != "*" and (heads[:1] != ["arn"] or len(heads) != ARN_PARTS - 1):
            raise ValueError(
                f"{text!r} is not the ARN of a resource; expected '*' or arn:aws:SERVICE:REGION:ACCOUNT:RESOURCE, e.g."
                " 'arn:aws:s3:::bucket/prefix/*'"
            )
        if any(_NAMED.search(part) for part in heads):
            raise ValueError(f"{text!r}: placeholders can only stand in the last part of an ARN")
        return cls(text, placeholders_of(last))

    def fits(self, resource: str, resolve: Resolve) -> bool | None:
        """Return whether the pattern matches a resource; None if a placeholder has no value.

        Args:
            resource: ARN of the resource.
            resolve: Returns the values of placeholders.
        """
        values = resolved(self.placeholders, resolve)
        if values is None:
            return None
        text = self.text
        if resource.startswith(_ROLE):
            (text, values), resource = lowered(text, values), resource.casefold()
        return arn_regex(text, values).fullmatch(resource) is not None


@dataclass(frozen=True, slots=True)
class Statement:
    """Allows or denies actions on resources, if all conditions are fulfilled.

    Attributes:
        effect: Allow or Deny.
        actions: Patterns of actions; several are alternatives.
        resources: Patterns of resources; several are alternatives.
        conditions: All of them must be fulfilled.
        other_actions: Whether it is about all actions that ``actions`` do not match (NotAction).
        other_resources: Whether it is about all resources that ``resources`` do not match (NotResource).
    """

    effect: PolicyEffect
    actions: tuple[ActionPattern, ...]
    resources: tuple[ResourcePattern, ...]
    conditions: tuple[Condition, ...] = ()
    other_actions: bool = False
    other_resources: bool = False

    def fits(self, permission: Permission, values: Mapping[str, str], facts: Facts = undetermined) -> bool:
        """Return whether the statement applies to a permission.

        Args:
            values: Values of the placeholders of jobs, by name.
            facts: What is known of the request. Default: nothing, so that no condition lets a statement allow, and
                none keeps a statement from denying.
        """
        if any(action.fits(permission.action) for action in self.actions) is self.other_actions:
            return False

        def resolve(name: str) -> str | None:
            return variable(facts, name) if ":" in name else values.get(name)

        denies = self.effect is PolicyEffect.DENY
        return self._about(permission, resolve, denies=denies) and all(
            condition.fits(facts, resolve, denies=denies) for condition in self.conditions
        )

    def _about(self, permission: Permission, resolve: Resolve, *, denies: bool) -> bool:
        """Return whether it is about a resource. What is not known never allows, and never keeps from denying.

        A pattern that fits only the role which takes effect, and not the ARN as given, never allows either.
        """
        refuses = denies is not self.other_resources  # a pattern that fits
        names = [permission.resource]
        if refuses and permission.of_role is not None:
            names.append(permission.of_role)
        fits: list[bool | None] = []
        for pattern in self.resources:
            try:
                fits += [pattern.fits(name, resolve) for name in names]
            except UnknownValue:
                fits.append(refuses)
        if not self.other_resources:
            return True in fits
        return True not in fits and (denies or None not in fits)


@dataclass(frozen=True, slots=True)
class IamPolicy:
    """The statements that apply to a role."""

    statements: tuple[Statement, ...]
    keeps_published: bool = False
    """Whether the role may not replace or delete what other jobs published, regardless of the statements."""

    def rule(self, permission: Permission, values: Mapping[str, str], facts: Facts = undetermined) -> Ruling:
        """Evaluate the policy.

        Args:
            values: Text for each placeholder, e.g. ``{"job.name": "digits"}``.
            facts: What is known of the request, as for `Statement.fits`.
        """
        effects = {statement.effect for statement in self.statements if statement.fits(permission, values, facts)}
        if PolicyEffect.DENY in effects:
            return Ruling.DENIED
        return Ruling.ALLOWED if effects else Ruling.UNMENTIONED


@lru_cache(maxsize=8192)
def _action_fits(pattern: str, action: str) -> bool:
    pieces = re.split(r"([*?])", pattern.casefold())
    tokens: list[Token] = [Sign(piece) if piece in ("*", "?") else piece for piece in pieces]
    return re.fullmatch(compile_glob(tokens), action.casefold()) is not None
