"""Jobs in the page: watched, searched, stopped, run again and deleted, with hostile texts that change nothing."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tidemill.core.segments import SegmentWriter, stream_directory
from tidemill.testing import Service

expect.set_options(timeout=60_000)
GROUP = "/aws/sagemaker/TrainingJobs"
ROOT = Path(__file__).parents[2]
IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
HOSTILE = "<img src=x onerror=alert(1)>"
BIDI = "\u202egnp.exe"
METRICS = [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}, {"Name": HOSTILE, "Regex": "worst=([0-9.]+)"}]
LIVE = """
import time
print("the job runs", flush=True)
for epoch in range(5):
    print(f"epoch {epoch} loss: {1 / (epoch + 1):.3f} worst=7", flush=True)
for percent in range(0, 100, 10):
    print(f"\\r{percent}% of the bar", end="", flush=True)
    time.sleep(0.1)
time.sleep(600)
"""
FAILING = f"""
print("<script>alert(1)</script> {BIDI}")
def inner():
    raise ValueError("no such file: {HOSTILE}")
import os
os.makedirs(os.environ["SM_OUTPUT_DATA_DIR"] + "/compiler")
open(os.environ["SM_OUTPUT_DATA_DIR"] + "/compiler/report.txt", "w").write("train_step: 200 steps, plain")
inner()
"""
COLORED = b"\x1b[31mred\x1b[0m and \x1b[1;38;5;46mgreen\x1b[0m \x1b]0;title\x07end"


@pytest.fixture(scope="module")
def live(jobs: Any) -> Iterator[str]:
    """A job that runs until it is stopped."""
    name = jobs.create(
        LIVE,
        name="live-one",
        HyperParameters={"rate": "0.125", "text": json.dumps(HOSTILE)},
        AlgorithmSpecification={"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": METRICS},
        Tags=[{"Key": "team", "Value": "north"}],
    )
    yield name
    if jobs.describe(name)["TrainingJobStatus"] == "InProgress":
        jobs.sagemaker.stop_training_job(TrainingJobName=name)


@pytest.fixture(scope="module")
def failed(jobs: Any, service: Service) -> str:
    """A job that has failed, with a log of 30,000 lines, of which some are long, colored or hostile."""
    compiled = {"sagemaker_training_compiler_enabled": "true"}  # which a script without TensorFlow does not notice
    name = jobs.create(
        FAILING,
        name="failed-one",
        HyperParameters={"epochs": "3", "text": json.dumps("it's\n$HOME"), **compiled},
        Environment={"MODE": "a b"},
        AlgorithmSpecification={"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": METRICS[:1]},
        Tags=[{"Key": "team", "Value": "north east"}],
    )
    jobs.wait(name)
    [stream] = jobs.logs_client.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix=f"{name}/")["logStreams"]
    directory = stream_directory(Path(service.state_dir) / "logs", GROUP, stream["logStreamName"])
    with SegmentWriter(directory) as writer:
        writer.write_many([COLORED, b"\x00\x07 bell", b"x" * 200_000, b"a" * 60 + b"!"])
        writer.write_many(b"filler line %d" % number for number in range(30_000))
        writer.write(b"needle at the end")
    return name


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_a_job_appears_is_watched_and_is_stopped(
    page_of: Callable[..., Page], request: pytest.FixtureRequest, jobs: Any
) -> None:
    page = page_of("jobs")
    expect(page.get_by_role("status").first).to_contain_text("jobs")
    name = request.getfixturevalue("live")
    expect(row(page, name)).to_contain_text("Training")  # without a reload
    expect(row(page, name)).to_contain_text("loss=0.2")
    row(page, name).get_by_role("link").click()

    lines = page.get_by_role("region", name="Lines of the log")
    expect(lines).to_contain_text("the job runs")
    expect(lines).to_contain_text("90% of the bar")
    assert lines.inner_text().count("of the bar") == 1, "a bar is one line, in its last state"
    page.get_by_role("link", name="Metrics", exact=True).click()
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    expect(page.locator(".uplot").first).to_be_visible()
    page.get_by_role("link", name="Settings").click()
    expect(page.get_by_text(HOSTILE).first).to_be_visible()
    expect(page.get_by_text("north")).to_be_visible()

    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
    page.get_by_role("button", name="Stop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".facts .status")).to_have_text("Stopped")
    expect(page.locator(".phases")).to_contain_text("Stopping")
    assert jobs.describe(name)["TrainingJobStatus"] == "Stopped"


def test_a_failure_shows_the_frames_of_the_users_code_and_what_repeats_the_job(
    page_of: Callable[..., Page], axe: Callable[[Page], None], failed: str, service: Service, tmp_path: Path
) -> None:
    def repeat(command: str, directory: Path) -> dict[str, Any]:
        """Return the request that a command would send."""
        (directory / "train.py").write_text("pass")
        line = f"{command} --dry-run --state-dir {service.state_dir}"
        path = {**os.environ, "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "-c", line], cwd=directory, env=path, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    page = page_of(f"jobs/training/{failed}")
    failure = page.get_by_role("region", name="Failure")
    expect(failure).to_contain_text(f"ValueError: no such file: {HOSTILE}")
    expect(failure.get_by_role("listitem").last).to_contain_text("train.py, line 4, in inner")
    axe(page)
    for tab, text in (
        ("Settings", "epochs"),
        ("Artifacts", "output.tar.gz"),
        ("Request", "The request"),
        ("Run again with …", "Start the job"),
        ("Metrics", "no values"),
    ):
        page.get_by_role("navigation", name="Parts of the job").get_by_role("link", name=tab).click()
        page.get_by_text(text).first.wait_for()
        axe(page)
    page.get_by_role("link", name="Request").click()
    repeated = repeat(page.get_by_role("region", name="The command that repeats it").inner_text(), tmp_path)
    request = json.loads(page.get_by_role("region", name="The request").inner_text())
    assert (request["TrainingJobName"], request["HyperParameters"]["epochs"]) == (failed, "3")
    for member in ("AlgorithmSpecification", "Environment", "OutputDataConfig", "ResourceConfig", "StoppingCondition"):
        assert {**repeated[member], **request[member]} == repeated[member], member
    for name in ("epochs", "text", "sagemaker_program", "sagemaker_training_compiler_enabled"):
        assert repeated["HyperParameters"][name] == request["HyperParameters"][name]
    assert repeated["Tags"] == [{"Key": "team", "Value": "north east"}]
    code = page.get_by_role("region", name="The same with boto3").inner_text()
    compile(code, "boto3", "exec")
    assert "sagemaker.create_training_job(**{" in code
    page.get_by_role("link", name="Artifacts").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").first.click()
    assert download.value.suggested_filename == "output.tar.gz"
    expect(page.get_by_role("region", name="Text of the report")).to_have_text("train_step: 200 steps, plain")
    page.get_by_role("button", name="output/output.tar.gz").first.click()
    page.get_by_role("region", name="Members").get_by_role("button", name="report.txt").click()
    expect(page.get_by_role("region", name="Content")).to_contain_text("200 steps, plain")
    axe(page)


def test_a_log_of_any_text_is_shown_searched_and_linked(
    page_of: Callable[..., Page], axe: Callable[[Page], None], failed: str
) -> None:
    page = page_of(f"jobs/training/{failed}")
    lines = page.get_by_role("region", name="Lines of the log")
    expect(lines).to_contain_text("<script>alert(1)</script> ⟨U+202E⟩gnp.exe")
    expect(lines.locator(".ansi-1").get_by_text("red")).to_be_visible()
    expect(lines.locator(".ansi-2.ansi-bold").get_by_text("green")).to_be_visible()
    expect(lines).to_contain_text("␀␇ bell")
    assert "title" not in lines.inner_text()
    lines.get_by_role("button", name="… the whole line").click()
    expect(page.locator(".whole")).to_contain_text("190,000 more characters")
    page.get_by_role("button", name="Close").click()

    field, status = page.get_by_role("searchbox", name="Search the log"), page.locator(".log .toolbar [role=status]")
    field.fill("NEEDLE")
    expect(status).to_have_text("1 line")
    field.press("Enter")
    expect(page.locator(".line.marked")).to_contain_text("needle at the end")
    assert page.url.endswith(f"#L{page.locator('.line.marked a').inner_text()}")
    axe(page)
    page.get_by_role("button", name="Match upper and lower case").click()
    expect(status).to_have_text("0 lines")
    page.get_by_role("button", name="Regular expression").click()
    field.fill("^filler line 1234.$")
    expect(status).to_have_text("10 lines")
    field.press("Enter")
    expect(status).to_have_text("1 of 10 lines")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".line.marked")).to_contain_text("filler line 12341")

    page.goto(page.url)  # a link to the line
    page.reload()
    expect(page.locator(".line.marked")).to_contain_text("filler line 12341")
    lines.focus()
    page.keyboard.press("k")
    expect(page.locator(".line.marked")).to_contain_text("filler line 12340")
    page.keyboard.press("Enter")
    expect(page.locator(".whole")).to_contain_text("filler line 12340")


def test_an_expression_that_would_never_end_is_given_up(page_of: Callable[..., Page], failed: str) -> None:
    page = page_of(f"jobs/training/{failed}", expected=("400",))
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_role("searchbox", name="Search the log").fill("(a+)+$")
    expect(page.locator(".log .toolbar [role=status]")).to_contain_text("takes too long")
    page.get_by_role("searchbox", name="Search the log").fill("(")
    expect(page.get_by_role("alert")).to_contain_text("is not a regular expression")


def test_the_filters_order_and_columns_of_the_table_are_in_the_address(
    page_of: Callable[..., Page], axe: Callable[[Page], None], failed: str, live: str
) -> None:
    page = page_of("jobs")
    page.get_by_role("searchbox", name="Search names").fill("epochs=3")
    expect(row(page, live)).to_have_count(0)
    expect(row(page, failed)).to_have_count(1)
    page.get_by_role("searchbox", name="Search names").fill("-one")
    page.get_by_role("button", name="Failed").click()
    expect(row(page, live)).to_have_count(0)
    page.get_by_role("button", name="Failed").click()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="hyperparameter epochs").check()
    page.get_by_role("checkbox", name=f"metric {HOSTILE}").check()
    axe(page)
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("columnheader", name="epochs").get_by_role("button").click()
    assert "q=-one" in page.url and "sort=-hp%3Aepochs" in page.url
    page.reload()
    expect(page.locator("tbody tr:not(.gap)").first).to_contain_text(failed)
    expect(page.get_by_role("columnheader", name="<img src=x")).to_have_count(1)

    first = page.locator("tbody tr:not(.gap)").first
    first.focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("tbody tr:focus")).to_contain_text(live)
    page.keyboard.press(" ")
    expect(page.get_by_role("checkbox", name=f"Select {live}")).to_be_checked()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search names")).to_be_focused()
    row(page, live).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(live)
    page.goto("/_tidemill/jobs")
    expect(page.get_by_role("columnheader", name="epochs")).to_have_count(1)  # kept by this browser
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("button", name="The usual columns").click()
    expect(page.get_by_role("columnheader", name="epochs")).to_have_count(0)


def test_a_job_is_run_again_with_changes_and_deleted(page_of: Callable[..., Page], jobs: Any, failed: str) -> None:
    # The view may look at the job once more while it is deleted.
    page = page_of(f"jobs/training/{failed}?tab=again", expected=("400",))
    page.get_by_role("textbox", name="Name", exact=True).fill("again-one")
    page.get_by_role("textbox", name="Value of hyperparameter 1").fill("5")
    page.get_by_role("button", name="Start the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("again-one")
    expect(page.get_by_role("region", name="Failure")).to_be_visible()
    job = jobs.describe("again-one")
    assert (job["HyperParameters"]["epochs"], job["ResourceConfig"]["InstanceType"]) == ("5", "ml.m5.large")
    assert job["HyperParameters"]["sagemaker_program"] == '"train.py"'

    page.get_by_role("link", name="Run again with …").click()
    page.get_by_role("button", name="Edit the request as JSON").click()
    request = json.loads(page.get_by_role("textbox", name="The request, as JSON").input_value())
    assert request["TrainingJobName"].startswith("again-one-20")

    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    expect(row(page, failed)).to_have_count(1)
    expect(row(page, "again-one")).to_have_count(0)
    with pytest.raises(jobs.sagemaker.exceptions.ClientError):
        jobs.describe("again-one")


def test_processing_and_tuning_jobs_have_views_and_can_be_run_again(page_of: Callable[..., Page], jobs: Any) -> None:
    request = jobs.request("print('loss: 1')", name="tuned-one")
    definition = {
        "AlgorithmSpecification": {**request["AlgorithmSpecification"], "MetricDefinitions": METRICS[:1]},
        "StaticHyperParameters": request["HyperParameters"],
        **{name: request[name] for name in ("RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition")},
    }
    jobs.sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName="tuned-one",
        HyperParameterTuningJobConfig={
            "Strategy": "Random",
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
            "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
        },
        TrainingJobDefinition=definition,
    )
    jobs.sagemaker.create_processing_job(
        ProcessingJobName="prepared-one",
        RoleArn=request["RoleArn"],
        AppSpecification={"ImageUri": IMAGE, "ContainerEntrypoint": ["python3", "-c", "print('rows: 3')"]},
        ProcessingResources={"ClusterConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1}},
    )
    page = page_of("jobs?kind=processing&kind=tuning")
    expect(row(page, "prepared-one")).to_contain_text("Completed")
    expect(row(page, "tuned-one")).to_contain_text("1 of 1 trainings")
    row(page, "prepared-one").get_by_role("link").click()
    expect(page.get_by_role("region", name="Lines of the log")).to_contain_text("rows: 3")
    expect(page.locator(".phases")).to_contain_text("Completed")
    for path, name in (("processing/prepared-one", "prepared-two"), ("tuning/tuned-one", "tuned-two")):
        page.goto(f"/_tidemill/jobs/{path}?tab=again")
        page.get_by_role("textbox", name="Name", exact=True).fill(name)
        page.get_by_role("button", name="Start the job").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    again = jobs.sagemaker.describe_processing_job(ProcessingJobName="prepared-two")
    assert again["AppSpecification"]["ContainerEntrypoint"][2] == "print('rows: 3')"
    tuned = jobs.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="tuned-two")
    assert tuned["HyperParameterTuningJobConfig"]["ResourceLimits"]["MaxNumberOfTrainingJobs"] == 1


def test_a_telephone_shows_jobs_without_sideways_scrolling(
    page_of: Callable[..., Page], axe: Callable[[Page], None], failed: str
) -> None:
    page = page_of("jobs", width=390, height=740)
    expect(row(page, failed).get_by_role("cell").nth(2)).to_have_text("Failed")
    assert page.locator(".rows").evaluate("box => box.scrollWidth <= box.clientWidth"), "status is beside the name"
    for path, text in (
        ("jobs", failed),
        (f"jobs/training/{failed}", "filler line 0"),
        (f"jobs/training/{failed}?tab=request", "The request"),
    ):
        page = page_of(path, width=360, height=740)
        page.get_by_text(text).first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        axe(page)


def test_a_job_that_another_client_deletes_leaves_the_table(page_of: Callable[..., Page], jobs: Any) -> None:
    name = jobs.create("pass", name="short-one")
    jobs.wait(name)
    page = page_of("jobs")
    expect(row(page, name)).to_contain_text("Completed")
    jobs.sagemaker.delete_training_job(TrainingJobName=name)
    expect(row(page, name)).to_have_count(0)


def test_the_way_back_leads_to_the_filters_and_to_the_place_in_the_table(page_of: Callable[..., Page]) -> None:
    times = {"CreationTime": 1_700_000_000, "LastModifiedTime": 1_700_000_000}
    found = [{"Kind": "training", "Name": f"many-{n}", "Arn": "a", "Status": "Failed", **times} for n in range(100)]

    def listed(route: Route) -> None:
        is_list = route.request.headers["x-amz-target"] == "Tidemill.ListJobs"
        if not is_list or route.request.post_data_json["Kind"] != "training":
            return route.fallback()
        return route.fulfill(json={"Jobs": found, "Queue": []})

    page = page_of("jobs", expected=("400",))
    page.route("**/_tidemill/call/tidemill/", listed)
    page.reload()
    page.get_by_role("searchbox", name="Search names").fill("many-")
    expect(page).to_have_url(re.compile("q=many-"))
    box = page.locator(".rows")
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    box.evaluate("box => { box.scrollTop = 1500; }")
    page.get_by_role("link", name="many-55", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("many-55")
    page.go_back()
    expect(page.get_by_role("link", name="many-55", exact=True)).to_be_visible()
    expect(page.get_by_role("searchbox", name="Search names")).to_have_value("many-")
    page.wait_for_function("document.querySelector('.rows').scrollTop === 1500")


def test_a_request_that_fails_once_leaves_no_view_of_an_ended_job_behind(
    page_of: Callable[..., Page], failed: str
) -> None:
    page = page_of("system", expected=("500",))
    asked: dict[str, int] = {}

    def answer(route: Route) -> None:
        operation = route.request.headers["x-amz-target"]
        asked[operation] = asked.get(operation, 0) + 1
        if operation in ("Tidemill.DescribeJob", "Tidemill.GetLogLines") and asked[operation] == 1:
            return route.fulfill(status=500, json={"__type": "InternalFailure", "message": "once"})
        return route.fallback()

    page.route("**/_tidemill/call/tidemill/", answer)
    page.goto(f"/_tidemill/jobs/training/{failed}")
    expect(page.get_by_role("alert")).to_contain_text("once")
    expect(page.get_by_role("region", name="Lines of the log")).to_contain_text("filler line 0")
    expect(page.get_by_role("alert")).to_have_count(0)
