"""The mapping from requests to IAM's permissions: complete, and as IAM documents it."""

import asyncio
import hashlib
from typing import Any

import pytest

from tidemill.core.compatibility.nothing import EMPTY_LISTS
from tidemill.core.job_scope import JobScope
from tidemill.core.lineage import artifact_id
from tidemill.core.policy import ActionPattern, IamPolicy, PolicyEffect, ResourcePattern, Statement
from tidemill.core.policy_document import ACTIONS
from tidemill.core.roles import Roles
from tidemill.errors import AwsError
from tidemill.server.app import Application
from tidemill.server.keys import Keys
from tidemill.server.state import StateDirectory
from tidemill.services.authorization import Authorization
from tidemill.services.authorization.needs import NEEDS, needs_of
from tidemill.settings import Settings
from tidemill.wire.exchange import Caller, Context
from tidemill.wire.protocols.models import service_model
from tidemill.wire.signing.credentials import Credential

BUCKET, OBJECT = "arn:aws:s3:::bkt", "arn:aws:s3:::bkt/a/key"
SAGEMAKER = "arn:aws:sagemaker:us-west-2:000000000000:"
MODEL = f"{SAGEMAKER}model/n"
LOGS = "arn:aws:logs:us-west-2:000000000000:log-group:"
ROLE = "arn:aws:iam::000000000000:role/R"
SCALING = "arn:aws:application-autoscaling:us-west-2:000000000000:scalable-target/"
VARIANT = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/e/variant/v",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
TARGET = SCALING + hashlib.sha256(b"endpoint/e/variant/v|sagemaker:variant:DesiredInstanceCount").hexdigest()[:36]
KMS = "arn:aws:kms:us-west-2:000000000000:"
USERS = "arn:aws:iam::000000000000:user/"

IN_BUCKET = {"Bucket": "bkt"}
ON_OBJECT = {"Bucket": "bkt", "Key": "a/key"}
STREAM = {"logGroupName": "/g", "logStreamName": "s/1"}
COPY = {**ON_OBJECT, "CopySource": "src/from"}
SOURCE = "arn:aws:s3:::src/from"
GET, PUT = ("s3:GetObject", OBJECT), ("s3:PutObject", OBJECT)

# Operations that read a setting of a bucket, and their actions, whose names sometimes differ.
SETTINGS = {
    "GetBucketAccelerateConfiguration": "GetAccelerateConfiguration",
    "GetBucketAcl": "GetBucketAcl",
    "GetBucketCors": "GetBucketCORS",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketLogging": "GetBucketLogging",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "GetBucketOwnershipControls": "GetBucketOwnershipControls",
    "GetBucketPolicy": "GetBucketPolicy",
    "GetBucketPolicyStatus": "GetBucketPolicyStatus",
    "GetBucketReplication": "GetReplicationConfiguration",
    "GetBucketRequestPayment": "GetBucketRequestPayment",
    "GetBucketTagging": "GetBucketTagging",
    "GetBucketVersioning": "GetBucketVersioning",
    "GetBucketWebsite": "GetBucketWebsite",
    "GetObjectLockConfiguration": "GetBucketObjectLockConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
}

ARTIFACT = f"{SAGEMAKER}artifact/a"
PLACED = f"{SAGEMAKER}artifact/{artifact_id({'SourceUri': 's3://b/k'})}"
RUN = f"{SAGEMAKER}experiment-trial-component/r"

TRACKED = (
    ("Experiment", "experiment"),
    ("Trial", "experiment-trial"),
    ("TrialComponent", "experiment-trial-component"),
)

# Service, operation, members, and the permissions in IAM's service authorization reference.
EXPECTED: list[tuple[str, str, dict[str, Any], list[tuple[str, str]]]] = [
    (
        "kms",
        "CreateAlias",
        {"AliasName": "alias/a", "TargetKeyId": "k"},
        [("kms:CreateAlias", f"{KMS}alias/a"), ("kms:CreateAlias", f"{KMS}key/k")],
    ),
    ("kms", "CreateKey", {}, [("kms:CreateKey", "*")]),
    ("iam", "SimulateCustomPolicy", {}, [("iam:SimulateCustomPolicy", "*")]),
    ("iam", "SimulatePrincipalPolicy", {"PolicySourceArn": ROLE}, [("iam:SimulatePrincipalPolicy", ROLE)]),
    (
        "application-autoscaling",
        "RegisterScalableTarget",
        {**VARIANT, "Tags": {"a": "b"}},
        [
            ("application-autoscaling:RegisterScalableTarget", TARGET),
            ("application-autoscaling:TagResource", TARGET),
            ("sagemaker:UpdateEndpointWeightsAndCapacities", f"{SAGEMAKER}endpoint/e"),
        ],
    ),
    *(
        ("application-autoscaling", name, VARIANT, [(f"application-autoscaling:{name}", TARGET)])
        for name in ("DeregisterScalableTarget", "PutScalingPolicy", "DeleteScalingPolicy")
    ),
    *(
        ("application-autoscaling", name, {}, [(f"application-autoscaling:{name}", "*")])
        for name in (
            *("DescribeScalableTargets", "DescribeScalingPolicies", "DescribeScalingActivities"),
            "DescribeScheduledActions",
        )
    ),
    *(
        ("application-autoscaling", name, {"ResourceARN": TARGET}, [(f"application-autoscaling:{name}", TARGET)])
        for name in ("ListTagsForResource", "TagResource", "UntagResource")
    ),
    (
        "kms",
        "DescribeKey",
        {"KeyId": "arn:aws:kms:eu-west-1:1:key/k"},
        [("kms:DescribeKey", "arn:aws:kms:eu-west-1:1:key/k")],
    ),
    ("kms", "CancelKeyDeletion", {"KeyId": "k"}, [("kms:CancelKeyDeletion", f"{KMS}key/k")]),
    ("kms", "DisableKey", {"KeyId": "k"}, [("kms:DisableKey", f"{KMS}key/k")]),
    ("kms", "EnableKey", {"KeyId": "k"}, [("kms:EnableKey", f"{KMS}key/k")]),
    ("kms", "ScheduleKeyDeletion", {"KeyId": "k"}, [("kms:ScheduleKeyDeletion", f"{KMS}key/k")]),
    ("s3", "PutBucketEncryption", IN_BUCKET, [("s3:PutEncryptionConfiguration", BUCKET)]),
    ("s3", "DeleteBucketEncryption", IN_BUCKET, [("s3:PutEncryptionConfiguration", BUCKET)]),
    ("s3", "PutBucketPolicy", IN_BUCKET, [("s3:PutBucketPolicy", BUCKET)]),
    ("s3", "DeleteBucketPolicy", IN_BUCKET, [("s3:DeleteBucketPolicy", BUCKET)]),
    ("kms", "GetKeyPolicy", {"KeyId": "k"}, [("kms:GetKeyPolicy", f"{KMS}key/k")]),
    ("kms", "PutKeyPolicy", {"KeyId": "k"}, [("kms:PutKeyPolicy", f"{KMS}key/k")]),
    ("kms", "ListAliases", {}, [("kms:ListAliases", "*")]),
    ("kms", "ListKeys", {}, [("kms:ListKeys", "*")]),
    (
        "sagemaker",
        "DeleteTrainingJob",
        {"TrainingJobName": "n"},
        [("sagemaker:DeleteTrainingJob", f"{SAGEMAKER}training-job/n")],
    ),
    (
        "sagemaker",
        "UpdateTrainingJob",
        {"TrainingJobName": "n"},
        [("sagemaker:UpdateTrainingJob", f"{SAGEMAKER}training-job/n")],
    ),
    *(("s3", operation, IN_BUCKET, [(f"s3:{action}", BUCKET)]) for operation, action in SETTINGS.items()),
    ("s3", "GetObjectAcl", ON_OBJECT, [("s3:GetObjectAcl", OBJECT)]),
    ("s3", "GetObjectAcl", {**ON_OBJECT, "VersionId": "null"}, [("s3:GetObjectVersionAcl", OBJECT)]),
    ("s3", "GetObjectAttributes", ON_OBJECT, [GET, ("s3:GetObjectAttributes", OBJECT)]),
    (
        "s3",
        "GetObjectAttributes",
        {**ON_OBJECT, "VersionId": "null"},
        [("s3:GetObjectVersion", OBJECT), ("s3:GetObjectVersionAttributes", OBJECT)],
    ),
    ("s3", "ListObjectVersions", IN_BUCKET, [("s3:ListBucketVersions", BUCKET)]),
    ("s3", "ListBuckets", {}, [("s3:ListAllMyBuckets", "arn:aws:s3:::*")]),
    ("s3", "CreateBucket", IN_BUCKET, [("s3:CreateBucket", BUCKET)]),
    ("s3", "DeleteBucket", IN_BUCKET, [("s3:DeleteBucket", BUCKET)]),
    ("s3", "HeadBucket", IN_BUCKET, [("s3:ListBucket", BUCKET)]),
    ("s3", "GetBucketLocation", IN_BUCKET, [("s3:GetBucketLocation", BUCKET)]),
    ("s3", "ListObjects", {**IN_BUCKET, "Prefix": "a/"}, [("s3:ListBucket", BUCKET)]),
    ("s3", "ListObjectsV2", IN_BUCKET, [("s3:ListBucket", BUCKET)]),
    ("s3", "ListMultipartUploads", IN_BUCKET, [("s3:ListBucketMultipartUploads", BUCKET)]),
    ("s3", "GetObject", ON_OBJECT, [GET]),
    ("s3", "GetObject", {**ON_OBJECT, "VersionId": "null"}, [("s3:GetObjectVersion", OBJECT)]),
    ("s3", "HeadObject", ON_OBJECT, [GET]),
    ("s3", "HeadObject", {**ON_OBJECT, "VersionId": "1"}, [("s3:GetObjectVersion", OBJECT)]),
    ("s3", "GetObjectTagging", ON_OBJECT, [("s3:GetObjectTagging", OBJECT)]),
    ("s3", "GetObjectTagging", {**ON_OBJECT, "VersionId": "1"}, [("s3:GetObjectVersionTagging", OBJECT)]),
    ("s3", "PutObjectTagging", ON_OBJECT, [("s3:PutObjectTagging", OBJECT)]),
    ("s3", "PutObjectTagging", {**ON_OBJECT, "VersionId": "1"}, [("s3:PutObjectVersionTagging", OBJECT)]),
    ("s3", "DeleteObjectTagging", ON_OBJECT, [("s3:DeleteObjectTagging", OBJECT)]),
    ("s3", "DeleteObjectTagging", {**ON_OBJECT, "VersionId": "1"}, [("s3:DeleteObjectVersionTagging", OBJECT)]),
    ("s3", "PutObject", ON_OBJECT, [PUT]),
    ("s3", "PutObject", {**ON_OBJECT, "Tagging": "k=v"}, [PUT, ("s3:PutObjectTagging", OBJECT)]),
    ("s3", "PutObject", {**ON_OBJECT, "ACL": "private"}, [PUT, ("s3:PutObjectAcl", OBJECT)]),
    ("s3", "PutObject", {**ON_OBJECT, "IfMatch": "etag"}, [PUT, GET]),
    ("s3", "PutObject", {**ON_OBJECT, "IfNoneMatch": "*"}, [PUT]),
    ("s3", "CreateMultipartUpload", ON_OBJECT, [PUT]),
    ("s3", "CreateMultipartUpload", {**ON_OBJECT, "Tagging": "k=v"}, [PUT, ("s3:PutObjectTagging", OBJECT)]),
    ("s3", "UploadPart", ON_OBJECT, [PUT]),
    ("s3", "CompleteMultipartUpload", ON_OBJECT, [PUT]),
    ("s3", "AbortMultipartUpload", ON_OBJECT, [("s3:AbortMultipartUpload", OBJECT)]),
    ("s3", "ListParts", ON_OBJECT, [("s3:ListMultipartUploadParts", OBJECT)]),
    ("s3", "UploadPartCopy", COPY, [("s3:GetObject", SOURCE), PUT]),
    ("s3", "UploadPartCopy", {**COPY, "CopySource": "/src/from?versionId=1"}, [("s3:GetObjectVersion", SOURCE), PUT]),
    (
        "s3",
        "CopyObject",
        COPY,
        [("s3:GetObject", SOURCE), PUT, ("s3:GetObjectTagging", SOURCE), ("s3:PutObjectTagging", OBJECT)],
    ),
    ("s3", "CopyObject", {**COPY, "TaggingDirective": "REPLACE"}, [("s3:GetObject", SOURCE), PUT]),
    (
        "s3",
        "CopyObject",
        {**COPY, "TaggingDirective": "REPLACE", "Tagging": "k=v", "CopySource": "src/from?versionId=null"},
        [("s3:GetObjectVersion", SOURCE), PUT, ("s3:PutObjectTagging", OBJECT)],
    ),
    (
        "s3",
        "CopyObject",
        {**COPY, "TaggingDirective": "REPLACE", "CopySource": "src/a%20b%2Fc%252F%3FversionId=1"},
        [("s3:GetObject", "arn:aws:s3:::src/a b/c%2F?versionId=1"), PUT],
    ),
    ("s3", "DeleteObject", ON_OBJECT, [("s3:DeleteObject", OBJECT)]),
    ("s3", "DeleteObject", {**ON_OBJECT, "VersionId": "1"}, [("s3:DeleteObjectVersion", OBJECT)]),
    ("s3", "DeleteObject", {**ON_OBJECT, "IfMatch": "etag"}, [("s3:DeleteObject", OBJECT), GET]),
    (
        "s3",
        "DeleteObjects",
        {**IN_BUCKET, "Delete": {"Objects": [{"Key": "a/key"}, {"Key": "b", "VersionId": "null"}]}},
        [("s3:DeleteObject", OBJECT), ("s3:DeleteObjectVersion", f"{BUCKET}/b")],
    ),
    # The name of a bucket cannot extend into the keys of another one.
    ("s3", "GetObject", {"Bucket": "bkt/a", "Key": "key"}, [("s3:GetObject", "arn:aws:s3:::bkt%2Fa/key")]),
    *(
        ("sagemaker", f"{verb}{what}", {f"{what}Name": "n"}, [(f"sagemaker:{verb}{what}", f"{SAGEMAKER}{kind}/n")])
        for what, kind in (("Model", "model"), ("EndpointConfig", "endpoint-config"), ("Endpoint", "endpoint"))
        for verb in ("Describe", "Delete")
    ),
    *(
        ("sagemaker", f"List{what}s", {}, [(f"sagemaker:List{what}s", f"{SAGEMAKER}{kind}/*")])
        for what, kind in (
            ("TrainingJob", "training-job"),
            ("Model", "model"),
            ("EndpointConfig", "endpoint-config"),
            ("Endpoint", "endpoint"),
        )
    ),
    *(
        (
            "sagemaker",
            f"{verb}ModelPackage{what}",
            {f"ModelPackage{what}Name": name},
            [(f"sagemaker:{verb}ModelPackage{what}", f"{SAGEMAKER}{kind}/n")],
        )
        for what, kind in (("", "model-package"), ("Group", "model-package-group"))
        for verb in ("Describe", "Delete")
        for name in ("n", f"{SAGEMAKER}{kind}/n")
    ),
    *(
        ("sagemaker", f"List{what}s", {}, [(f"sagemaker:List{what}s", f"{SAGEMAKER}{kind}/*")])
        for what, kind in (("ModelPackage", "model-package"), ("ModelPackageGroup", "model-package-group"))
    ),
    (
        "sagemaker",
        "CreateModelPackageGroup",
        {"ModelPackageGroupName": "n"},
        [("sagemaker:CreateModelPackageGroup", f"{SAGEMAKER}model-package-group/n")],
    ),
    (
        "sagemaker",
        "CreateModelPackage",
        {"ModelPackageGroupName": f"{SAGEMAKER}model-package-group/n", "Tags": [{"Key": "k", "Value": "v"}]},
        [
            ("sagemaker:CreateModelPackage", f"{SAGEMAKER}model-package/n/*"),
            ("sagemaker:CreateModelPackage", f"{SAGEMAKER}model-package-group/n"),
            ("sagemaker:AddTags", f"{SAGEMAKER}model-package/n/*"),
        ],
    ),
    (
        "sagemaker",
        "CreateModelPackage",
        {"ModelPackageName": "n"},
        [("sagemaker:CreateModelPackage", f"{SAGEMAKER}model-package/n")],
    ),
    (
        "sagemaker",
        "UpdateModelPackage",
        {"ModelPackageArn": f"{SAGEMAKER}model-package/n/1"},
        [("sagemaker:UpdateModelPackage", f"{SAGEMAKER}model-package/n/1")],
    ),
    (
        "sagemaker",
        "BatchDescribeModelPackage",
        {"ModelPackageArnList": [f"{SAGEMAKER}model-package/n/1", f"{SAGEMAKER}model-package/m/1"]},
        [
            ("sagemaker:BatchDescribeModelPackage", f"{SAGEMAKER}model-package/n/1"),
            ("sagemaker:BatchDescribeModelPackage", f"{SAGEMAKER}model-package/m/1"),
        ],
    ),
    *(
        (
            "sagemaker",
            f"{verb}{what}",
            {f"{what}Name": "n"},
            [(f"sagemaker:{verb}{what}", f"{SAGEMAKER}{kind}/n")],
        )
        for what, kind in TRACKED
        for verb in ("Describe", "Update", "Delete")
    ),
    *(
        ("sagemaker", f"List{what}s", {}, [(f"sagemaker:List{what}s", f"{SAGEMAKER}{kind}/*")])
        for what, kind in TRACKED
    ),
    *(
        ("sagemaker", f"Create{what}", {f"{what}Name": "n"}, [(f"sagemaker:Create{what}", f"{SAGEMAKER}{kind}/n")])
        for what, kind in TRACKED
        if what != "Trial"
    ),
    (
        "sagemaker",
        "CreateTrial",
        {"TrialName": "n", "ExperimentName": "e", "Tags": [{"Key": "k", "Value": "v"}]},
        [
            ("sagemaker:CreateTrial", f"{SAGEMAKER}experiment-trial/n"),
            ("sagemaker:CreateTrial", f"{SAGEMAKER}experiment/e"),
            ("sagemaker:AddTags", f"{SAGEMAKER}experiment-trial/n"),
        ],
    ),
    *(
        (
            "sagemaker",
            operation,
            {"TrialName": "n", "TrialComponentName": "c"},
            [
                (f"sagemaker:{operation}", f"{SAGEMAKER}experiment-trial/n"),
                (f"sagemaker:{operation}", f"{SAGEMAKER}experiment-trial-component/c"),
            ],
        )
        for operation in ("AssociateTrialComponent", "DisassociateTrialComponent")
    ),
    (
        "sagemaker",
        "CreateArtifact",
        {"Source": {"SourceUri": "s3://b/k"}, "Tags": [{"Key": "k", "Value": "v"}]},
        [("sagemaker:CreateArtifact", PLACED), ("sagemaker:AddTags", PLACED)],
    ),
    *(
        ("sagemaker", f"{verb}Artifact", {"ArtifactArn": ARTIFACT}, [(f"sagemaker:{verb}Artifact", ARTIFACT)])
        for verb in ("Describe", "Update", "Delete")
    ),
    # What is found by the end of an ARN needs the permission for that, however the ARN begins.
    (
        "sagemaker",
        "DescribeArtifact",
        {"ArtifactArn": ARTIFACT.replace("artifact/", "artifact/mine/")},
        [("sagemaker:DescribeArtifact", ARTIFACT)],
    ),
    (
        "sagemaker-metrics",
        "BatchGetMetrics",
        {"MetricQueries": [{"ResourceArn": f"{SAGEMAKER}experiment-trial-component/mine/c"}]},
        [("sagemaker:BatchGetMetrics", f"{SAGEMAKER}experiment-trial-component/c")],
    ),
    ("sagemaker", "DeleteArtifact", {"Source": {"SourceUri": "s3://b/k"}}, [("sagemaker:DeleteArtifact", PLACED)]),
    *(
        (
            "sagemaker",
            f"{verb}Association",
            {"SourceArn": ARTIFACT, "DestinationArn": RUN},
            [(f"sagemaker:{verb}Association", ARTIFACT), (f"sagemaker:{verb}Association", RUN)],
        )
        for verb in ("Add", "Delete")
    ),
    *(
        ("sagemaker", name, {}, [(f"sagemaker:{name}", "*")])
        for name in ("Search", "GetSearchSuggestions", "ListArtifacts", "ListAssociations", *EMPTY_LISTS)
    ),
    (
        "sagemaker-metrics",
        "BatchPutMetrics",
        {"TrialComponentName": "c"},
        [("sagemaker:BatchPutMetrics", f"{SAGEMAKER}experiment-trial-component/c")],
    ),
    (
        "sagemaker-metrics",
        "BatchGetMetrics",
        {"MetricQueries": [{"ResourceArn": f"{SAGEMAKER}experiment-trial-component/c"}]},
        [("sagemaker:BatchGetMetrics", f"{SAGEMAKER}experiment-trial-component/c")],
    ),
    *(
        ("sagemaker", operation, {"ResourceArn": MODEL}, [(f"sagemaker:{operation}", MODEL)])
        for operation in ("AddTags", "DeleteTags", "ListTags")
    ),
    *(
        (
            "sagemaker",
            operation,
            {"TrainingJobName": "n"},
            [(f"sagemaker:{operation}", f"{SAGEMAKER}training-job/n")],
        )
        for operation in ("DescribeTrainingJob", "StopTrainingJob")
    ),
    (
        "sagemaker",
        "CreateTrainingJob",
        {"TrainingJobName": "n", "RoleArn": ROLE, "Tags": [{"Key": "k", "Value": "v"}]},
        [
            ("sagemaker:CreateTrainingJob", f"{SAGEMAKER}training-job/n"),
            ("sagemaker:AddTags", f"{SAGEMAKER}training-job/n"),
            ("iam:PassRole", ROLE),
        ],
    ),
    (
        "sagemaker",
        "CreateModel",
        {"ModelName": "n", "ExecutionRoleArn": "R"},
        [("sagemaker:CreateModel", f"{SAGEMAKER}model/n"), ("iam:PassRole", ROLE)],
    ),
    (
        "sagemaker",
        "CreateEndpointConfig",
        {"EndpointConfigName": "n"},
        [("sagemaker:CreateEndpointConfig", f"{SAGEMAKER}endpoint-config/n")],
    ),
    (
        "sagemaker",
        "CreateEndpoint",
        {"EndpointName": "n", "EndpointConfigName": "c"},
        [
            ("sagemaker:CreateEndpoint", f"{SAGEMAKER}endpoint/n"),
            ("sagemaker:CreateEndpoint", f"{SAGEMAKER}endpoint-config/c"),
        ],
    ),
    (
        "sagemaker",
        "UpdateEndpoint",
        {"EndpointName": "n", "EndpointConfigName": "c"},
        [
            ("sagemaker:UpdateEndpoint", f"{SAGEMAKER}endpoint/n"),
            ("sagemaker:UpdateEndpoint", f"{SAGEMAKER}endpoint-config/c"),
        ],
    ),
    (
        "sagemaker",
        "UpdateEndpointWeightsAndCapacities",
        {"EndpointName": "n", "DesiredWeightsAndCapacities": [{"VariantName": "v"}]},
        [("sagemaker:UpdateEndpointWeightsAndCapacities", f"{SAGEMAKER}endpoint/n")],
    ),
    (
        "sagemaker-runtime",
        "InvokeEndpointWithResponseStream",
        {"EndpointName": "n"},
        [("sagemaker:InvokeEndpoint", f"{SAGEMAKER}endpoint/n")],
    ),
    (
        "sagemaker-runtime",
        "InvokeEndpointAsync",
        {"EndpointName": "n"},
        [("sagemaker:InvokeEndpointAsync", f"{SAGEMAKER}endpoint/n")],
    ),
    *(
        ("sagemaker", operation, {"TransformJobName": "n"}, [(f"sagemaker:{operation}", f"{SAGEMAKER}transform-job/n")])
        for operation in ("DescribeTransformJob", "StopTransformJob")
    ),
    *(
        (
            "sagemaker",
            operation,
            {"ProcessingJobName": "n"},
            [(f"sagemaker:{operation}", f"{SAGEMAKER}processing-job/n")],
        )
        for operation in ("DeleteProcessingJob", "DescribeProcessingJob", "StopProcessingJob")
    ),
    ("sagemaker", "ListProcessingJobs", {}, [("sagemaker:ListProcessingJobs", f"{SAGEMAKER}processing-job/*")]),
    (
        "sagemaker",
        "CreateProcessingJob",
        {"ProcessingJobName": "n", "RoleArn": "arn:aws:iam::000000000000:role/Reader"},
        [
            ("sagemaker:CreateProcessingJob", f"{SAGEMAKER}processing-job/n"),
            ("iam:PassRole", "arn:aws:iam::000000000000:role/Reader"),
        ],
    ),
    *(
        (
            "sagemaker",
            operation,
            {"HyperParameterTuningJobName": "n"},
            [(f"sagemaker:{operation}", f"{SAGEMAKER}hyper-parameter-tuning-job/n")],
        )
        for operation in (
            "DeleteHyperParameterTuningJob",
            "DescribeHyperParameterTuningJob",
            "ListTrainingJobsForHyperParameterTuningJob",
            "StopHyperParameterTuningJob",
        )
    ),
    (
        "sagemaker",
        "ListHyperParameterTuningJobs",
        {},
        [("sagemaker:ListHyperParameterTuningJobs", f"{SAGEMAKER}hyper-parameter-tuning-job/*")],
    ),
    (
        "sagemaker",
        "CreateHyperParameterTuningJob",
        {
            "HyperParameterTuningJobName": "n",
            "TrainingJobDefinitions": [{"RoleArn": ROLE}, {"RoleArn": ROLE}],
            "Tags": [{"Key": "k", "Value": "v"}],
        },
        [
            ("sagemaker:CreateHyperParameterTuningJob", f"{SAGEMAKER}hyper-parameter-tuning-job/n"),
            ("sagemaker:AddTags", f"{SAGEMAKER}hyper-parameter-tuning-job/n"),
            ("iam:PassRole", ROLE),
        ],
    ),
    *(
        ("sagemaker", operation, {"PipelineName": name}, [(f"sagemaker:{operation}", f"{SAGEMAKER}pipeline/n")])
        for operation in (
            *("DeletePipeline", "DescribePipeline", "ListPipelineExecutions", "ListPipelineVersions"),
            "StartPipelineExecution",
        )
        for name in ("n", f"{SAGEMAKER}pipeline/n")
    ),
    *(
        (
            "sagemaker",
            operation,
            {
                "PipelineName": "n",
                "RoleArn": "arn:aws:iam::000000000000:role/R",
                "Tags": [{"Key": "k", "Value": "v"}],
                "PipelineDefinitionS3Location": {"Bucket": "b", "ObjectKey": "k"},
            },
            [
                (f"sagemaker:{operation}", f"{SAGEMAKER}pipeline/n"),
                ("sagemaker:AddTags", f"{SAGEMAKER}pipeline/n"),
                ("iam:PassRole", "arn:aws:iam::000000000000:role/R"),
                ("s3:GetObject", "arn:aws:s3:::b/k"),
            ],
        )
        for operation in ("CreatePipeline", "UpdatePipeline")
    ),
    *(
        (
            "sagemaker",
            operation,
            {"PipelineExecutionArn": f"{SAGEMAKER}pipeline/n/execution/e"},
            [(f"sagemaker:{operation}", f"{SAGEMAKER}pipeline/n/execution/e")],
        )
        for operation in (
            *("DescribePipelineDefinitionForExecution", "DescribePipelineExecution", "ListPipelineExecutionSteps"),
            *("ListPipelineParametersForExecution", "RetryPipelineExecution", "StopPipelineExecution"),
            "UpdatePipelineExecution",
        )
    ),
    ("sagemaker", "ListPipelines", {}, [("sagemaker:ListPipelines", f"{SAGEMAKER}pipeline/*")]),
    ("sagemaker", "ListTransformJobs", {}, [("sagemaker:ListTransformJobs", f"{SAGEMAKER}transform-job/*")]),
    (
        "sagemaker",
        "CreateTransformJob",
        {"TransformJobName": "n", "ModelName": "m"},
        [
            ("sagemaker:CreateTransformJob", f"{SAGEMAKER}transform-job/n"),
            ("sagemaker:CreateTransformJob", f"{SAGEMAKER}model/m"),
        ],
    ),
    (
        "sagemaker-runtime",
        "InvokeEndpoint",
        {"EndpointName": "n"},
        [("sagemaker:InvokeEndpoint", f"{SAGEMAKER}endpoint/n")],
    ),
    *(
        (
            "logs",
            name,
            {"logGroupName": "/g", "logStreamName": "s"},
            [(f"logs:{name}", f"{LOGS}/g:log-stream:{stream}")],
        )
        for name, stream in (
            ("CreateLogGroup", ""),
            ("CreateLogStream", ""),
            ("DeleteLogGroup", ""),
            ("PutRetentionPolicy", ""),
            ("DeleteRetentionPolicy", ""),
            ("DeleteLogStream", "s"),
            ("PutLogEvents", "s"),
        )
    ),
    *(
        ("logs", name, {"resourceArn": f"{LOGS}/g"}, [(f"logs:{name}", f"{LOGS}/g:log-stream:")])
        for name in ("ListTagsForResource", "TagResource", "UntagResource")
    ),
    *(("logs", name, {}, [(f"logs:{name}", "*")]) for name in ("DescribeQueries", "GetQueryResults", "StopQuery")),
    (
        "logs",
        "StartQuery",
        {"logGroupIdentifiers": ["/g", f"{LOGS}/h:*"]},
        [("logs:StartQuery", f"{LOGS}/g:log-stream:"), ("logs:StartQuery", f"{LOGS}/h:log-stream:")],
    ),
    ("logs", "DescribeLogGroups", {"logGroupNamePrefix": "/g"}, [("logs:DescribeLogGroups", f"{LOGS}/g:log-stream:")]),
    ("logs", "DescribeLogGroups", {}, [("logs:DescribeLogGroups", f"{LOGS}:log-stream:")]),
    ("logs", "DescribeLogStreams", {"logGroupName": "/g"}, [("logs:DescribeLogStreams", f"{LOGS}/g:log-stream:")]),
    (
        "logs",
        "DescribeLogStreams",
        {"logGroupIdentifier": f"{LOGS}/g", "logStreamNamePrefix": "s/"},
        [("logs:DescribeLogStreams", f"{LOGS}/g:log-stream:s/")],
    ),
    ("logs", "GetLogEvents", STREAM, [("logs:GetLogEvents", f"{LOGS}/g:log-stream:s/1")]),
    (
        "logs",
        "GetLogEvents",
        {"logGroupIdentifier": f"{LOGS}/g:log-stream:own/1", "logStreamName": "s"},
        [("logs:GetLogEvents", f"{LOGS}/g%3Alog-stream%3Aown/1:log-stream:s")],
    ),
    ("logs", "FilterLogEvents", {"logGroupName": "/g"}, [("logs:FilterLogEvents", f"{LOGS}/g:log-stream:")]),
    (
        "logs",
        "FilterLogEvents",
        {"logGroupName": "/g", "logStreamNames": ["s/1", "t/1"]},
        [("logs:FilterLogEvents", f"{LOGS}/g:log-stream:s/1"), ("logs:FilterLogEvents", f"{LOGS}/g:log-stream:t/1")],
    ),
    (
        "logs",
        "FilterLogEvents",
        {"logGroupName": "/g", "logStreamNamePrefix": "s/"},
        [("logs:FilterLogEvents", f"{LOGS}/g:log-stream:s/")],
    ),
    ("cloudwatch", "GetMetricData", {}, [("cloudwatch:GetMetricData", "*")]),
    ("cloudwatch", "GetMetricStatistics", {}, [("cloudwatch:GetMetricStatistics", "*")]),
    *(
        ("cloudwatch", name, {}, [(f"cloudwatch:{name}", "*")])
        for name in ("ListMetrics", "PutMetricData", "PutMetricAlarm", "DescribeAlarms", "DeleteAlarms")
    ),
    ("iam", "GetRole", {"RoleName": "R"}, [("iam:GetRole", ROLE)]),
    ("iam", "ListRoles", {}, [("iam:ListRoles", "arn:aws:iam::000000000000:role/")]),
    *(
        ("iam", name, {"RoleName": "R"}, [(f"iam:{name}", ROLE)])
        for name in (
            *("CreateRole", "DeleteRole", "AttachRolePolicy", "DetachRolePolicy", "ListAttachedRolePolicies"),
            *("PutRolePolicy", "GetRolePolicy", "DeleteRolePolicy", "ListRolePolicies"),
        )
    ),
    ("iam", "CreateAccessKey", {"UserName": "ann"}, [("iam:CreateAccessKey", f"{USERS}ann")]),
    ("iam", "DeleteAccessKey", {"UserName": "ann", "AccessKeyId": "A"}, [("iam:DeleteAccessKey", f"{USERS}ann")]),
    ("iam", "ListAccessKeys", {"UserName": "ann"}, [("iam:ListAccessKeys", f"{USERS}ann")]),
    ("iam", "ListUsers", {}, [("iam:ListUsers", USERS)]),
    *(
        ("iam", name, {"UserName": "ann"}, [(f"iam:{name}", f"{USERS}ann")])
        for name in (
            *("CreateUser", "GetUser", "DeleteUser"),
            *("PutUserPolicy", "GetUserPolicy", "DeleteUserPolicy", "ListUserPolicies"),
        )
    ),
    ("sts", "GetCallerIdentity", {}, []),
    ("sts", "GetSessionToken", {}, []),
    ("sts", "AssumeRole", {"RoleArn": ROLE, "RoleSessionName": "s"}, [("sts:AssumeRole", ROLE)]),
    ("tidemill", "CreatePageToken", {}, []),
    ("tidemill", "DeletePageSessions", {}, []),
    (
        "tidemill",
        "ListJobs",
        {"Kind": "tuning"},
        [("sagemaker:ListHyperParameterTuningJobs", f"{SAGEMAKER}hyper-parameter-tuning-job/*")],
    ),
    (
        "tidemill",
        "DescribeJob",
        {"Kind": "transform", "Name": "n"},
        [("sagemaker:DescribeTransformJob", f"{SAGEMAKER}transform-job/n")],
    ),
    *(
        ("tidemill", name, {"LogGroup": "g", "LogStream": "s"}, [("logs:GetLogEvents", f"{LOGS}g:log-stream:s")])
        for name in ("GetLogLines", "SearchLogLines")
    ),
    (
        "tidemill",
        "GetMetricPoints",
        {"TrainingJobName": "j"},
        [("sagemaker:DescribeTrainingJob", f"{SAGEMAKER}training-job/j")],
    ),
    *(
        ("tidemill", "GetInstanceSamples", {"Kind": kind, "Name": "n"}, [(f"sagemaker:{what}", f"{SAGEMAKER}{kind}/n")])
        for kind, what in (
            ("training-job", "DescribeTrainingJob"),
            ("processing-job", "DescribeProcessingJob"),
            ("transform-job", "DescribeTransformJob"),
            ("endpoint", "DescribeEndpoint"),
        )
    ),
    *(
        (
            "tidemill",
            name,
            {"TrainingJobName": "j"},
            [("sagemaker:DescribeTrainingJob", f"{SAGEMAKER}training-job/j")],
        )
        for name in ("ListScalars", "GetScalars")
    ),
    ("tidemill", "ListRunningInstances", {}, []),
    ("tidemill", "WaitForChanges", {"Interests": [{"Kind": "training-job"}]}, []),
    ("tidemill", "CreateMetricsToken", {"Name": "n"}, []),
    ("tidemill", "ListMetricsTokens", {}, []),
    ("tidemill", "DeleteMetricsToken", {"Name": "n"}, []),
    ("tidemill", "ListWebhooks", {}, []),
    ("tidemill", "TestWebhook", {"Name": "n"}, []),
    ("tidemill", "PresignDownload", {"Bucket": "b", "Key": "k"}, [("s3:GetObject", "arn:aws:s3:::b/k")]),
    ("tidemill", "ListArchive", {"Bucket": "b", "Key": "k"}, [("s3:GetObject", "arn:aws:s3:::b/k")]),
    ("tidemill", "ReadArchiveMember", {"Bucket": "b", "Key": "k", "Index": 0}, [("s3:GetObject", "arn:aws:s3:::b/k")]),
    ("tidemill", "DescribeMachine", {}, [("tidemill:DescribeMachine", "*")]),
    ("tidemill", "ListEnvironments", {}, [("tidemill:ListEnvironments", "*")]),
    ("tidemill", "RunDoctor", {}, [("tidemill:RunDoctor", "*")]),
    (
        *("tidemill", "DescribeEndpointInstances", {"EndpointName": "e"}),
        [("sagemaker:DescribeEndpoint", "arn:aws:sagemaker:us-west-2:000000000000:endpoint/e")],
    ),
    (
        *("tidemill", "DescribeServedModels", {"EndpointName": "e"}),
        [("sagemaker:DescribeEndpoint", "arn:aws:sagemaker:us-west-2:000000000000:endpoint/e")],
    ),
    ("tidemill-instances", "ReportInstance", {}, []),
    ("tidemill-instances", "DeliverLog", {}, []),
    ("tidemill-instances", "DeliverSamples", {}, []),
]


def context(service: str, operation: str) -> Context:
    caller = Caller("ASIA", "arn:aws:sts::000000000000:assumed-role/R/job")
    return Context(request_id="r", service=service, operation=operation, caller=caller, region="us-west-2", headers={})


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Return every operation for which the running service has a handler."""
    root = tmp_path_factory.mktemp("service")
    settings = Settings(state_dir=root / "state", environments_dir=root / "environments", isolation="plain")
    state = StateDirectory(settings.state_dir)
    state.create()

    async def open_and_close() -> set[tuple[str, str]]:
        app = Application(settings, state=state, keys=Keys.generate(), url=lambda: "http://127.0.0.1:1")
        async with app.opened() as gateway:
            return set(gateway.operations)

    return asyncio.run(open_and_close())


def test_every_routed_operation_is_mapped(routed: set[tuple[str, str]]) -> None:
    assert ("s3", "GetObject") in routed and ("sagemaker", "CreateTrainingJob") in routed
    mapped = {(service, operation) for service, rules in NEEDS.items() for operation in rules}
    assert routed - mapped == set()


def test_every_mapped_operation_exists_and_is_tested_here() -> None:
    mapped = {(service, operation) for service, rules in NEEDS.items() for operation in rules}
    assert [each for each in mapped if each[1] not in service_model(each[0]).operation_names] == []
    assert mapped - {(service, operation) for service, operation, _, _ in EXPECTED} == set()


@pytest.mark.parametrize(("service", "operation", "members", "expected"), EXPECTED)
def test_a_request_needs_what_iam_documents(
    service: str, operation: str, members: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert sorted(needs_of(members, context(service, operation)) or ()) == sorted(expected)


def test_policies_can_name_the_actions_that_requests_need_and_no_others() -> None:
    needed = {action for _, _, _, needs in EXPECTED for action, _ in needs}
    assert needed | {"sts:GetCallerIdentity"} == ACTIONS


def test_an_operation_without_a_mapping_is_denied_to_keys_of_jobs_under_every_policy() -> None:
    everything = IamPolicy((Statement(PolicyEffect.ALLOW, (ActionPattern("*"),), (ResourcePattern.parse("*"),)),))
    job = Credential("ASIA", "s", arn="arn:aws:sts::0:assumed-role/R/job", role="R")
    called: list[str] = []

    async def handler(request: dict[str, Any], context: Context) -> dict[str, Any]:
        called.append(context.operation)
        return {}

    async def ask(credential: Credential) -> Any:
        unmapped = context("s3", "PutBucketAcl")
        return await Authorization(Roles({"R": everything})).handle(handler, {"Bucket": "b"}, unmapped, credential)

    with pytest.raises(AwsError, match="not authorized to perform: s3:PutBucketAcl") as caught:
        asyncio.run(ask(job))
    assert (caught.value.code, caught.value.status, called) == ("AccessDenied", 403, [])
    asyncio.run(ask(Credential("AKIA", "s", unrestricted=True)))
    assert called == ["PutBucketAcl"]


def test_a_handler_can_ask_what_its_caller_may_see_of_what_a_request_does_not_name() -> None:
    described = (ActionPattern("sagemaker:DescribeTrial"), ActionPattern("sagemaker:Search"))
    some = ResourcePattern.parse(f"{SAGEMAKER}experiment-trial/a*")
    everything = ResourcePattern.parse("*")
    policy = IamPolicy(
        (
            Statement(PolicyEffect.ALLOW, described[:1], (some,)),
            Statement(PolicyEffect.ALLOW, described[1:], (everything,)),
        )
    )
    answers: list[bool] = []

    async def handler(request: dict[str, Any], context: Context) -> dict[str, Any]:
        answers.extend(
            context.permits("sagemaker:DescribeTrial", f"{SAGEMAKER}experiment-trial/{name}") for name in ("ab", "ba")
        )
        return {}

    async def ask(credential: Credential) -> None:
        await Authorization(Roles({"R": policy})).handle(handler, {}, context("sagemaker", "Search"), credential)

    asyncio.run(ask(Credential("ASIA", "s", arn="arn", role="R", scope=JobScope(name="job"))))
    asyncio.run(ask(Credential("AKIA", "s", unrestricted=True)))
    assert answers == [True, False, True, True]
