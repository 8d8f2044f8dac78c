"""A tuning job: its plots, its best training, and what one selects."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--units", type=int)
parser.add_argument("--optimizer")
given = parser.parse_known_args()[0]
print(f"score={given.units + given.rate:.4f}")
"""


def definition(jobs: Any, script: str, *, name: str) -> dict[str, Any]:
    """Return the TrainingJobDefinition of a script whose objective is ``score``."""
    training = jobs.request(script, name=name)
    del training["TrainingJobName"]
    training["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "score", "Regex": "score=([0-9.]+)"}]
    training["StaticHyperParameters"] = training.pop("HyperParameters")
    return training


@pytest.fixture(scope="session")
def tune(jobs: Any) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a tuning job to its end and returns its description."""

    def run(name: str, *, trainings: int, **members: Any) -> dict[str, Any]:
        ranges = {
            "ContinuousParameterRanges": [
                {"Name": "rate", "MinValue": "0.0001", "MaxValue": "0.5", "ScalingType": "Logarithmic"}
            ],
            "IntegerParameterRanges": [{"Name": "units", "MinValue": "1", "MaxValue": "9"}],
            "CategoricalParameterRanges": [{"Name": "optimizer", "Values": ["adam", "<b>sgd</b>\u202e"]}],
        }
        jobs.sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig={
                "Strategy": "Random",
                "RandomSeed": 7,
                "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "score"},
                "ParameterRanges": ranges,
                "ResourceLimits": {"MaxNumberOfTrainingJobs": trainings, "MaxParallelTrainingJobs": 2},
            },
            TrainingJobDefinition=definition(jobs, SCRIPT, name=name),
            **members,
        )

        def ended() -> dict[str, Any] | None:
            job = jobs.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
            return job if job["HyperParameterTuningJobStatus"] not in ("InProgress", "Stopping") else None

        return jobs.wait_until(ended, lambda: f"end of {name}")

    return run


@pytest.fixture(scope="session")
def tuned(tune: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The description of a tuning job of four trainings."""
    return tune("page-tuning", trainings=4)


def test_a_tuning_job_shows_its_trainings_as_plots_and_as_a_table(
    page_of: Callable[..., Page], tuned: dict[str, Any], jobs: Any, axe: Callable[[Page], None]
) -> None:
    best = tuned["BestTrainingJob"]
    value = best["FinalHyperParameterTuningJobObjectiveMetric"]["Value"]
    page = page_of("tuning/page-tuning")
    section = page.get_by_role("region", name="Best training", exact=True)
    expect(section).to_contain_text(best["TrainingJobName"])
    expect(section).to_contain_text(f"score {value:g}")
    cursor = page.get_by_role("slider", name=re.compile("score"))
    cursor.press("End")
    expect(cursor).to_have_attribute("aria-valuetext", re.compile(f"^step 4: best so far {value:g}, each training "))
    table = page.get_by_role("table", name="Trainings")
    expect(table.get_by_role("row")).to_have_count(5)
    table.get_by_role("button", name="score").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text(best["TrainingJobName"])
    expect(page.locator(".parallel .trial")).to_have_count(4)
    expect(page.locator(".scatter circle")).to_have_count(4)
    page.get_by_role("combobox", name="score by").select_option("optimizer")
    page.get_by_role("img", name="score by optimizer").get_by_text("<b>sgd</b>⟨U+202E⟩").first.wait_for()
    axe(page)
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360")


def test_trainings_are_selected_over_the_axes_and_by_fields(
    page_of: Callable[..., Page], tuned: dict[str, Any], jobs: Any
) -> None:
    answer = jobs.sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(HyperParameterTuningJobName="page-tuning")
    units = [int(each["TunedHyperParameters"]["units"]) for each in answer["TrainingJobSummaries"]]
    assert min(units) < max(units)
    page = page_of("tuning/page-tuning", width=1000, height=900)
    page.get_by_text("Select trainings by their values").click()
    least = page.get_by_label("units: least")
    least.fill(str(max(units)))
    least.press("Enter")
    rows = page.get_by_role("table", name="Trainings").get_by_role("row")
    expect(rows).to_have_count(1 + units.count(max(units)))
    page.get_by_role("button", name="Select all").click()
    expect(rows).to_have_count(5)
    # The first axis is that of the integers: over its lower half only the small values are.
    grip = page.locator(".parallel .grip").first
    box = grip.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 - 1, steps=5)
    page.mouse.up()
    expect(page.get_by_label("units: most")).to_have_value(re.compile(r"^(4\.9|5)"))
    most = float(page.get_by_label("units: most").input_value())  # whether it is 5 depends on a pixel
    expect(rows).to_have_count(1 + sum(each <= most for each in units))
    grip.click()
    expect(rows).to_have_count(5)
    for row in (1, 2):
        rows.nth(row).get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Compare").wait_for()
    expect(page.get_by_role("columnheader", name="page-tuning-")).to_have_count(2)


def test_a_warm_start_leads_to_its_parents(
    page_of: Callable[..., Page], tuned: dict[str, Any], tune: Callable[..., dict[str, Any]]
) -> None:
    parents = [{"HyperParameterTuningJobName": "page-tuning"}]
    warm = {"ParentHyperParameterTuningJobs": parents, "WarmStartType": "IdenticalDataAndAlgorithm"}
    tune("page-warm", trainings=1, WarmStartConfig=warm)
    page = page_of("tuning/page-warm")
    page.get_by_role("link", name="page-tuning", exact=True).click()
    page.get_by_role("heading", name="page-tuning", exact=True).wait_for()


def test_a_tuning_job_is_stopped_after_a_question(page_of: Callable[..., Page], jobs: Any) -> None:
    script = "import time\nprint('waits', flush=True)\ntime.sleep(600)\n"
    jobs.sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="page-stopped",
        HyperParameterTuningJobConfig={
            "Strategy": "Random",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "score"},
            "ParameterRanges": {"IntegerParameterRanges": [{"Name": "units", "MinValue": "1", "MaxValue": "9"}]},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 2, "MaxParallelTrainingJobs": 1},
        },
        TrainingJobDefinition=definition(jobs, script, name="page-stopped"),
    )
    page = page_of("tuning/page-stopped")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog", name="Stop the tuning job").get_by_role("button", name="Stop").click()
    page.get_by_text("Stopped", exact=True).first.wait_for()
