"""Check a model's role before the service reads or writes objects for its transform jobs or asynchronous requests."""

from collections.abc import Mapping
from typing import Any

from tidemill.core.clock import SystemClock
from tidemill.core.conditions import Fact, Lack
from tidemill.core.facts import RequestSender
from tidemill.core.job_scope import JobScope
from tidemill.core.names import ACCOUNT_ID, S3Uri, role_name
from tidemill.core.policy import Permission, Ruling
from tidemill.core.roles import Roles


class NotAllowed(Exception):
    """The policy of the role does not allow an action; the message becomes a FailureReason."""


class RoleRights:
    """The rights of one job or one asynchronous request, which are those of its model's role.

    Args:
        roles: The policies.
        model: The CreateModel request of the model.
        arn: ARN of the job or endpoint; its name is the value of ``${job.name}`` in policies.
        output: S3 URI below which results are stored; the value of ``${job.output}`` in policies.
    """

    def __init__(self, roles: Roles, *, model: Mapping[str, Any], arn: str, output: str) -> None:
        *_, region, _, resource = arn.split(":", 5)
        name = resource.partition("/")[2]
        uri = S3Uri.parse(output)
        self._roles = roles
        self._role = role_name(model.get("ExecutionRoleArn", ""))
        self._scope = JobScope(name=name, output=f"{uri.bucket}/{uri.key}".strip("/"))
        self._region = region
        self._arn = f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/{self._role}/{name}"

    def check(self, action: str, uri: S3Uri) -> None:
        """Raise NotAllowed unless the role may do ``action``, e.g. ``s3:GetObject``, to an object.

        Args:
            action: For example ``s3:PutObject``.

        Raises:
            NotAllowed: If the policy does not allow it.
        """
        arn = f"arn:aws:s3:::{uri.bucket}/{uri.key}"
        if self._roles.rule(self._role, Permission(action, arn), self._scope, self._fact) is not Ruling.ALLOWED:
            raise NotAllowed(
                f"ClientError: {uri}: AccessDenied: the role {self._role!r} of the model may not {action} it; its"
                " policy is in the setting roles"
            )

    def _fact(self, key: str) -> Fact:
        """Return what is known of a request that the service performs itself: nothing of what a client would send."""
        if not key.startswith("aws:"):
            return Lack.UNDETERMINED
        if key.startswith(("aws:requesttag/", "aws:resourcetag/")) or key == "aws:tagkeys":
            return None  # objects have no such tags
        now_ms = SystemClock().now_ms()
        sender = RequestSender(
            arn=self._arn, now_ms=now_ms, region=self._region, secure=True, address=None, internal=True
        )
        return sender.fact(key)
