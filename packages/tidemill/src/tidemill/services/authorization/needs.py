"""Permissions that each operation needs: IAM actions and resource ARNs, as in AWS's service authorization reference.

Operations without an entry are denied to keys of jobs.
"""

from collections.abc import Mapping

from tidemill.core.names import ACCOUNT_ID, kms_arn, role_arn
from tidemill.core.policy import Permission
from tidemill.services.authorization.autoscaling import AUTO_SCALING
from tidemill.services.authorization.logs import LOGS
from tidemill.services.authorization.rule import Members, Resource, Rule, by_name, everything, needs, nothing
from tidemill.services.authorization.s3 import S3
from tidemill.services.authorization.sagemaker import METRICS, RUNTIME, SAGEMAKER
from tidemill.services.authorization.tidemill import TIDEMILL
from tidemill.wire.exchange import Context


def _user(request: Members, region: str) -> str:
    return f"arn:aws:iam::{ACCOUNT_ID}:user/{request.get('UserName', '')}"


def _role(request: Members, region: str) -> str:
    return f"arn:aws:iam::{ACCOUNT_ID}:role/{request.get('RoleName', '')}"


def _key(member: str) -> Resource:
    return lambda request, region: kms_arn(request[member], region=region)


# IAM has no resources for CloudWatch's operations: a policy allows all metrics or none.
CLOUDWATCH: Mapping[str, Rule] = {
    **by_name("cloudwatch", everything, "GetMetricData", "GetMetricStatistics", "ListMetrics", "PutMetricData"),
    **by_name("cloudwatch", everything, "PutMetricAlarm", "DescribeAlarms", "DeleteAlarms"),
}

IAM: Mapping[str, Rule] = {
    **by_name("iam", _role, "GetRole", "ListRoles", "CreateRole", "DeleteRole"),
    **by_name("iam", _role, "AttachRolePolicy", "DetachRolePolicy", "ListAttachedRolePolicies"),
    **by_name("iam", _role, "PutRolePolicy", "GetRolePolicy", "DeleteRolePolicy", "ListRolePolicies"),
    **by_name("iam", everything, "SimulateCustomPolicy"),
    **by_name("iam", lambda request, region: request["PolicySourceArn"], "SimulatePrincipalPolicy"),
    # Only the owner of the service may call these, even if a policy allows more.
    **by_name("iam", _user, "CreateAccessKey", "DeleteAccessKey", "ListAccessKeys"),
    **by_name("iam", _user, "ListUsers", "CreateUser", "DeleteUser", "GetUser"),
    **by_name("iam", _user, "PutUserPolicy", "GetUserPolicy", "DeleteUserPolicy", "ListUserPolicies"),
}

STS: Mapping[str, Rule] = {
    # These need no permission, and no policy can deny them; GetSessionToken gives no new rights.
    "GetCallerIdentity": nothing,
    "GetSessionToken": nothing,
    **by_name("sts", lambda request, region: role_arn(request["RoleArn"]), "AssumeRole"),
}

KMS: Mapping[str, Rule] = {
    # As on AWS, a new alias needs permission for the alias and for the key.
    "CreateAlias": needs("kms:CreateAlias", _key("AliasName"), _key("TargetKeyId")),
    **by_name("kms", everything, "CreateKey", "ListAliases", "ListKeys"),
    **by_name("kms", _key("KeyId"), "DescribeKey", "GetKeyPolicy", "PutKeyPolicy", "DisableKey", "EnableKey"),
    **by_name("kms", _key("KeyId"), "ScheduleKeyDeletion", "CancelKeyDeletion"),
}

INSTANCES: Mapping[str, Rule] = {
    # Every job may report on its own instances with any role; the service checks the job's name.
    **dict.fromkeys(("ReportInstance", "DeliverLog", "DeliverSamples"), nothing),
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
