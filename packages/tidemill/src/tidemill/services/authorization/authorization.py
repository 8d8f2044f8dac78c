"""Checks every request against the policy of its caller, between validation and handler.

The owner's key pair may do everything. A job's key may do what the policy of its role allows. Operations that are not
mapped to IAM actions are denied to keys of jobs.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from tidemill.core.policy import Permission, Ruling
from tidemill.core.roles import Roles
from tidemill.errors import AwsError
from tidemill.services.authorization.batch import needs_of_entries, split_batch
from tidemill.services.authorization.denial import denial, denial_of_keys, denial_of_operation
from tidemill.services.authorization.needs import needs_of
from tidemill.wire.exchange import Context, Handler, Reply
from tidemill.wire.signing.credentials import Credential

__all__ = ["Authorization"]

_log = structlog.get_logger("tidemill.authorization")


class Authorization:
    """Decides whether a key may send a request.

    Args:
        roles: The policies.
    """

    def __init__(self, roles: Roles) -> None:
        self._roles = roles

    async def handle(
        self, handler: Handler, request: dict[str, Any], context: Context, credential: Credential
    ) -> Mapping[str, Any] | Reply:
        """Call the handler if the credential has all permissions that the request needs.

        Args:
            handler: The handler of the operation.
            request: The validated input members.
            context: Context of the request.
            credential: The key that signed it.

        Returns:
            The handler's result.

        Raises:
            AwsError: AccessDenied (S3, IAM), AccessDeniedException (SageMaker, Logs), or an error of the handler.
        """
        if credential.unrestricted:
            return await handler(request, context)
        per_entry = needs_of_entries(request, context)
        if per_entry is not None:
            refused = [self._refusal(needs, context, credential) for needs in per_entry]
            return await split_batch(handler, request, context, refused)
        refusal = self._refusal(needs_of(request, context), context, credential)
        if refusal is not None:
            raise refusal
        return await handler(request, context)

    def _refusal(
        self, needs: tuple[Permission, ...] | None, context: Context, credential: Credential
    ) -> AwsError | None:
        """Return the error for the first missing permission, or None if the policy allows all of them."""
        if needs is None:
            return denial_of_operation(context, credential)
        if needs and credential.scope is None:
            return denial_of_keys(context, credential, needs[0])
        values = credential.scope.values if credential.scope else {}
        policy = self._roles.policy_of(credential.role)
        for permission in needs:
            ruling = policy.rule(permission, values)
            if ruling is not Ruling.ALLOWED:
                _log.info(
                    "authorization.denied",
                    request_id=context.request_id,
                    caller=credential.arn,
                    action=permission.action,
                    resource=permission.resource,
                    ruling=str(ruling),
                )
                return denial(context, credential, permission, ruling)
        return None
