"""Model packages, their groups and versions by boto3, and models created from them."""

from datetime import UTC, datetime
from typing import Any

import pytest

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
CALLER = "arn:aws:sts::000000000000:assumed-role/SageMakerRole/user"
ARN = "arn:aws:sagemaker:us-west-2:000000000000"
CREATED = datetime.fromtimestamp(1_700_000_000, tz=UTC)
CONTAINER = {
    "Image": "tensorflow-inference:2.21.0-cpu",
    "ModelDataUrl": "s3://data/model.tar.gz",
    "Environment": {"A": "package", "B": "package"},
}
SPECIFICATION = {
    "Containers": [CONTAINER],
    "SupportedContentTypes": ["application/json"],
    "SupportedResponseMIMETypes": ["application/json"],
}


@pytest.fixture
def group(sagemaker: Any) -> str:
    sagemaker.create_model_package_group(ModelPackageGroupName="digits", ModelPackageGroupDescription="of digits")
    return "digits"


def version(sagemaker: Any, **members: Any) -> str:
    """Return the ARN of a new version of the group ``digits``."""
    given = {"ModelPackageGroupName": "digits", "InferenceSpecification": SPECIFICATION, **members}
    return sagemaker.create_model_package(**given)["ModelPackageArn"]


def shown(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reply.items() if name != "ResponseMetadata"}


def names(reply: dict[str, Any]) -> list[str]:
    found = reply["ModelPackageSummaryList"]
    return [each["ModelPackageArn"].partition("model-package/")[2] for each in found]


def test_a_group_is_described_and_listed_until_it_is_deleted(sagemaker, group, refusal):
    arn = f"{ARN}:model-package-group/digits"
    creator = {"IamIdentity": {"Arn": CALLER, "PrincipalId": "user"}}
    described = {
        "ModelPackageGroupName": "digits",
        "ModelPackageGroupArn": arn,
        "ModelPackageGroupDescription": "of digits",
        "CreationTime": CREATED,
        "ModelPackageGroupStatus": "Completed",
    }
    for name in ("digits", arn):
        reply = sagemaker.describe_model_package_group(ModelPackageGroupName=name)
        assert shown(reply) == {**described, "CreatedBy": creator}
    assert sagemaker.list_model_package_groups(NameContains="igit")["ModelPackageGroupSummaryList"] == [described]
    assert sagemaker.list_model_package_groups(NameContains="other")["ModelPackageGroupSummaryList"] == []
    elsewhere = sagemaker.list_model_package_groups(CrossAccountFilterOption="CrossAccount")
    assert elsewhere["ModelPackageGroupSummaryList"] == []
    status, code, message = refusal(sagemaker.create_model_package_group, ModelPackageGroupName="digits")
    assert (status, code) == (400, "ValidationException") and "already exists" in message
    sagemaker.delete_model_package_group(ModelPackageGroupName=arn)
    _, code, message = refusal(sagemaker.describe_model_package_group, ModelPackageGroupName="digits")
    assert (code, message) == ("ValidationException", f"ModelPackageGroup {arn} does not exist.")


def test_versions_are_numbered_once_and_keep_their_group(sagemaker, group, refusal):
    assert version(sagemaker) == f"{ARN}:model-package/digits/1"
    assert version(sagemaker) == f"{ARN}:model-package/digits/2"
    sagemaker.delete_model_package(ModelPackageName=f"{ARN}:model-package/digits/2")
    arn = version(sagemaker, ModelPackageGroupName=f"{ARN}:model-package-group/digits")
    assert arn == f"{ARN}:model-package/digits/3"
    _, code, message = refusal(sagemaker.describe_model_package, ModelPackageName="digits/2")
    assert (code, message) == ("ValidationException", f"ModelPackage {ARN}:model-package/digits/2 does not exist.")
    status, code, message = refusal(sagemaker.delete_model_package_group, ModelPackageGroupName="digits")
    assert (status, code) == (400, "ConflictException") and "still contains" in message
    for number in (1, 3):
        sagemaker.delete_model_package(ModelPackageName=f"digits/{number}")
    sagemaker.delete_model_package_group(ModelPackageGroupName="digits")
    _, _, message = refusal(version, sagemaker=sagemaker)
    assert message == f"ModelPackageGroup {ARN}:model-package-group/digits does not exist."


def test_a_version_is_described_as_it_was_created_and_updated(sagemaker, stage, group):
    members = {
        "ModelPackageDescription": "the first",
        "ModelMetrics": {
            "ModelQuality": {"Statistics": {"ContentType": "application/json", "S3Uri": "s3://data/e.json"}}
        },
        "MetadataProperties": {"GeneratedBy": "a test"},
        "CustomerMetadataProperties": {"kept": "1", "dropped": "2"},
        "Domain": "COMPUTER_VISION",
    }
    arn = version(sagemaker, **members)
    described = {
        **members,
        "ModelPackageName": "digits/1",
        "ModelPackageGroupName": "digits",
        "ModelPackageVersion": 1,
        "ModelPackageArn": arn,
        "ModelApprovalStatus": "PendingManualApproval",
        "ModelPackageStatus": "Completed",
        "ModelPackageStatusDetails": {"ValidationStatuses": [], "ImageScanStatuses": []},
        "InferenceSpecification": SPECIFICATION,
        "CreationTime": CREATED,
        "CreatedBy": {"IamIdentity": {"Arn": CALLER, "PrincipalId": "user"}},
    }
    assert shown(sagemaker.describe_model_package(ModelPackageName=arn)) == described
    stage.clock.ms += 5000
    sagemaker.update_model_package(
        ModelPackageArn=arn,
        ModelApprovalStatus="Approved",
        ApprovalDescription="good",
        CustomerMetadataProperties={"added": "3"},
        CustomerMetadataPropertiesToRemove=["dropped", "unknown"],
        AdditionalInferenceSpecificationsToAdd=[{"Name": "gpu", "Containers": [CONTAINER]}],
    )
    updated = shown(sagemaker.describe_model_package(ModelPackageName=arn))
    assert updated["LastModifiedTime"] == datetime.fromtimestamp(1_700_000_005, tz=UTC)
    assert updated["LastModifiedBy"] == described["CreatedBy"]
    assert updated["ApprovalDescription"] == "good" and updated["ModelApprovalStatus"] == "Approved"
    assert updated["CustomerMetadataProperties"] == {"kept": "1", "added": "3"}
    assert updated["AdditionalInferenceSpecifications"] == [{"Name": "gpu", "Containers": [CONTAINER]}]
    assert {name: updated[name] for name in ("ModelPackageDescription", "Domain", "CreationTime")} == {
        name: described[name] for name in ("ModelPackageDescription", "Domain", "CreationTime")
    }


def test_packages_are_listed_by_group_type_and_approval(sagemaker, stage, group):
    sagemaker.create_model_package_group(ModelPackageGroupName="digits-2")
    for approval in ("Approved", "Rejected", "Approved"):
        stage.clock.ms += 1000
        version(sagemaker, ModelApprovalStatus=approval)
    version(sagemaker, ModelPackageGroupName="digits-2", ModelPackageDescription="other")
    sagemaker.create_model_package(ModelPackageName="digits", InferenceSpecification=SPECIFICATION)
    listed = sagemaker.list_model_packages
    assert names(listed(ModelPackageGroupName="digits")) == ["digits/3", "digits/2", "digits/1"]
    approved = listed(ModelPackageGroupName="digits", ModelApprovalStatus="Approved", SortOrder="Ascending")
    assert names(approved) == ["digits/1", "digits/3"]
    assert names(listed()) == ["digits"]
    assert names(listed(ModelPackageType="Versioned", SortBy="Name")) == [
        "digits/3",
        "digits/2",
        "digits/1",
        "digits-2/1",
    ]
    assert len(names(listed(ModelPackageType="Both"))) == 5
    first = listed(ModelPackageGroupName="digits", MaxResults=2)
    rest = listed(ModelPackageGroupName="digits", MaxResults=2, NextToken=first["NextToken"])
    assert [names(first), names(rest)] == [["digits/3", "digits/2"], ["digits/1"]]
    (other,) = listed(ModelPackageGroupName="digits-2")["ModelPackageSummaryList"]
    assert other == {
        "ModelPackageGroupName": "digits-2",
        "ModelPackageVersion": 1,
        "ModelPackageArn": f"{ARN}:model-package/digits-2/1",
        "ModelPackageDescription": "other",
        "CreationTime": datetime.fromtimestamp(1_700_000_003, tz=UTC),
        "ModelPackageStatus": "Completed",
        "ModelApprovalStatus": "PendingManualApproval",
    }
    described = sagemaker.describe_model_package(ModelPackageName=other["ModelPackageArn"])
    same = sagemaker.describe_model_package(ModelPackageName=described["ModelPackageName"])
    assert same["ModelPackageArn"] == other["ModelPackageArn"]
    (own,) = listed()["ModelPackageSummaryList"]
    assert own["ModelPackageName"] == "digits" and "ModelApprovalStatus" not in own


def test_several_packages_are_described_at_once_with_an_error_for_each_missing_one(sagemaker, group):
    arn, missing = version(sagemaker), f"{ARN}:model-package/digits/9"
    reply = sagemaker.batch_describe_model_package(ModelPackageArnList=[arn, missing])
    assert reply["ModelPackageSummaries"][arn]["InferenceSpecification"] == SPECIFICATION
    assert reply["ModelPackageSummaries"][arn]["ModelPackageVersion"] == 1
    assert reply["BatchDescribeModelPackageErrorMap"] == {
        missing: {"ErrorCode": "ValidationException", "ErrorResponse": f"ModelPackage {missing} does not exist."}
    }


def test_a_repeated_request_registers_one_version(sagemaker, group):
    assert version(sagemaker, ClientToken="t1") == version(sagemaker, ClientToken="t1")
    other = version(sagemaker, ClientToken="t2")
    assert other == f"{ARN}:model-package/digits/2"
    sagemaker.delete_model_package(ModelPackageName=other)
    assert version(sagemaker, ClientToken="t2") == f"{ARN}:model-package/digits/3"


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({}, "exactly one is allowed"),
        ({"ModelPackageName": "a", "ModelPackageGroupName": "digits"}, "exactly one is allowed"),
        ({"ModelPackageName": "a", "InferenceSpecification": {"Containers": [{"ModelDataUrl": "s3://d/m"}]}}, "image"),
        (
            {
                "ModelPackageName": "a",
                "InferenceSpecification": {"Containers": [{**CONTAINER, "ModelDataUrl": "https://d/m"}]},
            },
            "modelDataUrl",
        ),
        (
            {
                "ModelPackageName": "a",
                "AdditionalInferenceSpecifications": [{"Name": "x", "Containers": [CONTAINER]}] * 2,
            },
            "another specification",
        ),
    ],
)
def test_a_package_that_cannot_be_used_is_refused_and_not_kept(sagemaker, group, refusal, members, named):
    status, code, message = refusal(sagemaker.create_model_package, **members)
    assert (status, code) == (400, "ValidationException") and named in message
    assert names(sagemaker.list_model_packages(ModelPackageType="Both")) == []


def test_a_model_of_a_package_is_served_by_what_the_package_says(sagemaker, stage, group):
    arn = version(sagemaker, ModelApprovalStatus="Approved")
    given = {"ModelPackageName": arn, "Environment": {"B": "model"}}
    sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE, Containers=[given])
    sagemaker.delete_model_package(ModelPackageName=arn)
    assert sagemaker.describe_model(ModelName="digits")["Containers"] == [given]
    variant = {"VariantName": "v", "ModelName": "digits", "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="digits", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
    served = {**CONTAINER, **given, "Environment": {"A": "package", "B": "model"}}
    deployed = stage.hosting.endpoint("digits").starting.find("v")
    assert deployed.container == served
    sagemaker.create_transform_job(
        TransformJobName="digits",
        ModelName="digits",
        TransformInput={"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/in"}}},
        TransformOutput={"S3OutputPath": "s3://data/out"},
        TransformResources={"InstanceType": "ml.c5.large", "InstanceCount": 1},
    )
    assert stage.transform.get("digits").container == served


def test_only_approved_versions_and_known_specifications_become_models(sagemaker, group, refusal):
    pending, rejected = version(sagemaker), version(sagemaker, ModelApprovalStatus="Rejected")
    approved = version(sagemaker, ModelApprovalStatus="Approved")

    def refused(**container: Any) -> str:
        _, code, message = refusal(
            sagemaker.create_model, ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        assert code == "ValidationException"
        return message

    assert "PendingManualApproval; only Approved" in refused(ModelPackageName=pending)
    assert "Rejected; only Approved" in refused(ModelPackageName=rejected)
    assert "does not exist" in refused(ModelPackageName="other")
    assert "describes 0 containers" in refused(ModelPackageName=approved, InferenceSpecificationName="other")
    assert "either a ModelPackageName or" in refused(ModelPackageName=approved, Image=CONTAINER["Image"])
    sklearn = {"Containers": [{"Image": "sagemaker-scikit-learn:1.2-1", "ModelDataUrl": "s3://data/model.tar.gz"}]}
    foreign = version(sagemaker, ModelApprovalStatus="Approved", InferenceSpecification=sklearn)
    assert "sagemaker-scikit-learn" in refused(ModelPackageName=foreign)
    extra = [{"Name": "extra", "Containers": [{**CONTAINER, "ModelDataUrl": "s3://data/extra.tar.gz"}]}]
    sagemaker.update_model_package(ModelPackageArn=approved, AdditionalInferenceSpecificationsToAdd=extra)
    container = {"ModelPackageName": approved, "InferenceSpecificationName": "extra"}
    sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=container)


def test_packages_and_groups_have_tags_until_they_are_deleted(sagemaker, group):
    tags = [{"Key": "team", "Value": "a"}]
    versioned = version(sagemaker, Tags=tags)
    own = sagemaker.create_model_package(ModelPackageName="digits", InferenceSpecification=SPECIFICATION, Tags=tags)[
        "ModelPackageArn"
    ]
    of_group = f"{ARN}:model-package-group/digits"
    sagemaker.add_tags(ResourceArn=of_group, Tags=tags)
    for arn in (versioned, own, of_group):
        assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == tags
    sagemaker.delete_tags(ResourceArn=versioned, TagKeys=["team"])
    assert sagemaker.list_tags(ResourceArn=versioned)["Tags"] == []
    sagemaker.delete_model_package(ModelPackageName=own)
    sagemaker.create_model_package(ModelPackageName="digits", InferenceSpecification=SPECIFICATION)
    assert sagemaker.list_tags(ResourceArn=own)["Tags"] == []
