"""Experiments: components with their parameters and metrics, and their curves."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tidemill.testing import Service


@pytest.fixture(scope="module")
def experiment(jobs: Any, service: Service, hostile: str) -> str:
    """An experiment of two components, which have put ten values of a metric."""
    client = jobs.sagemaker
    client.create_experiment(ExperimentName="page-tides")
    client.create_trial(TrialName="page-trial", ExperimentName="page-tides")
    metrics = service.boto3_session().client("sagemaker-metrics")
    now = datetime.now(UTC)
    for name, rate in (("page-low", 0.25), ("page-high", 0.5)):
        client.create_trial_component(
            TrialComponentName=name,
            Parameters={"rate": {"NumberValue": rate}, "note": {"StringValue": hostile.replace("\u202e", "")}},
            Status={"PrimaryStatus": "Completed"},
        )
        client.associate_trial_component(TrialComponentName=name, TrialName="page-trial")
        values = [
            {"MetricName": "error", "Timestamp": now, "Step": step, "Value": round(1 - rate * step / 10, 4)}
            for step in range(10)
        ]
        metrics.batch_put_metrics(TrialComponentName=name, MetricData=values)
    return "page-tides"


def test_components_show_parameters_metrics_and_curves(
    page_of: Callable[..., Page], experiment: str, hostile: str, axe: Callable[[Page], None]
) -> None:
    page = page_of("experiments")
    page.get_by_role("region", name="Experiments").get_by_role("link", name=experiment).click()
    table = page.get_by_role("table", name="Components")
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table.get_by_role("row", name="page-low")).to_contain_text("0.775")
    expect(table).to_contain_text(hostile.replace("\u202e", "")[:40])
    table.get_by_role("button", name="rate").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("page-high")
    cursor = page.get_by_role("figure", name="error").get_by_role("slider")
    cursor.press("End")
    expect(cursor).to_have_attribute("aria-valuetext", "step 9: page-high 0.55, page-low 0.775")
    axe(page)
    table.get_by_role("checkbox", name="Select page-low").check()
    page.get_by_text("Those of 1 selected components.").wait_for()
    cursor.press("End")
    expect(cursor).to_have_attribute("aria-valuetext", "step 9: page-low 0.775")
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")
    assert page.title() != "owned"
