"""Roles and their policies, which limit the keys of jobs."""

import re
from collections.abc import Callable, Mapping

from tidemill.core.conditions import Facts, undetermined
from tidemill.core.job_scope import OWN_PREFIXES, JobScope
from tidemill.core.names import role_name
from tidemill.core.policy import ActionPattern, IamPolicy, Permission, PolicyEffect, ResourcePattern, Ruling, Statement

_NAME = re.compile(r"[A-Za-z0-9_+=,.@-]{1,64}")
_OBJECTS = "arn:aws:s3:::"
_WRITABLE = ("${sagemaker.bucket}", "${job.output_path}", *(f"${{job.{name}}}" for name in OWN_PREFIXES))
_SAGEMAKER = "sagemaker"
_TRACKED = ("experiment", "experiment-trial", "experiment-trial-component")
_RUNS = ("Experiment", "Trial", "TrialComponent")
"""What a script of a job may create, change and describe, so that it can track its own runs."""


def _allow(actions: tuple[str, ...], resources: tuple[str, ...]) -> Statement:
    patterns = tuple(ResourcePattern.parse(text) for text in resources)
    return Statement(PolicyEffect.ALLOW, tuple(ActionPattern(text) for text in actions), patterns)


BUILT_IN = IamPolicy(
    (
        _allow(("s3:GetObject*", "s3:GetBucket*", "s3:ListBucket", "s3:ListAllMyBuckets"), ("arn:aws:s3:::*",)),
        _allow(
            ("s3:PutObject*", "s3:DeleteObject*", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"),
            tuple(f"{_OBJECTS}{place}/*" for place in _WRITABLE),
        ),
        _allow(("s3:CreateBucket",), ("arn:aws:s3:::${sagemaker.bucket}",)),
        _allow(
            (
                *("sagemaker:DescribeTrainingJob", "sagemaker:DescribeProcessingJob", "sagemaker:DescribeTransformJob"),
                *("sagemaker:DescribeEndpoint", "sagemaker:ListTags"),
            ),
            ("arn:aws:sagemaker:*:*:${job.kind}/${job.name}",),
        ),
        _allow(
            ("logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"),
            ("arn:aws:logs:*:*:${job.log}*",),
        ),
        _allow(("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"), ("arn:aws:logs:*:*:*",)),
        _allow(
            (
                *(f"sagemaker:{verb}{what}" for verb in ("Create", "Describe", "Update") for what in _RUNS),
                *("sagemaker:List*Trial*", "sagemaker:ListExperiments", "sagemaker:BatchPutMetrics"),
                *("sagemaker:AssociateTrialComponent", "sagemaker:AddTags", "sagemaker:ListTags"),
            ),
            tuple(f"arn:aws:sagemaker:*:*:{kind}/*" for kind in _TRACKED),
        ),
        _allow(("sagemaker:Search",), ("*",)),  # finds what the policy allows to describe
        _allow(("kms:DescribeKey", "kms:ListAliases"), ("*",)),
        _allow(("cloudwatch:PutMetricData", "cloudwatch:GetMetric*", "cloudwatch:ListMetrics"), ("*",)),
    ),
    keeps_published=True,
)
"""Policy of roles that the settings do not name: what AWS's usual execution role gives a script in S3.

Read all buckets; write in buckets whose names contain ``sagemaker`` and below the prefixes of the job's own request,
without replacing what other jobs published; describe the job and read its log; write into log streams of clients; track
runs; describe KMS keys; put and read metrics.
"""


class Roles:
    """The policies by role name.

    Args:
        policies: The policies in the settings.
        stored: Returns the policy of a role that the settings do not name, or None. Default: there is none.

    Raises:
        ValueError: As for `check_role_names`.
    """

    def __init__(
        self, policies: Mapping[str, IamPolicy], *, stored: Callable[[str], IamPolicy | None] = lambda _role: None
    ) -> None:
        self._stored = stored
        self._policies = {name.casefold(): policy for name, policy in check_role_names(policies).items()}

    def policy_of(self, role: str) -> IamPolicy:
        """Return the policy of a role, or `BUILT_IN` if it was given none.

        Args:
            role: Name of the role; case does not matter.
        """
        return self.named(role) or BUILT_IN

    def named(self, role: str) -> IamPolicy | None:
        """Return the policy that the settings, or else IAM's API, gave a role, or None.

        Args:
            role: Name of the role; case does not matter.
        """
        return self.of_settings(role) or self._stored(role)

    def of_settings(self, role: str) -> IamPolicy | None:
        """Return the policy that the settings gave a role, or None.

        Args:
            role: Name of the role; case does not matter.
        """
        return self._policies.get(role.casefold())

    def has(self, role: str) -> bool:
        """Return whether a role was given a policy.

        Args:
            role: Name of the role; case does not matter.
        """
        return self.named(role) is not None

    def needed(self, permission: Permission) -> tuple[Permission, ...]:
        """Return a permission; behind it, that for the role which takes effect, if it was given a policy.

        So who may pass or assume ``role/team/*`` does not get the policy of the role ``Admin`` by ``role/team/Admin``.
        Other roles are the same under all ARNs, e.g. that of an execution role in AWS's path ``service-role``.

        Args:
            permission: The action and the resource as the request gives them.
        """
        arn = permission.of_role
        if arn is None or not self.has(role_name(arn)):
            return (permission,)
        return permission, Permission(permission.action, arn)

    def rule(self, role: str, permission: Permission, scope: JobScope | None, facts: Facts = undetermined) -> Ruling:
        """Evaluate the policy of a role for a job.

        Args:
            scope: The job; None leaves the placeholders of jobs without a value.
            facts: What is known of the request, as for `IamPolicy.rule`.
        """
        return self.policy_of(role).rule(permission, self.placeholders(permission, scope), facts)

    def placeholders(self, permission: Permission, scope: JobScope | None) -> dict[str, str]:
        """Return the values of the placeholders of jobs for a permission.

        Args:
            scope: The job; None leaves its placeholders without a value.
        """
        bucket, _, key = permission.resource.removeprefix(_OBJECTS).partition("/")
        values = scope.at(bucket, key).values if scope else {}
        if permission.resource.startswith(_OBJECTS) and _SAGEMAKER in bucket:
            values["sagemaker.bucket"] = bucket
        return values


def check_role_names(policies: Mapping[str, IamPolicy]) -> dict[str, IamPolicy]:
    """Check that every policy can be found by its name, and return the policies.

    Raises:
        ValueError: A name is not a legal role name, or two names differ only in case, which IAM ignores.
    """
    seen: dict[str, str] = {}
    for name in policies:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not the name of a role; allowed are 1 to 64 letters, digits and any of _+=,.@-, and of an"
                " ARN only what stands behind its last slash"
            )
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise ValueError(f"the roles {other!r} and {name!r} are the same, since case does not matter; keep one")
    return dict(policies)
