"""The views of endpoints: what serves, requests over time, the form that asks, the log, changes and the end."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
NAME = "halves"


@pytest.fixture(scope="module")
def endpoint(begun_endpoint: str, jobs: Any) -> Iterator[str]:
    """Yield the name of an endpoint in service. A second configuration is asynchronous."""
    sagemaker = jobs.sagemaker
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName=begun_endpoint, WaiterConfig={"Delay": 1, "MaxAttempts": 300}
    )
    yield begun_endpoint
    if sagemaker.list_endpoints(NameContains=begun_endpoint)["Endpoints"]:
        sagemaker.delete_endpoint(EndpointName=begun_endpoint)


def invocations(service: Service) -> float:
    """Return how many requests the endpoint got, as CloudWatch counts them."""
    dimensions = [{"Name": "EndpointName", "Value": NAME}, {"Name": "VariantName", "Value": "A"}]
    points = service.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="Invocations",
        Dimensions=dimensions,
        StartTime=time.time() - 3600,
        EndTime=time.time() + 60,
        Period=3600,
        Statistics=["Sum"],
    )["Datapoints"]
    return sum(point["Sum"] for point in points)


def test_an_endpoint_is_asked_by_the_form_made_from_its_signature(
    page_of: Callable[..., Page], endpoint: str, service: Service, axe: Callable[[Page], None]
) -> None:
    page = page_of("endpoints")
    page.get_by_role("link", name=endpoint).click()
    expect(page.get_by_text("1 of 1 ready")).to_be_visible()
    field = page.get_by_label("x (float, any)")
    expect(field).to_have_value("0")
    assert invocations(service) == 0, "the signature is known without a run of the model"
    field.fill("3")
    page.get_by_role("button", name="Send").click()
    answer = page.get_by_role("region", name="Answer")
    expect(answer.get_by_text("3.5")).to_be_visible()
    expect(answer.get_by_text("from A")).to_be_visible()
    field.fill("many")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").get_by_text("x is no JSON")).to_be_visible()
    field.fill("1")
    page.get_by_role("button", name="Edit the body").click()
    body = page.get_by_label("Body")
    assert json.loads(body.input_value()) == {"instances": [{"x": 1}]}
    body.fill('{"instances": [1, 2]}')
    page.get_by_role("button", name="Send").click()
    expect(answer.get_by_text("2.5")).to_be_visible()
    assert invocations(service) == 2
    page.get_by_text("Models of A (1)").click()
    expect(page.get_by_text("Versions: 1 (available)")).to_be_visible()
    axe(page)


def test_requests_are_curves_and_errors_are_told(
    page_of: Callable[..., Page], endpoint: str, axe: Callable[[Page], None]
) -> None:
    page = page_of(f"endpoints/{endpoint}?window=60", width=360, height=740, expected=("424",))
    page.get_by_role("button", name="Edit the body").click()
    hostile = "<img src=x onerror=\"document.body.dataset.hacked='1'\">"
    page.get_by_label("Body").fill(json.dumps({"instances": [hostile]}))
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").get_by_text("ModelError")).to_be_visible()
    assert page.evaluate("document.body.dataset.hacked === undefined")
    for title in ("Requests per second", "Latency in ms", "Errors per second"):
        expect(page.get_by_text(title, exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="p99")).to_be_visible()
    page.get_by_role("figure", name=re.compile("Memory")).locator("canvas").wait_for()
    page.get_by_role("button", name="Show the log").click()
    expect(page.get_by_role("region", name="Lines of the log").get_by_text("server.ready")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "no sideways scrolling"
    axe(page)


def test_an_endpoint_is_resized_updated_asked_for_later_and_deleted(
    page_of: Callable[..., Page], endpoint: str, jobs: Any, axe: Callable[[Page], None]
) -> None:
    sagemaker = jobs.sagemaker
    page = page_of(f"endpoints/{endpoint}")
    page.get_by_label("Weight").fill("0.5")
    page.get_by_role("button", name="Change weights and instances").click()
    jobs.wait_until(
        lambda: sagemaker.describe_endpoint(EndpointName=endpoint)["ProductionVariants"][0]["CurrentWeight"] == 0.5,
        "the weight has changed",
    )
    expect(page.get_by_role("cell", name="0.5")).to_be_visible()
    page.get_by_label("Another configuration").select_option(f"{NAME}-2")
    axe(page)
    page.get_by_role("button", name="Update…").click()
    page.get_by_role("dialog", name="Replace the servers").get_by_role("button", name="Update").click()
    expect(page.get_by_text("Answers go to")).to_be_visible(timeout=300_000)
    page.get_by_label("x (float, any)").fill("3")
    page.get_by_role("button", name="Send").click()
    answer = page.get_by_role("region", name="Answer")
    expect(answer.get_by_text("3.5")).to_be_visible()
    expect(answer.get_by_role("link", name=f"s3://{BUCKET}/halves/answers/")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog", name="Delete the endpoint").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Endpoints")).to_be_visible()
    jobs.wait_until(lambda: not sagemaker.list_endpoints(NameContains=endpoint)["Endpoints"], "the endpoint is gone")
