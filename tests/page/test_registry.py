"""The registry of models: a version is approved, its metrics are read, and it is deployed."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

BUCKET = "sagemaker-us-west-2-000000000000"


@pytest.fixture(scope="session")
def archive(jobs: Any, finished: tuple[str, str]) -> str:
    """The address of the archive of a finished training."""
    return str(jobs.describe(finished[0])["ModelArtifacts"]["S3ModelArtifacts"])


@pytest.fixture(scope="session")
def group(jobs: Any, archive: str, hostile: str) -> str:
    """A group with two versions, of which the second one has metrics and properties."""
    client = jobs.sagemaker
    allowed = hostile.replace("\u202e", "")
    client.create_model_package_group(ModelPackageGroupName="page-digits", ModelPackageGroupDescription=allowed)
    report = {"classification": {"accuracy": {"value": 0.97}, hostile: [1, 2]}}
    jobs.s3.put_object(Bucket=BUCKET, Key="page/quality.json", Body=json.dumps(report).encode())
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": archive}
    specification = {
        "Containers": [container],
        "SupportedContentTypes": ["application/json"],
        "SupportedResponseMIMETypes": ["application/json"],
    }
    statistics = {"ContentType": "application/json", "S3Uri": f"s3://{BUCKET}/page/quality.json"}
    client.create_model_package(ModelPackageGroupName="page-digits", InferenceSpecification=specification)
    arn = client.create_model_package(
        ModelPackageGroupName="page-digits",
        ModelPackageDescription="the second",
        InferenceSpecification=specification,
        ModelMetrics={"ModelQuality": {"Statistics": statistics}},
        CustomerMetadataProperties={"team": "digits"},
    )["ModelPackageArn"]
    data, model = (
        client.create_artifact(ArtifactName=name, Source={"SourceUri": uri}, ArtifactType=kind)["ArtifactArn"]
        for name, uri, kind in (("page-data", f"s3://{BUCKET}/page/data", "DataSet"), ("page-model", arn, "Model"))
    )
    client.add_association(SourceArn=data, DestinationArn=model, AssociationType="ContributedTo")
    return "page-digits"


def test_a_version_is_found_approved_and_its_data_downloaded(
    page_of: Callable[..., Page],
    group: str,
    jobs: Any,
    finished: tuple[str, str],
    hostile: str,
    axe: Callable[[Page], None],
) -> None:
    seen = hostile.replace("\u202e", "⟨U+202E⟩")
    page = page_of("registry")
    groups = page.get_by_role("region", name="Groups")
    expect(groups).to_contain_text(hostile.replace("\u202e", ""))
    axe(page)
    groups.get_by_role("link", name=group).click()
    versions = page.get_by_role("region", name="Versions").get_by_role("row")
    expect(versions).to_have_count(3)
    expect(versions.nth(1)).to_contain_text("the second")
    page.get_by_role("link", name="Version 2").click()
    metrics = page.get_by_role("region", name="Values of ModelQuality: Statistics")
    expect(metrics.get_by_role("row", name="classification.accuracy.value")).to_contain_text("0.97")
    expect(metrics).to_contain_text(f"classification.{seen}[0]")
    lineage = page.get_by_role("region", name="Lineage")
    expect(lineage.get_by_role("row", name="trained by").get_by_role("link")).to_have_attribute(
        "href", f"/_tidemill/jobs/training/{finished[0]}"
    )
    expect(lineage.get_by_role("row", name="ContributedTo")).to_contain_text("page-data")
    axe(page)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == "model.tar.gz"
    page.get_by_label("Approval").select_option("Approved")
    page.get_by_label("Comment").fill("looks good")
    page.get_by_label("Comment").press("Enter")
    expect(page.locator(".facts .status")).to_have_text("Approved")
    described = jobs.sagemaker.describe_model_package(ModelPackageName=f"{group}/2")
    assert (described["ModelApprovalStatus"], described["ApprovalDescription"]) == ("Approved", "looks good")
    assert page.title() != "owned"


def test_an_approved_version_is_deployed_and_nothing_is_left_of_what_was_refused(
    page_of: Callable[..., Page], group: str, jobs: Any
) -> None:
    client = jobs.sagemaker
    arn = client.describe_model_package(ModelPackageName=f"{group}/1")["ModelPackageArn"]
    client.update_model_package(ModelPackageArn=arn, ModelApprovalStatus="Approved")
    role = "arn:aws:iam::000000000000:role/SageMakerRole"
    client.create_model(ModelName="page-other", ExecutionRoleArn=role, Containers=[{"ModelPackageName": arn}])
    variant = {"VariantName": "v", "ModelName": "page-other", "InstanceType": "local", "InitialInstanceCount": 1}
    client.create_endpoint_config(EndpointConfigName="page-taken", ProductionVariants=[variant])
    page = page_of(f"registry/{group}/1", expected=("400",))
    page.get_by_text("Deploy", exact=True).first.click()
    page.get_by_label("Endpoint").fill("page-taken")
    page.get_by_role("button", name="Deploy").click()
    page.get_by_role("alert").get_by_text("page-taken").wait_for()
    assert client.list_models(NameContains="page-taken")["Models"] == []
    page.get_by_label("Endpoint").fill("page-deployed")
    page.get_by_role("button", name="Deploy").click()
    expect(page).to_have_url(re.compile("/_tidemill/endpoints/page-deployed$"))
    model = client.describe_model(ModelName="page-deployed")
    assert [container["ModelPackageName"] for container in model["Containers"]] == [arn]
    client.delete_endpoint(EndpointName="page-deployed")
