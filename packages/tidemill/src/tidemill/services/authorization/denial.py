"""Errors for missing permissions, with the code and HTTP status that AWS uses in each protocol."""

from tidemill.core.policy import Permission, Ruling
from tidemill.errors import AwsError
from tidemill.wire.exchange import Context
from tidemill.wire.signing.credentials import Credential

__all__ = ["denial", "denial_of_keys", "denial_of_operation"]

# SageMaker and Logs, which use the JSON protocol, answer 400; SageMaker Runtime, which uses REST, 403.
_CODES = {
    "logs": ("AccessDeniedException", 400),
    "sagemaker": ("AccessDeniedException", 400),
    "sagemaker-runtime": ("AccessDeniedException", 403),
}
_ELSEWHERE = ("AccessDenied", 403)


def denial(context: Context, credential: Credential, permission: Permission, ruling: Ruling) -> AwsError:
    """Return the error for a permission that the policy of the role does not allow."""
    why = "a statement of its policy denies it" if ruling is Ruling.DENIED else "no statement of its policy allows it"
    return _refused(
        context,
        f"{_not_authorized(credential, permission.action, permission.resource)}: the key acts as the role"
        f" {credential.role!r}, and {why}. The setting roles.{credential.role} can give the role another policy",
    )


def denial_of_keys(context: Context, credential: Credential, permission: Permission) -> AwsError:
    """Return the error for keys without a scope: an earlier version issued them for a job that no longer exists."""
    return _refused(
        context,
        f"{_not_authorized(credential, permission.action, permission.resource)}: the job that the key was made for is"
        " not known here, so no policy applies to it. Use the keys of a running job, or your own (`tidemill env`)",
    )


def denial_of_operation(context: Context, credential: Credential) -> AwsError:
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
