"""The page with many jobs and a long log: tasks of the browser, CPU of the service.

    .venv/bin/python benchmarks/page_scale.py --jobs 10000 --lines 1000000

Jobs are put into the store's records and lines into the segments of a log, then a service starts on that state. A
headless Chromium opens the table of jobs, searches it, sorts it and scrolls through it; then it opens the log, scrolls
from its begin to its end, and follows it while a writer appends lines; at last it draws a curve of 100,000 points.
A `PerformanceObserver` notes the tasks of the browser's main thread that take over 50 ms, which are those that browsers
report. On a busy machine they have waited for a processor, so the longest CPU time of a task is taken from the
browser's trace, too.

Waiting is measured, too: how long the table and the log take until they show something, and what CPU the service needs
for a viewer while nothing changes.
"""

import argparse
import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Route, sync_playwright

from tidemill.control.jobs import TRAINING
from tidemill.core.clock import SystemClock
from tidemill.core.segments import SegmentWriter, create_stream
from tidemill.core.training import FinalMetric, SecondaryStatus, TrainingJob
from tidemill.server.client import own_client
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.base import Transaction
from tidemill.store.records.store import SqlRecordStore
from tidemill.testing import Service

GROUP = "/aws/sagemaker/TrainingJobs"
LOGGED = "job-00000"
STREAM = f"{LOGGED}/algo-1-1700000000"
BEGUN_MS = 1_700_000_000_000
BLOCK = 1000
STREAMED = 200
DRAWN = 100_000
OBSERVE = """
  window.longTasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
  }).observe({ type: "longtask", buffered: true });
"""
# The observer has to see a task of 150 ms, or its silence would mean nothing.
PROVOKE = """
  () => new Promise((resolve) => setTimeout(() => {
    const end = performance.now() + 150;
    while (performance.now() < end);
    setTimeout(resolve, 100);
  }))
"""
TAKE = "() => { const found = window.longTasks; window.longTasks = []; return found; }"
SCROLL = """
  async ([selector, steps]) => {
    const box = document.querySelector(selector);
    for (let step = 0; step <= steps; step += 1) {
      box.scrollTop = ((box.scrollHeight - box.clientHeight) * step) / steps;
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
  }
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="page-") as directory:
        state_dir = Path(directory) / "state"
        with Service(state_dir=state_dir):
            pass  # makes the state
        asyncio.run(put_jobs(state_dir, options.jobs))
        with Service(state_dir=state_dir) as service:
            stream = put_lines(Path(service.state_dir) / "logs", options.lines)
            with sync_playwright() as playwright:
                arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = playwright.chromium.launch(executable_path=options.chromium, args=arguments)
                context = browser.new_context(base_url=service.url)
                context.add_init_script(OBSERVE)
                page = context.new_page()
                client = own_client(service.boto3_session(), service.url)
                page.goto(f"/_tidemill/#token={client.create_page_token()['Token']}")
                page.get_by_role("button", name="Sign out").wait_for()
                page.evaluate(PROVOKE)
                assert page.evaluate("window.longTasks.some((each) => each > 100)"), "the observer sees no tasks"
                tasks = Tasks(browser, page)
                measure_table(tasks, page, service, options.jobs)
                measure_log(tasks, page, options.lines, stream)
                measure_curves(tasks, page)
                browser.close()


class Tasks:
    """The tasks of the browser's main thread since the last report."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self._browser = browser
        self._page = page
        self._begin()

    def report(self, what: str) -> None:
        found: list[float] = self._page.evaluate(TAKE)
        over = sum(each > 100 for each in found)
        cpu_ms = self._longest_cpu_ms(json.loads(self._browser.stop_tracing())["traceEvents"])
        figure = f"longest task {cpu_ms:.0f} ms of CPU; {max(found, default=0):.0f} ms in all"
        report(what, f"{figure} ({len(found)} over 50 ms, {over} over 100 ms)")
        self._begin()

    def _begin(self) -> None:
        self._browser.start_tracing(page=self._page, categories=["toplevel", "__metadata"])

    def _longest_cpu_ms(self, events: list[dict[str, Any]]) -> float:
        main = {(e["pid"], e["tid"]) for e in events if e.get("args", {}).get("name") == "CrRendererMain"}
        run = [e for e in events if "tdur" in e and e["name"].endswith("RunTask")]
        tasks = [e["tdur"] for e in run if (e["pid"], e["tid"]) in main]
        assert tasks, "the trace has no tasks of the page"
        return max(tasks) / 1000


async def put_jobs(state_dir: Path, count: int) -> None:
    with SqliteDatabase.open(state_dir / "state.db", metadata=metadata) as database:
        records = SqlRecordStore(database, clock=SystemClock())
        for first in range(0, count, BLOCK):
            jobs = [ended_job(number) for number in range(first, min(count, first + BLOCK))]

            def insert(transaction: Transaction, jobs: list[TrainingJob] = jobs) -> None:
                for job in jobs:
                    transaction.insert(TRAINING.write(job))

            await records.change(insert)


def ended_job(number: int) -> TrainingJob:
    """Return a job that has ended, with the hyperparameters and the request of an estimator of AWS's SDK."""
    name, created_ms = f"job-{number:05}", BEGUN_MS + 1000 * number
    request = {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss: ([0-9.]+)"}],
        },
        "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
        "HyperParameters": {
            "epochs": str(number % 20),
            "rate": str(0.1 / (1 + number % 7)),
            "optimizer": '"adam"',
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": f'"s3://bucket/{name}/source/sourcedir.tar.gz"',
        },
        "InputDataConfig": [
            {"ChannelName": each, "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://b/{each}"}}}
            for each in ("train", "test")
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1 + number % 3, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    }
    job = TrainingJob(
        name=name,
        arn=f"arn:aws:sagemaker:us-west-2:000000000000:training-job/{name}",
        job_id=f"{number:032x}",
        request=request,
        created_ms=created_ms,
        log_streams=(f"{name}/algo-1-1700000000",),
    )
    for after_ms, status in enumerate((SecondaryStatus.STARTING, SecondaryStatus.TRAINING, SecondaryStatus.COMPLETED)):
        job = job.enter(status, at_ms=created_ms + 60_000 * after_ms, message=str(status))
    return replace(job, final_metrics=(FinalMetric("loss", 1 / (1 + number), created_ms),))


def put_lines(logs: Path, count: int) -> Path:
    """Write a log of lines as a training prints them, and return its directory."""
    directory = create_stream(logs, GROUP, STREAM)
    with SegmentWriter(directory) as writer:
        for first in range(0, count, BLOCK):
            writer.write_many(
                b"Epoch %d/100 step %d - loss: %.4f - accuracy: %.4f - 21ms/step" % (n // 1000, n, 1 / (1 + n), 0.5)
                for n in range(first, min(count, first + BLOCK))
            )
    return directory


def measure_table(tasks: Tasks, page: Page, service: Service, count: int) -> None:
    begun_s = time.perf_counter()
    page.goto("/_tidemill/jobs")
    page.locator("tbody tr:not(.gap)").first.wait_for()
    report("first rows", f"{time.perf_counter() - begun_s:.2f} s")
    page.get_by_text(f"{count:,} of {count:,} jobs").wait_for(timeout=300_000)
    report("all rows", f"{time.perf_counter() - begun_s:.2f} s")
    tasks.report("loading the table")
    page.evaluate(SCROLL, [".rows", 200])
    tasks.report("scrolling the table")
    field = page.get_by_role("searchbox", name="Search names")
    field.press_sequentially("adam epochs=7", delay=100)
    page.get_by_text(f"{count // 20:,} of").wait_for()
    field.fill("")
    page.get_by_text(f"{count:,} of").wait_for()
    for column in ("Name", "Last metrics", "Duration", "Created"):
        page.get_by_role("columnheader", name=column).get_by_role("button").click()
        page.wait_for_timeout(300)
    page.get_by_role("checkbox", name="Select all rows").check()
    page.wait_for_timeout(500)
    page.get_by_role("checkbox", name="Select all rows").uncheck()
    tasks.report("searching, sorting, selecting")
    report_rest(page, service)


def report_rest(page: Page, service: Service) -> None:
    """Report the CPU of the service while the table is shown and nothing changes."""
    seconds = 20
    before_s = cpu_of(service)
    page.wait_for_timeout(1000 * seconds)
    cpu_ms = 1000 * (cpu_of(service) - before_s) / seconds
    report("service, per second and viewer of the table", f"{cpu_ms:.2f} ms of CPU")


def cpu_of(service: Service) -> float:
    process = service._process
    assert process is not None
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_log(tasks: Tasks, page: Page, count: int, stream: Path) -> None:
    begun_s = time.perf_counter()
    page.goto(f"/_tidemill/jobs/training/{LOGGED}")
    page.locator(".line", has_text="step 3 - ").wait_for(timeout=60_000)
    report("first lines", f"{time.perf_counter() - begun_s:.2f} s")
    tasks.report("opening the log")
    page.evaluate(SCROLL, [".lines", 300])
    page.locator(".line", has_text=f"step {count - 1} ").wait_for(timeout=60_000)
    tasks.report("scrolling the log")
    for name, text in (("a text", f"step {count - 5} "), ("a frequent text", "Epoch 77"), ("no match", "nowhere")):
        begun_s = time.perf_counter()
        page.get_by_role("searchbox", name="Search the log").fill(text)
        page.locator(".log [role=status]", has_text="line").first.wait_for(timeout=60_000)
        report(f"search of {name}", f"{time.perf_counter() - begun_s:.2f} s")
        page.get_by_role("searchbox", name="Search the log").fill("")
        page.wait_for_timeout(500)
    tasks.report("searching the log")
    follow(tasks, page, count, stream)


def follow(tasks: Tasks, page: Page, count: int, stream: Path) -> None:
    """Follow the log while lines are appended. The job has ended, so the view is told to look."""
    ended = threading.Event()

    def append() -> None:
        with SegmentWriter(stream) as writer:
            for part in range(100):
                writer.write_many(b"streamed line %d of part %d" % (n, part) for n in range(STREAMED))
                if ended.wait(0.1):
                    return

    page.get_by_role("checkbox", name="Follow").check()
    writer = threading.Thread(target=append)
    writer.start()
    for _ in range(12):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.wait_for_timeout(1000)
    ended.set()
    writer.join()
    tasks.report(f"following {10 * STREAMED:,} lines a second")


def measure_curves(tasks: Tasks, page: Page) -> None:
    """Draw a curve of 100,000 points, where the page asks for 2,000 of them."""

    def ask_for_all(route: Route) -> None:
        if route.request.headers.get("x-amz-target") == "Tidemill.GetMetricPoints":
            route.continue_(post_data=json.dumps({**(route.request.post_data_json or {}), "MaxPoints": DRAWN}))
        else:
            route.continue_()

    page.route("**/_tidemill/call/tidemill/", ask_for_all)
    begun_s = time.perf_counter()
    page.goto(f"/_tidemill/jobs/training/{LOGGED}?tab=metrics")
    figure = page.get_by_role("figure", name="loss")
    figure.locator("canvas").wait_for(timeout=300_000)
    report("curve", f"{time.perf_counter() - begun_s:.2f} s")
    figure.get_by_text("Values as a table").click()
    points = figure.get_by_role("region", name="summary").get_by_role("cell").first.inner_text()
    tasks.report(f"drawing {points} points")
    smoothing = page.get_by_label("Smoothing")
    for _ in range(40):
        smoothing.press("ArrowRight")
    page.get_by_label("Logarithmic").check()
    page.get_by_label("By").select_option("relative time")
    page.get_by_label("By").select_option("step")
    cursor = figure.get_by_role("slider")
    for key in ("Home", *["PageUp"] * 5, "+", "+", *["ArrowRight"] * 20, "-", "End"):
        cursor.press(key)
    tasks.report("smoothing, scaling, zooming")


def report(what: str, figure: Any, write: Callable[[str], None] = print) -> None:
    write(f"{what:<48}{figure}")


if __name__ == "__main__":
    main()
