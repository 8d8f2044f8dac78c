"""Condition keys: those whose values this service knows, and those that no request here can have.

A condition on another key would be evaluated as if the key were absent. That is refused where it would give rights or
lose a Deny: on AWS, the key may have a value.
"""

from tidemill.core.conditions import Condition

ACL = "s3:x-amz-acl"
ENCRYPTION = "s3:x-amz-server-side-encryption"
ENCRYPTION_KEY = "s3:x-amz-server-side-encryption-aws-kms-key-id"
SECURE_TRANSPORT = "aws:SecureTransport"

_KNOWN = (
    *("aws:CurrentTime", "aws:EpochTime", "aws:PrincipalAccount", "aws:PrincipalArn", "aws:PrincipalIsAWSService"),
    *("aws:PrincipalType", "aws:Referer", "aws:RequestedRegion", "aws:ResourceAccount", SECURE_TRANSPORT),
    *("aws:SourceIp", "aws:TagKeys", "aws:UserAgent", "aws:ViaAWSService", "aws:userid", "aws:username"),
    *("application-autoscaling:scalable-dimension", "application-autoscaling:service-namespace"),
    *("cloudwatch:namespace", "iam:PassedToService", "sts:ExternalId", "sts:RoleSessionName"),
    *(ACL, "s3:delimiter", "s3:max-keys", "s3:prefix", "s3:x-amz-copy-source", "s3:x-amz-metadata-directive"),
    *(ENCRYPTION, ENCRYPTION_KEY, "s3:x-amz-storage-class", "s3:ResourceAccount"),
    *("sagemaker:InstanceTypes", "sagemaker:InterContainerTrafficEncryption", "sagemaker:KeepAlivePeriod"),
    *("sagemaker:MaxRuntimeInSeconds", "sagemaker:ModelArn", "sagemaker:NetworkIsolation", "sagemaker:OutputKmsKey"),
    *("sagemaker:ServerlessMaxConcurrency", "sagemaker:ServerlessMemorySize", "sagemaker:TargetModel"),
    *("sagemaker:VolumeKmsKey", "sagemaker:VpcSecurityGroupIds", "sagemaker:VpcSubnets"),
)
_ABSENT = (
    *("aws:CalledVia", "aws:CalledViaFirst", "aws:CalledViaLast", "aws:FederatedProvider"),
    *("aws:MultiFactorAuthAge", "aws:MultiFactorAuthPresent", "aws:PrincipalOrgID", "aws:PrincipalOrgPaths"),
    *("aws:PrincipalServiceName", "aws:PrincipalServiceNamesList", "aws:ResourceOrgID", "aws:ResourceOrgPaths"),
    *("aws:SourceAccount", "aws:SourceArn", "aws:SourceOrgID", "aws:SourceOrgPaths", "aws:SourceVpc"),
    *("aws:SourceVpce", "aws:VpcSourceIp"),
)
"""Keys that no request has: there is no second factor, organization, private network of AWS, or service that calls."""
_TAGS = ("aws:RequestTag/", "aws:ResourceTag/", "sagemaker:ResourceTag/")
"""Beginnings of keys whose rest is the key of a tag."""

_NAMES = {name.casefold(): name for name in (*_KNOWN, *_ABSENT)}
_PREFIXES = tuple(prefix.casefold() for prefix in _TAGS)


def canonical(key: str) -> str:
    """Return a condition key as IAM spells it; unchanged if it is not known.

    Args:
        key: The key in lower case.
    """
    prefix = next((each for each in _TAGS if key.startswith(each.casefold())), "")
    return f"{prefix}{key[len(prefix) :]}" if prefix else _NAMES.get(key, key)


def is_known(key: str) -> bool:
    """Return whether the value of a condition key is known, or known to be absent.

    Args:
        key: For example ``aws:SourceIp``; case does not matter.
    """
    folded = key.casefold()
    return folded in _NAMES or any(folded.startswith(prefix) and folded != prefix for prefix in _PREFIXES)


def check_key(condition: Condition, *, denies: bool) -> None:
    """Refuse a condition on a key that is not known, where that would give rights or lose a Deny.

    Args:
        denies: Whether its statement denies.

    Raises:
        ValueError: Names the key.
    """
    if is_known(condition.key) or not (denies or condition.fulfilled_without_value()):
        return
    raise ValueError(
        f"the key {condition.key!r}, whose value this service does not know, so that the statement would"
        f" {'deny too little or too much' if denies else 'allow without it'}; supported are {', '.join(_KNOWN)},"
        f" {', '.join(f'{prefix}KEY' for prefix in _TAGS)}"
    )
