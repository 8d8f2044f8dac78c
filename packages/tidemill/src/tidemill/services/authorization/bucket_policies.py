"""The policies of the buckets that one request is about, and what their conditions see of the request."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.control.bucket_rules import BucketRules
from tidemill.core.bucket_policy import ENCRYPTION, ENCRYPTION_KEY, SECURE_TRANSPORT, BucketPolicy, Facts
from tidemill.core.policy import Permission, Ruling
from tidemill.services.authorization.rule import Members
from tidemill.services.s3.copying import source_name
from tidemill.wire.exchange import Context

__all__ = ["BucketPolicies", "bucket_policies"]

_BUCKETS = "arn:aws:s3:::"
_OF_UPLOAD = ("CompleteMultipartUpload", "UploadPart", "UploadPartCopy")


@dataclass(frozen=True, slots=True)
class BucketPolicies:
    """The policies that apply to a request.

    Attributes:
        policies: By bucket.
        caller: ARN of the caller.
        facts: What is known of the request.
    """

    policies: Mapping[str, BucketPolicy]
    caller: str
    facts: Facts

    def rule(self, permission: Permission) -> tuple[Ruling, str]:
        """Return the ruling of the policy of the permission's bucket, and the name of the statement that decides.

        Args:
            permission: An action on a resource of S3.

        Returns:
            UNMENTIONED without a policy.
        """
        policy = self.policies.get(permission.resource.removeprefix(_BUCKETS).partition("/")[0])
        if policy is None:
            return Ruling.UNMENTIONED, ""
        return policy.rule(permission, caller=self.caller, facts=self.facts)


def bucket_policies(rules: BucketRules, request: Members, context: Context) -> BucketPolicies | None:
    """Return the policies of the buckets that a request names, or None if these have none.

    Raises:
        InvalidArgument: The source of a copy is malformed.
    """
    if context.service != "s3" or "Bucket" not in request:
        return None
    names = [request["Bucket"]]
    if request.get("CopySource"):
        names.append(source_name(request["CopySource"])[0])
    found = {name: policy for name in names if (policy := rules.policy_of(name)) is not None}
    return BucketPolicies(found, context.caller.arn, _facts(rules, request, context)) if found else None


def _facts(rules: BucketRules, request: Members, context: Context) -> Facts:
    facts: dict[str, tuple[str, ...]] = {SECURE_TRANSPORT: (str(context.scheme == "https").lower(),)}
    if context.operation in _OF_UPLOAD:
        return facts  # the encryption of an upload was checked when it began
    algorithm, key = request.get("ServerSideEncryption"), request.get("SSEKMSKeyId")
    facts[ENCRYPTION] = (algorithm,) if algorithm else ()
    facts[ENCRYPTION_KEY] = (key, rules.key_arn(key)) if key else ()
    return facts
