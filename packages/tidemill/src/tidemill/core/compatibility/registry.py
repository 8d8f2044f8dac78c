"""Rows of model packages and their groups."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import TAGS, Honored, Recorded, Refused, Rows, Unencrypted, honored, same

_SHOWN = Recorded("described as it was given")


def _containers(at: str) -> Rows:
    rows: Rows = {
        "ContainerHostname": Recorded("a model has one container; SageMaker ignores it then"),
        "Image": Honored("any image is kept; CreateModel refuses those that cannot be served here"),
        "ImageDigest": _SHOWN,
        "ModelDataUrl": Honored("used by models of the package; CreateModel requires it"),
        "ModelDataSource": Refused("pack the model as model.tar.gz and give ModelDataUrl"),
        "ProductId": Refused("there is no AWS Marketplace; leave it out"),
        "Environment": Honored("models of the package get it; their own variables win"),
        **same(_SHOWN, "ModelInput", "Framework", "FrameworkVersion", "NearestModelName"),
        "AdditionalModelDataSources": Refused("pack everything into the one model.tar.gz of ModelDataUrl"),
        "AdditionalS3DataSource": Refused("pack everything into the one model.tar.gz of ModelDataUrl"),
        **same(_SHOWN, "ModelDataETag", "IsCheckpoint", "BaseModel"),
    }
    return {f"{at}.Containers[]": Honored(), **{f"{at}.Containers[].{name}": row for name, row in rows.items()}}


def _specification(at: str) -> Rows:
    rows = {name: row for name, row in _containers(at).items() if name != f"{at}.Containers[]"}
    return {
        f"{at}.Containers": Honored("a model can be created from a package with one container"),
        **rows,
        f"{at}.SupportedTransformInstanceTypes": Recorded("a model runs on any instance type"),
        f"{at}.SupportedRealtimeInferenceInstanceTypes": Recorded("a model runs on any instance type"),
        f"{at}.SupportedContentTypes": _SHOWN,
        f"{at}.SupportedResponseMIMETypes": _SHOWN,
    }


def _additional(member: str) -> Rows:
    at = f"{member}[]"
    return {
        member: Honored("a container's InferenceSpecificationName selects one"),
        f"{at}.Name": Honored(),
        f"{at}.Description": _SHOWN,
        **_specification(at),
    }


_ATTRIBUTES: Rows = {
    "ModelPackageRegistrationType": _SHOWN,
    "ModelApprovalStatus": Honored(
        "PendingManualApproval if it is not given. Only Approved versions can be deployed; an unversioned package needs"
        " no approval"
    ),
    **same(_SHOWN, "SourceUri", "ModelCard", "ModelLifeCycle"),
    "InferenceSpecification": Honored(),
    **_specification("InferenceSpecification"),
}

_CREATE: Rows = {
    "ModelPackageName": Honored("for an unversioned package; either it or ModelPackageGroupName"),
    "ModelPackageGroupName": Honored("the package becomes the next version of the group, which must exist"),
    "ModelPackageDescription": Honored(),
    **_ATTRIBUTES,
    "ValidationSpecification": Refused("packages are not validated: leave it out, and run a transform job"),
    "SourceAlgorithmSpecification": Refused("there are no algorithms: give an InferenceSpecification"),
    "CertifyForMarketplace": Refused("there is no AWS Marketplace; leave it out"),
    **TAGS,
    "MetadataProperties": _SHOWN,
    "ModelMetrics": _SHOWN,
    "ClientToken": Honored("a second request with the same token returns the package of the first"),
    **same(_SHOWN, "Domain", "Task", "SamplePayloadUrl"),
    "CustomerMetadataProperties": Honored(),
    "DriftCheckBaselines": _SHOWN,
    **_additional("AdditionalInferenceSpecifications"),
    "SkipModelValidation": Recorded("nothing is validated"),
    "SecurityConfig": Honored(),
    "SecurityConfig.KmsKeyId": Unencrypted(names_key=True),
    "ManagedStorageType": Refused("archives stay where ModelDataUrl says; leave it out"),
}

_UPDATE: Rows = {
    "ModelPackageArn": Honored(),
    **_ATTRIBUTES,
    "ApprovalDescription": Honored(),
    "CustomerMetadataProperties": Honored("added to those that the package has"),
    "CustomerMetadataPropertiesToRemove": Honored(),
    **_additional("AdditionalInferenceSpecificationsToAdd"),
    "ClientToken": Recorded("a repeated update changes nothing"),
}

_LIST: Rows = honored(
    *("CreationTimeAfter", "CreationTimeBefore", "MaxResults", "NameContains", "NextToken", "SortBy"),
    "SortOrder",
)
_GROUP: Rows = {"ModelPackageGroupName": Honored()}
_PACKAGE: Rows = {"ModelPackageName": Honored("name or ARN; a version as `GROUP/VERSION` or by its ARN")}

OPERATIONS: Mapping[str, Rows] = {
    "CreateModelPackageGroup": {
        **_GROUP,
        "ModelPackageGroupDescription": Honored(),
        **TAGS,
        "ManagedConfiguration": Refused("archives stay where ModelDataUrl says; leave it out"),
    },
    "DescribeModelPackageGroup": _GROUP,
    "ListModelPackageGroups": {
        **_LIST,
        "CrossAccountFilterOption": Honored("there is one account: CrossAccount lists nothing"),
    },
    "DeleteModelPackageGroup": {"ModelPackageGroupName": Honored("a group with packages is kept")},
    "CreateModelPackage": _CREATE,
    "DescribeModelPackage": {
        **_PACKAGE,
        "IncludedData": Recorded("everything is described"),
    },
    "BatchDescribeModelPackage": {"ModelPackageArnList": Honored()},
    "ListModelPackages": {
        **_LIST,
        "ModelApprovalStatus": Honored(),
        "ModelPackageGroupName": Honored("lists the versions of the group"),
        "ModelPackageType": Honored("Unversioned if it is not given"),
    },
    "UpdateModelPackage": _UPDATE,
    "DeleteModelPackage": _PACKAGE,
}
