"""Pipelines as graphs: an execution that failed, one that is started, stopped and tried again."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

HOSTILE = "</script><b>bad</b>\u202e"


@pytest.fixture(scope="session")
def pipeline(jobs: Any) -> str:
    """The ARN of the first execution of a pipeline, whose condition was false, so that its Fail step failed."""
    train, wait = (
        {member: value for member, value in jobs.request(script).items() if member != "TrainingJobName"}
        for script in ("print('trained')", "import time\nprint('waits', flush=True)\ntime.sleep(600)\n")
    )
    condition = {"Type": "GreaterThan", "LeftValue": {"Get": "Parameters.quality"}, "RightValue": 0.6}
    steps = [
        {
            "Name": "train",
            "Type": "Training",
            "Arguments": train,
            "CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"},
        },
        {
            "Name": "good",
            "Type": "Condition",
            "DependsOn": ["train"],
            "Arguments": {
                "Conditions": [condition],
                "IfSteps": [{"Name": "wait", "Type": "Training", "DisplayName": HOSTILE, "Arguments": wait}],
                "ElseSteps": [{"Name": "refuse", "Type": "Fail", "Arguments": {"ErrorMessage": f"Too bad {HOSTILE}"}}],
            },
        },
    ]
    definition = {
        "Version": "2020-12-01",
        "Parameters": [{"Name": "quality", "Type": "Float", "DefaultValue": 0.5}],
        "Steps": steps,
    }
    client = jobs.sagemaker
    client.create_pipeline(
        PipelineName="page-pipeline",
        PipelineDefinition=json.dumps(definition),
        PipelineDescription=HOSTILE,
        RoleArn="arn:aws:iam::000000000000:role/SageMakerRole",
        ClientRequestToken="t" * 32,
    )
    started = client.start_pipeline_execution(PipelineName="page-pipeline", ClientRequestToken="s" * 32)
    arn = str(started["PipelineExecutionArn"])

    def failed() -> bool:
        status = client.describe_pipeline_execution(PipelineExecutionArn=arn)["PipelineExecutionStatus"]
        return status == "Failed"

    jobs.wait_until(failed, lambda: client.list_pipeline_execution_steps(PipelineExecutionArn=arn))
    return arn


def test_an_execution_is_a_graph_whose_steps_lead_to_their_jobs(
    page_of: Callable[..., Page], pipeline: str, axe: Callable[[Page], None]
) -> None:
    page = page_of(f"pipelines/page-pipeline/{pipeline.rpartition('/')[2]}")
    graph = page.get_by_role("group", name="Steps")
    states = {
        "train": "Training: Succeeded",
        "good": "Condition: Succeeded",
        "refuse": "Fail: Failed",
        HOSTILE.replace("\u202e", "⟨U+202E⟩"): "Training: not executed",
    }
    for title, state in states.items():
        expect(graph.get_by_role("button", name=f"{title} {state}")).to_be_visible()
    expect(graph.locator(".edge text")).to_have_text(["True", "False"])
    graph.get_by_role("button", name="refuse").press("Enter")
    step = page.get_by_role("region", name="Step refuse")
    expect(step).to_contain_text(f"Too bad {HOSTILE}".replace("\u202e", "⟨U+202E⟩"))
    assert page.url.endswith("?step=refuse")
    graph.get_by_role("button", name="good").click()
    expect(page.get_by_role("region", name="Step good")).to_contain_text("False")
    graph.get_by_role("button", name="train Training").click()
    link = page.get_by_role("region", name="Step train").get_by_role("link")
    assert re.search(r"/_tidemill/jobs/training/[a-z0-9-]+$", link.get_attribute("href") or "", re.IGNORECASE)
    axe(page)
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")


def test_a_pipeline_is_started_with_parameters_stopped_and_tried_again(
    page_of: Callable[..., Page], pipeline: str, jobs: Any, axe: Callable[[Page], None]
) -> None:
    page = page_of("pipelines", expected=("400",))
    page.get_by_role("region", name="Pipelines").get_by_role("link", name="page-pipeline").click()
    expect(page.get_by_role("region", name="Executions").get_by_text("Failed", exact=True)).to_be_visible()
    axe(page)
    page.get_by_text("Start an execution").click()
    quality = page.get_by_label("quality")
    expect(quality).to_have_value("0.5")
    quality.fill("much")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("alert").get_by_text("'much'").wait_for()
    quality.fill("0.9")
    page.get_by_role("button", name="Start", exact=True).click()
    waiting = page.get_by_role("group", name="Steps").get_by_role("button", name="Training: Executing")
    expect(waiting).to_be_visible()
    page.get_by_role("group", name="Steps").get_by_role("button", name="train Training").click()
    reused = page.get_by_role("region", name="Step train").get_by_role("link", name="execution/")
    assert (reused.get_attribute("href") or "").endswith(pipeline.rpartition("/")[2]), "the result of the first one"
    for question, action, status in (("Stop", "Stop", "Stopped"), ("Run again", "Retry", "Executing")):
        page.get_by_role("button", name=f"{action}…").click()
        page.get_by_role("dialog", name=question).get_by_role("button", name=action).click()
        expect(page.locator(".facts .status")).to_have_text(status)
    arn = jobs.sagemaker.list_pipeline_executions(PipelineName="page-pipeline")["PipelineExecutionSummaries"][0][
        "PipelineExecutionArn"
    ]
    jobs.sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="e" * 32)
    expect(page.locator(".facts .status")).to_have_text("Stopped")
