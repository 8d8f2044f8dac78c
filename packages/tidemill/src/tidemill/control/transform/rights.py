"""Check a model's role before the service reads or writes objects for its transform jobs or asynchronous requests."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.job_scope import JobScope
from tidemill.core.names import S3Uri, role_name
from tidemill.core.policy import Permission, Ruling
from tidemill.core.roles import Roles


class NotAllowed(Exception):
    """The policy of the role does not allow an action; the message becomes a FailureReason."""


class RoleRights:
    """The rights of one job or one asynchronous request, which are those of its model's role.

    Args:
        roles: The policies.
        model: The CreateModel request of the model.
        name: Name of the job or endpoint; the value of ``${job.name}`` in policies.
        output: S3 URI below which results are stored; the value of ``${job.output}`` in policies.
    """

    def __init__(self, roles: Roles, *, model: Mapping[str, Any], name: str, output: str) -> None:
        uri = S3Uri.parse(output)
        self._roles = roles
        self._role = role_name(model.get("ExecutionRoleArn", ""))
        self._scope = JobScope(name=name, output=f"{uri.bucket}/{uri.key}".strip("/"))

    def check(self, action: str, uri: S3Uri) -> None:
        """Raise NotAllowed unless the role may do ``action``, e.g. ``s3:GetObject``, to an object.

        Args:
            action: For example ``s3:PutObject``.

        Raises:
            NotAllowed: If the policy does not allow it.
        """
        arn = f"arn:aws:s3:::{uri.bucket}/{uri.key}"
        if self._roles.rule(self._role, Permission(action, arn), self._scope) is not Ruling.ALLOWED:
            raise NotAllowed(
                f"ClientError: {uri}: AccessDenied: the role {self._role!r} of the model may not {action} it; its"
                " policy is in the setting roles"
            )
