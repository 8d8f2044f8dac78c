"""What jobs published, and the keys that must not replace or delete it.

An object is published by a job if the job, or the service for it, wrote it below one of the job's own prefixes. Its row
names the publisher, so the rule holds for deleted jobs, and costs one look at a row that the write reads anyway. The
inputs that the SDK uploads (`tidemill-inputs`) belong to whoever uploaded them. An object without a recorded publisher
was stored by an earlier version, in which jobs could not change it either.
"""

from dataclasses import dataclass, field

from tidemill.core.job_scope import HolderKind, JobScope
from tidemill.core.names import INPUTS_PREFIX
from tidemill.core.policy import Permission
from tidemill.errors import AwsError
from tidemill.wire.exchange import Writer


@dataclass(frozen=True, slots=True)
class JobWriter(Writer):
    """The key of a job as the writer of objects.

    Attributes:
        arn: ARN of the key's role session, for messages.
        role: Name of the role, for messages.
        scope: The job or endpoint of the key.
        keeps_published: Whether the policy of the role protects what other jobs published.
        refused: The permissions that were refused, in order.
    """

    arn: str
    role: str
    scope: JobScope
    keeps_published: bool
    refused: list[Permission] = field(default_factory=list)

    def publisher_of(self, bucket: str, key: str) -> str:
        publishes = self.scope.kind is not HolderKind.ENDPOINT and self.scope.owns(bucket, key)
        return self.scope.publisher if publishes or key.startswith(INPUTS_PREFIX) else ""

    def keeps(self, bucket: str, key: str) -> bool:
        return self.keeps_published and not self.scope.owns(bucket, key)

    def refusal(self, action: str, bucket: str, key: str, *, publisher: str | None) -> AwsError | None:
        free = publisher == "" and not key.startswith(INPUTS_PREFIX)
        if free or publisher == self.scope.publisher or not self.keeps(bucket, key):
            return None
        permission = Permission(action, f"arn:aws:s3:::{bucket}/{key}")
        self.refused.append(permission)
        if publisher is None:
            whose = "an earlier version of tidemill stored the object without its publisher"
        else:
            whose = f"the object was published by {publisher or 'another user'}"
        return AwsError(
            f"User: {self.arn} is not authorized to perform: {action} on resource: {permission.resource}: {whose}, and"
            f" the policy of the role {self.role!r} lets a job change only its own and unpublished objects. Use another"
            f" key, or give the role another policy with the setting roles.{self.role}",
            code="AccessDenied",
        )
