"""SimulatePrincipalPolicy and SimulateCustomPolicy: what policies would decide, by the evaluation that requests get.

The simulation knows of a request what its ContextEntries say, and who would send it. Policies of buckets, and the rule
that jobs keep what others published, are no part of it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemill.control.iam_roles import IamRoles
from tidemill.control.user_keys import UserKeys
from tidemill.core.condition_keys import canonical
from tidemill.core.conditions import Fact
from tidemill.core.facts import values_of_principal
from tidemill.core.names import ACCOUNT_ID, role_name
from tidemill.core.policy import ActionPattern, IamPolicy, Permission, PolicyEffect, ResourcePattern, Statement
from tidemill.core.policy_document import ACTIONS, load_document, read_policy
from tidemill.core.roles import BUILT_IN, Roles
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.pages import position_of
from tidemill.wire.exchange import Context

_PAGE = 100
_USER, _ROLE = f"arn:aws:iam::{ACCOUNT_ID}:user/", f"arn:aws:iam::{ACCOUNT_ID}:role/"
_SESSION = f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/"

_SERVICES = sorted({action.partition(":")[0] for action in ACTIONS})
_USUAL = IamPolicy(
    (
        *BUILT_IN.statements,
        Statement(
            PolicyEffect.ALLOW,
            tuple(ActionPattern(f"{service}:*") for service in _SERVICES),
            (ResourcePattern.parse("*"),),
            other_actions=True,
        ),
    )
)
"""The policy of a role that was given none: the built-in one, and like AWS's usual execution role every action of the
services that do not exist here. AWS's SDK v3 asks for such actions before it trains."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One policy.

    Attributes:
        name: SourcePolicyId.
        kind: SourcePolicyType: ``user``, ``role`` or ``none``.
        text: Its document; empty if there is none.
    """

    name: str
    kind: str
    policy: IamPolicy
    text: str = ""

    def shown(self, number: int) -> dict[str, Any]:
        """Return one of its statements as IAM shows it.

        Args:
            number: Its position in the policy.
        """
        shown: dict[str, Any] = {"SourcePolicyId": self.name, "SourcePolicyType": self.kind}
        if self.text:
            start, end = list(_spans(self.text))[number]
            shown |= {"StartPosition": _position(self.text, start), "EndPosition": _position(self.text, end)}
        return shown


@dataclass(slots=True)
class _Known:
    """What is known of the simulated request: its entries, and who sends it.

    Attributes:
        entries: Values by key in lower case.
        arn: ARN of the sender; empty if it is not known.
        missing: The keys that were asked for and have no values.
    """

    entries: Mapping[str, tuple[str, ...]]
    arn: str
    missing: set[str] = field(default_factory=set)

    def __call__(self, key: str) -> Fact:
        found = self.entries.get(key) or (values_of_principal(self.arn).get(key) if self.arn else None)
        if found is None:
            self.missing.add(canonical(key))
        return found


class SimulationHandlers(Operations):
    """The operations that simulate policies.

    Args:
        keys: The users and their policies.
        roles: The policies of all roles.
        of_owner: IAM's operations that only the owner of the service may use, whatever a policy allows.
    """

    def __init__(self, keys: UserKeys, created: IamRoles, roles: Roles, *, of_owner: frozenset[str]) -> None:
        self._keys = keys
        self._created = created
        self._roles = roles
        self._of_owner = frozenset(f"iam:{name}" for name in of_owner)

    async def simulate_principal_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return what the policies of a user or role would decide, together with further ones.

        A user without any may do everything but what is for the owner alone.
        """
        source = request["PolicySourceArn"]
        if source.startswith(_USER):
            sources, sender = self._of_user(source), source
        elif source.startswith((_ROLE, _SESSION)):
            role = role_name(source) if source.startswith(_ROLE) else source.removeprefix(_SESSION).partition("/")[0]
            sources, sender = self._of_role(role), f"{_SESSION}{role}/simulation"
        else:
            raise AwsError(
                f"PolicySourceArn is {source!r}; allowed are {_USER}NAME and {_ROLE}NAME: there are no groups",
                code="InvalidInput",
            )
        sources = [*sources, *_given(request, "PolicyInputList")]
        return self._answer(request, sources, sender=request.get("CallerArn") or sender)

    async def simulate_custom_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return what the policies in the request would decide."""
        return self._answer(request, _given(request, "PolicyInputList"), sender=request.get("CallerArn", ""))

    def _of_user(self, arn: str) -> list[_Source]:
        name = arn.removeprefix(_USER)
        user = self._keys.user(name)
        if user is None:
            raise AwsError(f"The user with name {name} cannot be found.", code="NoSuchEntity")
        return [_read(each, "user", text) for each, text in user.policies.items()]

    def _of_role(self, role: str) -> list[_Source]:
        of_settings = self._roles.of_settings(role)
        if of_settings is not None:
            return [_Source(f"roles.{role}", "role", of_settings)]
        created = self._created.find(role)
        if created is not None and created.policies:
            return [_read(name, "role", text) for name, text in created.policies.items()]
        return [_Source("built-in", "role", _USUAL)]

    def _answer(self, request: Mapping[str, Any], sources: Sequence[_Source], *, sender: str) -> dict[str, Any]:
        boundary = _given(request, "PermissionsBoundaryPolicyInputList")
        pairs = [
            Permission(action, resource)
            for action in request["ActionNames"]
            for resource in request.get("ResourceArns") or ["*"]
        ]
        start, size = _offset(request.get("Marker")), request.get("MaxItems", _PAGE)
        shown = [self._result(request, each, sources, boundary, sender) for each in pairs[start : start + size]]
        more = start + size < len(pairs)
        page: dict[str, Any] = {"IsTruncated": more, **({"Marker": str(start + size)} if more else {})}
        return {"EvaluationResults": shown, **page}

    def _result(
        self,
        request: Mapping[str, Any],
        permission: Permission,
        sources: Sequence[_Source],
        boundary: Sequence[_Source],
        sender: str,
    ) -> dict[str, Any]:
        if permission.action.count(":") != 1:
            raise AwsError(
                f"ActionNames has {permission.action!r}; expected SERVICE:NAME, e.g. 's3:GetObject'",
                code="InvalidInput",
            )
        known = _Known(_entries(request), sender)
        decided = [self._decide(each, sources, boundary, known) for each in self._roles.needed(permission)]
        decision, bounded, matched = next((each for each in decided if each[0] != "allowed"), decided[0])
        if permission.action in self._of_owner and decision == "allowed":
            decision = "implicitDeny"
        statements = [source.shown(number) for source, number, _ in matched]
        found = {"MatchedStatements": statements, "MissingContextValues": sorted(known.missing)}
        of_boundary = {"PermissionsBoundaryDecisionDetail": {"AllowedByPermissionsBoundary": bounded == "allowed"}}
        detail = of_boundary if boundary else {}
        return {
            "EvalActionName": permission.action,
            "EvalResourceName": permission.resource,
            "EvalDecision": decision,
            **found,
            **detail,
            "ResourceSpecificResults": [
                {"EvalResourceName": permission.resource, "EvalResourceDecision": decision, **found, **detail}
            ],
        }

    def _decide(
        self, permission: Permission, sources: Sequence[_Source], boundary: Sequence[_Source], known: _Known
    ) -> tuple[str, str, Sequence[tuple[_Source, int, Statement]]]:
        """Return the decision, that of the boundary, and the statements that fit."""
        matched = list(self._matching(sources, permission, known))
        limits = list(self._matching(boundary, permission, known))
        decision = _decided([statement for _, _, statement in matched], without="allowed" if not sources else None)
        bounded = _decided([statement for _, _, statement in limits])
        if boundary and bounded != "allowed" and decision != "explicitDeny":
            decision = bounded
        return decision, bounded, matched

    def _matching(
        self, sources: Sequence[_Source], permission: Permission, known: _Known
    ) -> Iterator[tuple[_Source, int, Statement]]:
        values = self._roles.placeholders(permission, None)
        for source in sources:
            for number, statement in enumerate(source.policy.statements):
                if statement.fits(permission, values, known):
                    yield source, number, statement


def _decided(statements: Sequence[Statement], *, without: str | None = None) -> str:
    effects = {statement.effect for statement in statements}
    if PolicyEffect.DENY in effects:
        return "explicitDeny"
    return "allowed" if effects else without or "implicitDeny"


def _given(request: Mapping[str, Any], member: str) -> list[_Source]:
    return [_read(f"{member}.{number}", "none", text) for number, text in enumerate(request.get(member, ()), start=1)]


def _read(name: str, kind: str, text: str) -> _Source:
    try:
        return _Source(name, kind, read_policy(load_document(text)), text)
    except ValueError as error:
        raise AwsError(f"The policy {name!r} cannot be used: {error}", code="InvalidInput") from error


def _entries(request: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {
        each["ContextKeyName"].casefold(): tuple(each.get("ContextKeyValues", ()))
        for each in request.get("ContextEntries", ())
        if "ContextKeyName" in each
    }


def _offset(marker: str | None) -> int:
    found = position_of(marker or "0")
    if found is None:
        raise AwsError(f"Marker is {marker!r}; give the one of the last reply, or none", code="InvalidInput")
    return found


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each statement in the JSON of a policy that was read before."""
    decoder = json.JSONDecoder()

    def skip(at: int, signs: str) -> int:
        while text[at] in signs or text[at].isspace():
            at += 1
        return at

    at = skip(0, "{")
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        at = skip(at, ":")
        if name != "Statement":
            _, at = decoder.raw_decode(text, at)
        elif text[at] != "[":
            yield at, (at := decoder.raw_decode(text, at)[1])
        else:
            at = skip(at + 1, "")
            while text[at] != "]":
                yield at, (at := decoder.raw_decode(text, at)[1])
                at = skip(at, ",")
            at += 1
        at = skip(at, ",")


def _position(text: str, at: int) -> dict[str, int]:
    return {"Line": text.count("\n", 0, at) + 1, "Column": at - text.rfind("\n", 0, at)}
