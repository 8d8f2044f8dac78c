"""Policies of buckets: their statements about callers and requests, and their evaluation.

Everything that is accepted is honored; a member, principal, operator or key that is not supported is an error.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.core.names import ACCOUNT_ID, role_name
from tidemill.core.policy import Permission, PolicyEffect, Ruling, Sign, Statement, Token, compile_glob
from tidemill.core.policy_document import ACTIONS, VERSION, read_statement, read_table, read_texts

ENCRYPTION = "s3:x-amz-server-side-encryption"
ENCRYPTION_KEY = "s3:x-amz-server-side-encryption-aws-kms-key-id"
SECURE_TRANSPORT = "aws:SecureTransport"

Facts = Mapping[str, tuple[str, ...]]
"""What is known of a request, by condition key: the forms of its value, e.g. id and ARN of a KMS key; none if absent.

Statements with a condition on a key that is missing here do not apply.
"""

_MAX_BYTES = 20 * 1024
_VERSIONS = (VERSION, "2008-10-17")
_MEMBERS = ("Version", "Id", "Statement")
_STATEMENT_MEMBERS = ("Sid", "Effect", "Principal", "Action", "Resource", "Condition")
_KEYS = {key.casefold(): key for key in (ENCRYPTION, ENCRYPTION_KEY, SECURE_TRANSPORT)}
_OPERATORS = ("StringEquals", "StringNotEquals", "StringLike", "Null", "Bool")
_FLAGS = ("true", "false")
_ROLE, _ROOT = f"arn:aws:iam::{ACCOUNT_ID}:role/", f"arn:aws:iam::{ACCOUNT_ID}:root"
_CALLERS = (f"arn:aws:iam::{ACCOUNT_ID}:user/", f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/")


@dataclass(frozen=True, slots=True)
class Principals:
    """The callers that a statement is about.

    Attributes:
        everyone: ``*``, or the account, to which all callers belong.
        roles: Names of roles.
        arns: ARNs of users and of sessions of roles.
    """

    everyone: bool
    roles: frozenset[str]
    arns: frozenset[str]

    def name(self, caller: str) -> bool:
        """Return whether they name a caller, given by ARN, or its role.

        Args:
            caller: ARN of the caller; for an assumed role, with the session.
        """
        return caller in self.arns or caller.removeprefix(_CALLERS[1]).rpartition("/")[0] in self.roles


@dataclass(frozen=True, slots=True)
class Condition:
    """One operator on one key; several values are alternatives."""

    operator: str
    key: str
    values: tuple[str, ...]

    def fits(self, facts: Facts) -> bool:
        """Return whether a request fulfils the condition.

        Args:
            facts: What is known of the request, by condition key.
        """
        if self.key not in facts:
            return False
        found = facts[self.key]
        match self.operator:
            case "Null":
                return str(not found).lower() in self.values
            case "StringLike":
                return any(_glob(value).fullmatch(form) for value in self.values for form in found)
            case "StringNotEquals":
                return not set(found) & set(self.values)
            case _:
                return bool(set(found) & set(self.values))


@dataclass(frozen=True, slots=True)
class BucketStatement:
    """A statement about some callers under some conditions."""

    name: str
    statement: Statement
    principals: Principals
    conditions: tuple[Condition, ...]

    def fits(self, permission: Permission, caller: str, facts: Facts) -> bool:
        """Return whether the statement applies. As in IAM, Allow for the whole account adds no rights.

        Args:
            permission: Action and resource.
            caller: ARN of the caller.
            facts: What is known of the request.
        """
        denies = self.statement.effect is PolicyEffect.DENY
        return (
            (self.principals.name(caller) or (denies and self.principals.everyone))
            and self.statement.fits(permission, {})
            and all(condition.fits(facts) for condition in self.conditions)
        )


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """The statements of one bucket."""

    statements: tuple[BucketStatement, ...]

    def rule(self, permission: Permission, *, caller: str, facts: Facts) -> tuple[Ruling, str]:
        """Evaluate the policy.

        Args:
            permission: The action and the resource.
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
    if "Principal" not in members:
        raise ValueError(f"{at}: Principal is missing; e.g. '*' for everyone")
    own = {name: value for name, value in members.items() if name not in ("Principal", "Condition")}
    statement = read_statement(own, at)
    for action in statement.actions:
        if not any(action.fits(each) for each in ACTIONS if each.startswith("s3:")):
            raise ValueError(f"{at}: Action {action.text!r} is none of S3; a bucket's policy is about actions of s3")
    arn = f"arn:aws:s3:::{bucket}"
    for resource in statement.resources:
        if resource.placeholders or (resource.text != arn and not resource.text.startswith(f"{arn}/")):
            raise ValueError(
                f"{at}: Resource is {resource.text!r}; allowed are {arn} and {arn}/KEY, with * and ? in KEY"
            )
    sid = members.get("Sid")
    return BucketStatement(
        name=f"{at} ({sid})" if sid else at,
        statement=statement,
        principals=_principals(members["Principal"], at),
        conditions=_conditions(members.get("Condition", {}), at),
    )


def _principals(document: object, at: str) -> Principals:
    if document == "*":
        document = {"AWS": "*"}
    texts = read_texts(read_table(document, f"{at}: Principal", ("AWS",)).get("AWS"), f"{at}: Principal.AWS")
    for text in texts:
        known = text in ("*", ACCOUNT_ID, _ROOT) or text.startswith((_ROLE, *_CALLERS))
        if not known or (text != "*" and re.search(r"[*?]|\$\{", text)):
            raise ValueError(
                f"{at}: Principal.AWS has {text!r}; allowed are '*', the account {ACCOUNT_ID}, {_ROOT}, and without"
                f" wildcards {_ROLE}NAME, {_CALLERS[0]}NAME and {_CALLERS[1]}ROLE/SESSION"
            )
    return Principals(
        everyone=bool({"*", ACCOUNT_ID, _ROOT} & set(texts)),
        roles=frozenset(role_name(text) for text in texts if text.startswith(_ROLE)),
        arns=frozenset(text for text in texts if text == "*" or text.startswith(_CALLERS)),
    )


def _conditions(document: object, at: str) -> tuple[Condition, ...]:
    found = []
    for operator, keys in read_table(document, f"{at}: Condition", _OPERATORS).items():
        what = f"{at}: Condition.{operator}"
        if not isinstance(keys, dict):
            raise ValueError(f"{what} is {keys!r}; expected a table from keys to values")
        for name, values in keys.items():
            found.append(_condition(operator, str(name), values, what))
    return tuple(found)


def _condition(operator: str, name: str, values: object, what: str) -> Condition:
    key = _KEYS.get(name.casefold())
    if key is None:
        raise ValueError(f"{what} has the key {name!r}; supported are {', '.join(_KEYS.values())}")
    is_flag = operator in ("Null", "Bool")
    if (key == SECURE_TRANSPORT) is not (operator == "Bool") and operator != "Null":
        raise ValueError(f"{what} has the key {name!r}; Bool is for {SECURE_TRANSPORT}, and only Bool and Null are")
    given: Sequence[Any] = values if isinstance(values, list) else [values]
    texts = [str(each).lower() if is_flag and isinstance(each, bool) else each for each in given]
    read = read_texts(texts, f"{what}.{name}")
    wrong = [text for text in read if "${" in text or (is_flag and text not in _FLAGS)]
    if wrong:
        allowed = "'true' and 'false'" if is_flag else "texts without variables"
        raise ValueError(f"{what}.{name} has {wrong[0]!r}; allowed are {allowed}")
    return Condition(operator, key, read)


def _glob(text: str) -> re.Pattern[str]:
    tokens: list[Token] = [Sign(piece) if piece in ("*", "?") else piece for piece in re.split(r"([*?])", text)]
    return re.compile(compile_glob(tokens), re.DOTALL)
