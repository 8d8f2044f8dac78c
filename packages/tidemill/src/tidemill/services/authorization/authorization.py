"""Checks every request against the policy of its caller, between validation and handler.

The owner's key pair may do everything that no bucket's policy denies; a user's pair, and the keys of a session, also
only what their policies allow, and lists of SageMaker show them only what they may describe. A job's key may do what
the policy of its role or a bucket's policy allows, and neither denies. Operations that are not mapped to IAM actions
are denied to keys of jobs. A request that expects another owner of its bucket is refused, whoever sends it.
Errors have the code and HTTP status that AWS uses in each protocol.

The entries of DeleteObjects are allowed or denied separately, and each denied entry becomes an error in the reply.
Whether an object was published by another job is known only inside the handler's transaction, so handlers of S3 ask
`JobWriter`. All denials are noted, so that the job's log and FailureReason can name them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from tidemill.control.bucket_rules import BucketRules
from tidemill.control.denials import Denials
from tidemill.control.kms_keys import KmsKeys
from tidemill.core.bucket_policy import BucketPolicy
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.conditions import Lack
from tidemill.core.facts import RequestSender
from tidemill.core.policy import Permission, Ruling
from tidemill.core.roles import Roles
from tidemill.errors import AwsError
from tidemill.services.authorization.facts import RequestFacts
from tidemill.services.authorization.needs import needs_of
from tidemill.services.authorization.publications import JobWriter
from tidemill.services.authorization.rule import Members
from tidemill.services.authorization.s3 import OWNER_MEMBERS, check_owners, delete_entry
from tidemill.services.authorization.sagemaker import visible
from tidemill.services.s3.archive import is_extracted
from tidemill.services.s3.copying import source_name
from tidemill.wire.exchange import Context, Handler, Reply
from tidemill.wire.signing.credentials import Credential, PolicyLimit

_log = structlog.get_logger("tidemill.authorization")

# SageMaker and Logs, which use the JSON protocol, answer 400; SageMaker Runtime, which uses REST, 403.
_CODES = {
    "application-autoscaling": ("AccessDeniedException", 400),
    "kms": ("AccessDeniedException", 400),
    "logs": ("AccessDeniedException", 400),
    "sagemaker": ("AccessDeniedException", 400),
    "sagemaker-metrics": ("AccessDeniedException", 403),
    "sagemaker-runtime": ("AccessDeniedException", 403),
    "tidemill": ("AccessDeniedException", 400),
}
_ELSEWHERE = ("AccessDenied", 403)
_OF_OWNER = ("DeleteBucketPolicy", "GetBucketPolicy", "PutBucketPolicy")
"""Operations that no policy of a bucket denies to its owner, who could not mend it otherwise."""
_BUCKETS = "arn:aws:s3:::"


@dataclass(frozen=True, slots=True)
class _BucketPolicies:
    """The policies that apply to a request.

    Attributes:
        policies: By bucket.
        callers: ARN of the caller; behind it, of all who opened sessions on the way to it. A Deny for any holds.
    """

    policies: Mapping[str, BucketPolicy]
    callers: tuple[str, ...]
    facts: RequestFacts

    def denial(self, permission: Permission) -> str | None:
        """Return the name of the statement of the permission's bucket that denies it, or None.

        Args:
            permission: An action on a resource of S3.
        """
        rulings = (self._rule(permission, arn) for arn in self.callers)
        return next((statement for ruling, statement in rulings if ruling is Ruling.DENIED), None)

    def allows(self, permission: Permission, arn: str) -> bool:
        """Return whether the bucket's policy adds a right to a user, a job or a session, whoever it acts as now.

        Args:
            permission: An action on a resource of S3.
            arn: ARN of the user, job or session.
        """
        return self._rule(permission, arn)[0] is Ruling.ALLOWED

    def _rule(self, permission: Permission, arn: str) -> tuple[Ruling, str]:
        policy = self.policies.get(permission.resource.removeprefix(_BUCKETS).partition("/")[0])
        if policy is None:
            return Ruling.UNMENTIONED, ""
        return policy.rule(permission, caller=arn, facts=self.facts.on(permission, arn=arn))


class Authorization:
    """Decides whether a key may send a request.

    Args:
        roles: The policies.
        denials: Gets what was denied. Default: denials are only logged.
        rules: The policies of buckets. Default: there are none.
        keys: Gets the KMS keys that allowed requests name. Default: none does.
        tags_of: Returns the tags of a resource of SageMaker by its kind and name. Default: conditions on them allow
            nothing.
        clock: Provides the time for conditions.
        sees_clients: Whether requests come from their clients and not from a relay, so that their addresses count.
    """

    def __init__(
        self,
        roles: Roles,
        denials: Denials | None = None,
        *,
        rules: BucketRules | None = None,
        keys: KmsKeys | None = None,
        tags_of: Callable[[str, str], Mapping[str, str]] | None = None,
        clock: Clock | None = None,
        sees_clients: bool = True,
    ) -> None:
        self._roles = roles
        self._denials = denials
        self._rules = rules
        self._keys = keys
        self._tags_of = tags_of
        self._clock = clock or SystemClock()
        self._sees_clients = sees_clients

    def handle(
        self, handler: Handler, request: dict[str, Any], context: Context, credential: Credential
    ) -> Awaitable[Mapping[str, Any] | Reply]:
        """Call the handler if the credential has all permissions that the request needs.

        Args:
            handler: The handler of the operation.
            credential: The key that signed it.

        Raises:
            AwsError: AccessDenied (S3, IAM), AccessDeniedException (SageMaker, Logs), or an error of the handler.
        """
        if context.service == "s3" and not OWNER_MEMBERS.isdisjoint(request):
            check_owners(request)
        if context.kms_keys and self._keys is not None:
            handler = partial(_name_keys, self._keys, handler)
        owns = credential.unrestricted and context.operation in _OF_OWNER
        rules = None if owns else self._rules
        found: Mapping[str, BucketPolicy] = _bucket_policies(rules, request, context) if rules is not None else {}
        if credential.unrestricted and not found and not credential.limits:
            return handler(request, context)
        facts = self._facts(request, context)
        policies = _BucketPolicies(found, tuple(dict.fromkeys((context.caller.arn, *credential.via))), facts)
        return self._restricted(handler, request, context, credential, policies)

    def _facts(self, request: Members, context: Context) -> RequestFacts:
        known = self._sees_clients and context.address
        sender = RequestSender(
            arn=context.caller.arn,
            now_ms=self._clock.now_ms(),
            region=context.region,
            secure=context.internal or context.scheme == "https",
            address=None if context.internal else (context.address,) if known else Lack.UNDETERMINED,
            internal=context.internal,
            agent=context.headers.get("user-agent", ""),
            referer=context.headers.get("referer", ""),
        )
        return RequestFacts(request, context, sender, self._tags_of, self._rules)

    async def _restricted(
        self,
        handler: Handler,
        request: dict[str, Any],
        context: Context,
        credential: Credential,
        policies: _BucketPolicies,
    ) -> Mapping[str, Any] | Reply:
        denied: list[Permission] = []
        context = replace(context, permits=partial(self._permits, credential, policies))
        if credential.scope is not None:
            keeps = self._roles.policy_of(credential.role).keeps_published
            writer = JobWriter(credential.arn, credential.role, credential.scope, keeps, denied)
            context = replace(context, writer=writer)
        try:
            return await self._handle(handler, request, context, credential, policies, denied)
        finally:
            if denied:
                await self._note(denied, context, credential)

    async def _handle(
        self,
        handler: Handler,
        request: dict[str, Any],
        context: Context,
        credential: Credential,
        policies: _BucketPolicies,
        denied: list[Permission],
    ) -> Mapping[str, Any] | Reply:
        if context.operation == "PutObject" and is_extracted(context):
            raise AwsError(
                "archives are extracted only where no policy of a role or bucket applies, because a policy is checked"
                " for one key per request; send the files one by one",
                code="AccessDenied",
            )

        def refusal_of(needs: tuple[Permission, ...] | None) -> AwsError | None:
            return self._refusal(needs, context, credential, policies, denied)

        per_entry = _needs_of_entries(request, context)
        if per_entry is not None:
            refused = [refusal_of(needs) for needs in per_entry]
            return await _split_batch(handler, request, context, refused)
        refusal = refusal_of(needs_of(request, context))
        if refusal is not None:
            raise refusal
        answer = await handler(request, context)
        return visible(answer, context, lambda permission: _exceeded(credential, permission, policies.facts) is None)

    def _permits(self, credential: Credential, policies: _BucketPolicies, action: str, arn: str) -> bool:
        """Return whether a key may do an action to a resource that its request does not name.

        What only a bucket's policy allows is not included; what it denies is.
        """
        permission, facts = Permission(action, arn), policies.facts
        if _exceeded(credential, permission, facts) is not None:
            return False
        bucket = arn.removeprefix(_BUCKETS).partition("/")[0] if arn.startswith(_BUCKETS) else ""
        rule = self._rules.policy_of(bucket) if bucket and self._rules is not None else None
        if rule is not None and replace(policies, policies={bucket: rule}).denial(permission) is not None:
            return False
        if credential.unrestricted:
            return True
        return credential.scope is not None and self._of_role(credential, permission, facts) is Ruling.ALLOWED

    def _of_role(self, credential: Credential, permission: Permission, facts: RequestFacts) -> Ruling:
        known = facts.on(permission, arn=credential.origin)
        return self._roles.rule(credential.role, permission, credential.scope, known)

    def _refusal(
        self,
        needs: tuple[Permission, ...] | None,
        context: Context,
        credential: Credential,
        policies: _BucketPolicies,
        denied: list[Permission],
    ) -> AwsError | None:
        """Return the error for the first missing permission, and add it to ``denied``; None if all are allowed."""
        if needs is None:
            denied.append(Permission(f"{context.service}:{context.operation}", "*"))
            return _denial_of_operation(context, credential)
        if not needs and any(limit.decides_all for limit in credential.limits):
            needs = (Permission(f"{context.service}:{context.operation}", "*"),)
        if needs and credential.scope is None and not credential.unrestricted:
            return _denial_of_keys(context, credential, needs[0])
        for permission in (each for need in needs for each in self._roles.needed(need)):
            statement = policies.denial(permission)
            if statement is not None:
                denied.append(permission)
                return _denial_by_bucket(context, credential, permission, statement)
            limit = _exceeded(credential, permission, policies.facts, policies)
            if limit is not None:
                denied.append(permission)
                return _denial_by_limit(context, credential, permission, limit)
            if credential.unrestricted:
                continue
            ruling = self._of_role(credential, permission, policies.facts)
            added = ruling is Ruling.UNMENTIONED and policies.allows(permission, credential.origin or credential.arn)
            if ruling is not Ruling.ALLOWED and not added:
                denied.append(permission)
                return _denial(context, credential, permission, ruling)
        return None

    async def _note(self, denied: Sequence[Permission], context: Context, credential: Credential) -> None:
        for permission in denied:
            _log.info(
                "authorization.denied",
                request_id=context.request_id,
                caller=credential.arn,
                action=permission.action,
                resource=permission.resource,
            )
        if self._denials is not None:
            await self._denials.note(credential, denied)


async def _name_keys(
    keys: KmsKeys, handler: Handler, request: dict[str, Any], context: Context
) -> Mapping[str, Any] | Reply:
    """Call the handler after the KMS keys that the request names exist, so that the caller can look them up."""
    for key in context.kms_keys:
        await keys.name(key)
    return await handler(request, context)


def _exceeded(
    credential: Credential, permission: Permission, facts: RequestFacts, policies: _BucketPolicies | None = None
) -> PolicyLimit | None:
    """Return the first of a key's limits that does not allow a permission, or None.

    A bucket's policy may allow what they do not mention, but not what they deny, and only to whom it names: what it
    allows to a role is not allowed to the users who assume it.
    """
    for limit in credential.limits:
        ruling = limit.policy.rule(permission, {}, facts.on(permission, arn=limit.arn))
        if ruling is Ruling.ALLOWED:
            continue
        if ruling is Ruling.DENIED or limit.alone or policies is None:
            return limit
        if not policies.allows(permission, limit.arn or credential.arn):
            return limit
    return None


def _bucket_policies(rules: BucketRules, request: Members, context: Context) -> Mapping[str, BucketPolicy]:
    """Return the policies of the buckets that a request names, by bucket.

    Raises:
        InvalidArgument: The source of a copy is malformed.
    """
    if context.service not in ("s3", "tidemill") or "Bucket" not in request:
        return {}
    names = [request["Bucket"]]
    if request.get("CopySource"):
        names.append(source_name(request["CopySource"])[0])
    return {name: policy for name in names if (policy := rules.policy_of(name)) is not None}


def _needs_of_entries(request: Mapping[str, Any], context: Context) -> list[tuple[Permission, ...]] | None:
    """Return the permissions per entry, or None for a request that is allowed or denied as a whole."""
    if (context.service, context.operation) != ("s3", "DeleteObjects"):
        return None
    return [delete_entry(request["Bucket"], entry) for entry in _entries(request)] or None


async def _split_batch(
    handler: Handler, request: dict[str, Any], context: Context, refused: Sequence[AwsError | None]
) -> Mapping[str, Any] | Reply:
    """Call the handler with the allowed entries and add an error for each denied entry.

    Args:
        handler: Handler of DeleteObjects.
        refused: For each entry the error, or None if it is allowed.
    """
    entries = _entries(request)
    allowed = [entry for entry, error in zip(entries, refused, strict=True) if error is None]
    errors = [
        {"Key": entry["Key"], "Code": error.code, "Message": error.message}
        for entry, error in zip(entries, refused, strict=True)
        if error is not None
    ]
    if not allowed:
        return {"Deleted": [], "Errors": errors}
    answer = await handler({**request, "Delete": {**request["Delete"], "Objects": allowed}}, context)
    if isinstance(answer, Reply):
        return Reply(members=_joined(answer.members, errors), status=answer.status, headers=answer.headers)
    return _joined(answer, errors)


def _joined(members: Mapping[str, Any], errors: list[dict[str, str]]) -> dict[str, Any]:
    return {**members, "Errors": [*members.get("Errors", []), *errors]}


def _entries(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (request.get("Delete") or {}).get("Objects") or []


def _denial(context: Context, credential: Credential, permission: Permission, ruling: Ruling) -> AwsError:
    """Return the error for a permission that the policy of the role does not allow."""
    why = "a statement of its policy denies it" if ruling is Ruling.DENIED else "no statement of its policy allows it"
    return _refused(
        context,
        f"{_not_authorized(credential, permission.action, permission.resource)}: the key acts as the role"
        f" {credential.role!r}, and {why}. The setting roles.{credential.role} can give the role another policy",
    )


def _denial_by_limit(context: Context, credential: Credential, permission: Permission, limit: PolicyLimit) -> AwsError:
    """Return the error for a permission that the policy of a user, an assumed role or a session does not allow."""
    return _refused(
        context,
        f"{_not_authorized(credential, permission.action, permission.resource)}: the policy of {limit.whose} does not"
        " allow it",
    )


def _denial_by_bucket(context: Context, credential: Credential, permission: Permission, statement: str) -> AwsError:
    """Return the error for a permission that the policy of a bucket denies."""
    return _refused(
        context,
        f"{_not_authorized(credential, permission.action, permission.resource)}: {statement} of the bucket's policy"
        " denies it explicitly. GetBucketPolicy shows the policy",
    )


def _denial_of_keys(context: Context, credential: Credential, permission: Permission) -> AwsError:
    """Return the error for keys without a scope: an earlier version issued them for a job that no longer exists."""
    return _refused(
        context,
        f"{_not_authorized(credential, permission.action, permission.resource)}: the job that the key was made for is"
        " not known here, so no policy applies to it. Use the keys of a running job, or your own (`tidemill env`)",
    )


def _denial_of_operation(context: Context, credential: Credential) -> AwsError:
    """Return the error for an operation that is not mapped to IAM actions."""
    return _refused(
        context,
        f"{_not_authorized(credential, f'{context.service}:{context.operation}', '*')}: no policy can allow this"
        " operation to the key of a job. Use your own keys (`tidemill env`)",
    )


def _not_authorized(credential: Credential, action: str, resource: str) -> str:
    return f"User: {credential.arn} is not authorized to perform: {action} on resource: {resource}"


def _refused(context: Context, message: str) -> AwsError:
    code, status = _CODES.get(context.service, _ELSEWHERE)
    return AwsError(message, code=code, status=status)
