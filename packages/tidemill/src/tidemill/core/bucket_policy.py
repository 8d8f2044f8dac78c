"""Policies of buckets: their statements about callers and requests, and their evaluation.

Everything that is accepted is honored; a member, principal, operator or key that is not supported is an error.
"""

import json
import re
from dataclasses import dataclass

from tidemill.core.conditions import Facts
from tidemill.core.names import ACCOUNT_ID, role_name
from tidemill.core.policy import Permission, PolicyEffect, Ruling, Statement
from tidemill.core.policy_document import ACTIONS, VERSION, read_statement, read_table, read_texts

_ACTIONS = [action for action in ACTIONS if action.startswith("s3:")]
_MAX_BYTES = 20 * 1024
_VERSIONS = (VERSION, "2008-10-17")
_MEMBERS = ("Version", "Id", "Statement")
_OF_CALLERS = ("Principal", "NotPrincipal")
_STATEMENT_MEMBERS = ("Sid", "Effect", *_OF_CALLERS, "Action", "NotAction", "Resource", "NotResource", "Condition")
_ROLE, _ROOT = f"arn:aws:iam::{ACCOUNT_ID}:role/", f"arn:aws:iam::{ACCOUNT_ID}:root"
_CALLERS = (f"arn:aws:iam::{ACCOUNT_ID}:user/", f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/")


@dataclass(frozen=True, slots=True)
class Principals:
    """The callers that a statement is about.

    Attributes:
        everyone: ``*``, or the account, to which all callers belong.
        roles: Names of roles, in lower case, since case does not matter.
        arns: ARNs of users and of sessions of roles, as `_canonical` returns them.
        others: Whether the statement is about all callers that are not named (NotPrincipal).
    """

    everyone: bool
    roles: frozenset[str]
    arns: frozenset[str]
    others: bool = False

    def name(self, caller: str) -> bool:
        """Return whether they name a caller, given by ARN, or its role.

        Args:
            caller: ARN of the caller; for an assumed role, with the session.
        """
        known = _canonical(caller)
        return known in self.arns or known.removeprefix(_CALLERS[1]).rpartition("/")[0] in self.roles

    def about(self, caller: str, *, denies: bool) -> bool:
        """Return whether a statement is about a caller. As in IAM, Allow for the whole account adds no rights.

        Args:
            caller: ARN of the caller.
            denies: Whether the statement denies.
        """
        if self.others:
            return not self.name(caller)
        return self.name(caller) or (denies and self.everyone)


@dataclass(frozen=True, slots=True)
class BucketStatement:
    """A statement about some callers."""

    name: str
    statement: Statement
    principals: Principals

    def fits(self, permission: Permission, caller: str, facts: Facts) -> bool:
        """Return whether the statement applies.

        Args:
            caller: ARN of the caller.
            facts: What is known of the request.
        """
        denies = self.statement.effect is PolicyEffect.DENY
        return self.principals.about(caller, denies=denies) and self.statement.fits(permission, {}, facts)


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """The statements of one bucket."""

    statements: tuple[BucketStatement, ...]

    def rule(self, permission: Permission, *, caller: str, facts: Facts) -> tuple[Ruling, str]:
        """Evaluate the policy.

        Args:
            caller: ARN of the caller.
            facts: What is known of the request.

        Returns:
            The ruling, and the name of the statement that decides.
        """
        fitting = [each for each in self.statements if each.fits(permission, caller, facts)]
        for each in fitting:
            if each.statement.effect is PolicyEffect.DENY:
                return Ruling.DENIED, each.name
        return (Ruling.ALLOWED, fitting[0].name) if fitting else (Ruling.UNMENTIONED, "")

    @property
    def is_public(self) -> bool:
        """Whether a statement allows something to everyone."""
        return any(
            each.statement.effect is PolicyEffect.ALLOW and each.principals.everyone and "*" in each.principals.arns
            for each in self.statements
        )


def read_bucket_policy(text: str, *, bucket: str) -> BucketPolicy:
    """Read the JSON of a bucket's policy.

    Raises:
        ValueError: Names the statement, the member, the value received and the allowed values.
    """
    if len(text.encode()) > _MAX_BYTES:
        raise ValueError(f"the policy has {len(text.encode())} bytes; allowed are {_MAX_BYTES}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the policy is not JSON: {error}") from error
    members = read_table(document, "the policy", _MEMBERS)
    if members.get("Version", VERSION) not in _VERSIONS:
        raise ValueError(f"Version is {members['Version']!r}; allowed are {', '.join(_VERSIONS)}")
    found = members.get("Statement")
    statements = found if isinstance(found, list) else [found]
    if not statements:
        raise ValueError("Statement is empty; give at least one, or delete the policy")
    return BucketPolicy(
        tuple(_statement(each, f"Statement {number}", bucket) for number, each in enumerate(statements, start=1))
    )


def _statement(document: object, at: str, bucket: str) -> BucketStatement:
    members = read_table(document, at, _STATEMENT_MEMBERS)
    given = [name for name in _OF_CALLERS if name in members]
    if len(given) != 1:
        why = "is missing; e.g. '*' for everyone" if not given else "and NotPrincipal are both there; give one of them"
        raise ValueError(f"{at}: Principal {why}")
    own = {name: value for name, value in members.items() if name not in _OF_CALLERS}
    statement = read_statement(own, at)
    for action in statement.actions:
        of_s3 = action.text.lower().startswith("s3:") or any(action.fits(each) for each in _ACTIONS)
        if not statement.other_actions and not of_s3:
            raise ValueError(f"{at}: Action {action.text!r} is none of S3; a bucket's policy is about actions of s3")
    arn = f"arn:aws:s3:::{bucket}"
    for resource in statement.resources:
        of_jobs = any(":" not in each.name for each in resource.placeholders)
        if of_jobs or (resource.text != arn and not resource.text.startswith(f"{arn}/")):
            raise ValueError(
                f"{at}: Resource is {resource.text!r}; allowed are {arn} and {arn}/KEY, with * and ? and variables such"
                " as ${aws:username} in KEY"
            )
    sid = members.get("Sid")
    principals = _principals(members[given[0]], f"{at}: {given[0]}", others=given[0] == "NotPrincipal")
    if principals.others and statement.effect is PolicyEffect.ALLOW:
        raise ValueError(f"{at}: NotPrincipal with Allow would allow it to everyone else; use Principal, or Deny")
    return BucketStatement(name=f"{at} ({sid})" if sid else at, statement=statement, principals=principals)


def _principals(document: object, at: str, *, others: bool) -> Principals:
    if document == "*":
        document = {"AWS": "*"}
    texts = read_texts(read_table(document, at, ("AWS",)).get("AWS"), f"{at}.AWS")
    for text in texts:
        known = text in ("*", ACCOUNT_ID, _ROOT) or text.startswith((_ROLE, *_CALLERS))
        if not known or (text != "*" and re.search(r"[*?]|\$\{", text)):
            raise ValueError(
                f"{at}.AWS has {text!r}; allowed are '*', the account {ACCOUNT_ID}, {_ROOT}, and without"
                f" wildcards {_ROLE}NAME, {_CALLERS[0]}NAME and {_CALLERS[1]}ROLE/SESSION"
            )
    if others and "*" in texts:
        raise ValueError(f"{at} is '*', so the statement would be about nobody; name those that it is not about")
    return Principals(
        everyone=bool({"*", ACCOUNT_ID, _ROOT} & set(texts)),
        roles=frozenset(role_name(text).casefold() for text in texts if text.startswith(_ROLE)),
        arns=frozenset(_canonical(text) for text in texts if text == "*" or text.startswith(_CALLERS)),
        others=others,
    )


def _canonical(arn: str) -> str:
    """Return the ARN of a session with the name of its role in lower case; other ARNs unchanged."""
    if not arn.startswith(_CALLERS[1]):
        return arn
    role, slash, session = arn.removeprefix(_CALLERS[1]).rpartition("/")
    return f"{_CALLERS[1]}{role.casefold()}{slash}{session}"
