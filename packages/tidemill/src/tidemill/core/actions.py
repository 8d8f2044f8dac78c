"""The IAM actions that requests to this service can need."""

__all__ = ["ACTIONS"]

_S3 = (
    *("AbortMultipartUpload", "CreateBucket", "DeleteBucket", "DeleteObject", "DeleteObjectTagging"),
    *("DeleteObjectVersion", "DeleteObjectVersionTagging", "GetBucketLocation", "GetObject", "GetObjectTagging"),
    *("GetObjectVersion", "GetObjectVersionTagging", "ListAllMyBuckets", "ListBucket", "ListBucketMultipartUploads"),
    *("ListMultipartUploadParts", "PutObject", "PutObjectAcl", "PutObjectTagging", "PutObjectVersionTagging"),
)
_SAGEMAKER = (
    *("AddTags", "CreateEndpoint", "CreateEndpointConfig", "CreateModel", "CreateTrainingJob", "DeleteEndpoint"),
    *("DeleteEndpointConfig", "DeleteModel", "DeleteTags", "DescribeEndpoint", "DescribeEndpointConfig"),
    *("DescribeModel", "DescribeTrainingJob", "InvokeEndpoint", "ListEndpointConfigs", "ListEndpoints", "ListModels"),
    *("ListTags", "ListTrainingJobs", "StopTrainingJob"),
)
_LOGS = ("DescribeLogGroups", "DescribeLogStreams", "FilterLogEvents", "GetLogEvents")
_IAM = ("GetRole", "PassRole")
_STS = ("GetCallerIdentity",)

ACTIONS = frozenset(
    f"{service}:{name}"
    for service, names in (("s3", _S3), ("sagemaker", _SAGEMAKER), ("logs", _LOGS), ("iam", _IAM), ("sts", _STS))
    for name in names
)
"""``service:Name``, spelled as IAM spells them."""
