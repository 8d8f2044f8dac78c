"""The IAM actions that requests to this service may need."""

__all__ = ["ACTIONS"]

_S3 = (
    *("AbortMultipartUpload", "CreateBucket", "DeleteBucket", "DeleteObject", "DeleteObjectTagging"),
    *("DeleteObjectVersion", "DeleteObjectVersionTagging", "GetBucketLocation", "GetObject", "GetObjectTagging"),
    *("GetObjectVersion", "GetObjectVersionTagging", "ListAllMyBuckets", "ListBucket", "ListBucketMultipartUploads"),
    *("ListMultipartUploadParts", "PutObject", "PutObjectAcl", "PutObjectTagging", "PutObjectVersionTagging"),
)
_SAGEMAKER = (
    *("AddTags", "CreateEndpoint", "CreateEndpointConfig", "CreateModel", "CreateTrainingJob", "CreateTransformJob"),
    *("DeleteEndpoint", "DeleteEndpointConfig", "DeleteModel", "DeleteTags", "DescribeEndpoint"),
    *("DescribeEndpointConfig", "DescribeModel", "DescribeTrainingJob", "DescribeTransformJob", "InvokeEndpoint"),
    *("InvokeEndpointAsync", "ListEndpointConfigs", "ListEndpoints", "ListModels", "ListTags", "ListTrainingJobs"),
    *("ListTransformJobs", "StopTrainingJob", "StopTransformJob", "UpdateEndpoint"),
    "UpdateEndpointWeightsAndCapacities",
)
_LOGS = ("DescribeLogGroups", "DescribeLogStreams", "FilterLogEvents", "GetLogEvents")
_CLOUDWATCH = ("GetMetricData", "GetMetricStatistics", "ListMetrics")
_IAM = ("CreateAccessKey", "DeleteAccessKey", "GetRole", "ListAccessKeys", "ListUsers", "PassRole")
_STS = ("GetCallerIdentity",)

ACTIONS = frozenset(
    f"{service}:{name}"
    for service, names in (
        ("cloudwatch", _CLOUDWATCH),
        ("iam", _IAM),
        ("logs", _LOGS),
        ("s3", _S3),
        ("sagemaker", _SAGEMAKER),
        ("sts", _STS),
    )
    for name in names
)
"""``service:Name``, spelled as IAM spells them."""
