"""Roles and their policies, which limit the keys of jobs."""

import re
from collections.abc import Mapping

from tidemill.core.policy import ActionPattern, Effect, Policy, ResourcePattern, Statement

__all__ = ["BUILT_IN", "Roles", "check_role_names"]

_NAME = re.compile(r"[A-Za-z0-9_+=,.@-]{1,64}")
_OWN = ("output", "model_dir", "checkpoints", "tensorboard", "intermediate")
_OWN_PREFIXES = tuple(f"arn:aws:s3:::${{job.{name}}}/*" for name in _OWN)


def _allow(actions: tuple[str, ...], resources: tuple[str, ...]) -> Statement:
    patterns = tuple(ResourcePattern.parse(text) for text in resources)
    return Statement(Effect.ALLOW, tuple(ActionPattern(text) for text in actions), patterns)


BUILT_IN = Policy(
    (
        _allow(("s3:GetObject*", "s3:ListBucket", "s3:GetBucketLocation"), ("arn:aws:s3:::*",)),
        _allow(
            ("s3:PutObject*", "s3:DeleteObject*", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"),
            _OWN_PREFIXES,
        ),
        _allow(
            ("sagemaker:DescribeTrainingJob", "sagemaker:ListTags"),
            ("arn:aws:sagemaker:*:*:training-job/${job.name}",),
        ),
        _allow(
            ("logs:DescribeLogStreams", "logs:FilterLogEvents", "logs:GetLogEvents"),
            ("arn:aws:logs:*:*:log-group:/aws/sagemaker/TrainingJobs:log-stream:${job.name}/*",),
        ),
    )
)
"""Policy of roles that the settings do not name: read all buckets, write below the job's own prefixes, describe the job
and read its log."""


class Roles:
    """The policies by role name.

    Args:
        policies: The policies in the settings.

    Raises:
        ValueError: As for `check_role_names`.
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = {name.casefold(): policy for name, policy in check_role_names(policies).items()}

    def policy_of(self, role: str) -> Policy:
        """Return the policy of a role, or `BUILT_IN` if the settings name no policy."""
        return self._policies.get(role.casefold(), BUILT_IN)


def check_role_names(policies: Mapping[str, Policy]) -> dict[str, Policy]:
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
