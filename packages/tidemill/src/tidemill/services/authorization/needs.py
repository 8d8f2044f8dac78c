"""Permissions that each operation needs: IAM actions and resource ARNs, as in AWS's service authorization reference.

Operations without an entry are denied to keys of jobs.
"""

from collections.abc import Mapping

from tidemill.core.names import ACCOUNT_ID, kms_arn, role_arn
from tidemill.core.policy import Permission
from tidemill.services.authorization.autoscaling import AUTO_SCALING
from tidemill.services.authorization.logs import LOGS
from tidemill.services.authorization.rule import Members, Rule
from tidemill.services.authorization.s3 import S3
from tidemill.services.authorization.sagemaker import METRICS, RUNTIME, SAGEMAKER
from tidemill.services.authorization.tidemill import TIDEMILL
from tidemill.wire.exchange import Context


def _on_everything(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (Permission(f"cloudwatch:{operation}", "*"),)

    return rule


def _on_user(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (Permission(f"iam:{operation}", f"arn:aws:iam::{ACCOUNT_ID}:user/{request.get('UserName', '')}"),)

    return rule


def _on_role(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return (Permission(f"iam:{operation}", f"arn:aws:iam::{ACCOUNT_ID}:role/{request.get('RoleName', '')}"),)

    return rule


# IAM has no resources for CloudWatch's operations: a policy allows all metrics or none.
CLOUDWATCH: Mapping[str, Rule] = {
    operation: _on_everything(operation)
    for operation in (
        *("GetMetricData", "GetMetricStatistics", "ListMetrics", "PutMetricData"),
        *("PutMetricAlarm", "DescribeAlarms", "DeleteAlarms"),
    )
}

IAM: Mapping[str, Rule] = {
    "GetRole": _on_role("GetRole"),
    "ListRoles": _on_role("ListRoles"),
    **{
        name: _on_role(name)
        for name in (
            *("CreateRole", "DeleteRole", "AttachRolePolicy", "DetachRolePolicy", "ListAttachedRolePolicies"),
            *("PutRolePolicy", "GetRolePolicy", "DeleteRolePolicy", "ListRolePolicies"),
        )
    },
    "SimulateCustomPolicy": lambda request, region: (Permission("iam:SimulateCustomPolicy", "*"),),
    "SimulatePrincipalPolicy": lambda request, region: (
        Permission("iam:SimulatePrincipalPolicy", request["PolicySourceArn"]),
    ),
    # Only the owner of the service may call these, even if a policy allows more.
    **{
        name: _on_user(name)
        for name in (
            *(
                "CreateAccessKey",
                "DeleteAccessKey",
                "ListAccessKeys",
                "ListUsers",
                "CreateUser",
                "DeleteUser",
                "GetUser",
            ),
            *("PutUserPolicy", "GetUserPolicy", "DeleteUserPolicy", "ListUserPolicies"),
        )
    },
}

STS: Mapping[str, Rule] = {
    # These need no permission, and no policy can deny them; GetSessionToken gives no new rights.
    "GetCallerIdentity": lambda request, region: (),
    "GetSessionToken": lambda request, region: (),
    "AssumeRole": lambda request, region: (Permission("sts:AssumeRole", role_arn(request["RoleArn"])),),
}


def _kms(operation: str, *members: str) -> Rule:
    """Return the rule of an operation on the keys and aliases that ``members`` name; without members, on all."""

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        arns = [kms_arn(request[member], region=region) for member in members] or ["*"]
        return tuple(Permission(f"kms:{operation}", arn) for arn in arns)

    return rule


KMS: Mapping[str, Rule] = {
    # As on AWS, a new alias needs permission for the alias and for the key.
    "CreateAlias": _kms("CreateAlias", "AliasName", "TargetKeyId"),
    "CreateKey": _kms("CreateKey"),
    "ListAliases": _kms("ListAliases"),
    "ListKeys": _kms("ListKeys"),
    **{
        name: _kms(name, "KeyId") for name in ("DescribeKey", "GetKeyPolicy", "PutKeyPolicy", "DisableKey", "EnableKey")
    },
    **{name: _kms(name, "KeyId") for name in ("ScheduleKeyDeletion", "CancelKeyDeletion")},
}

INSTANCES: Mapping[str, Rule] = {
    # Every job may report on its own instances with any role; the service checks the job's name.
    "ReportInstance": lambda request, region: (),
    "DeliverLog": lambda request, region: (),
    "DeliverSamples": lambda request, region: (),
}

NEEDS: Mapping[str, Mapping[str, Rule]] = {
    "application-autoscaling": AUTO_SCALING,
    "cloudwatch": CLOUDWATCH,
    "iam": IAM,
    "kms": KMS,
    "logs": LOGS,
    "s3": S3,
    "sagemaker": SAGEMAKER,
    "sagemaker-metrics": METRICS,
    "sagemaker-runtime": RUNTIME,
    "sts": STS,
    "tidemill": TIDEMILL,
    "tidemill-instances": INSTANCES,
}
"""By botocore's name of the service and the operation's name in its model."""


def needs_of(request: Members, context: Context) -> tuple[Permission, ...] | None:
    """Return the permissions that a request needs, or None for an operation that is not mapped.

    Raises:
        AwsError: A member that names a resource is malformed.
    """
    rule = NEEDS.get(context.service, {}).get(context.operation)
    return None if rule is None else rule(request, context.region)
