"""A training watched live: what its instance uses, and the scalars that TensorFlow writes, in page and clients."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tidemill.testing import Service

ROOT = Path(__file__).parents[2]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">\u202eexe"
SCRIPT = f"""
import os, time
import tensorflow as tf
out = os.environ["SM_OUTPUT_DATA_DIR"]
def write(steps):
    with writer.as_default():
        for step in steps:
            tf.summary.scalar("loss", 1 / (step + 1), step=step)
            tf.summary.scalar({HOSTILE!r}, 7.0, step=step)
            tf.summary.histogram("weights", [1.0, 2.0], step=step)
    writer.flush()
writer = tf.summary.create_file_writer(out + "/train")
write(range(5))
with tf.Graph().as_default():
    old = tf.compat.v1.summary.FileWriter(out + "/old")
    old.add_summary(tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag="loss", simple_value=3.5)]), 4)
    old.close()
print("written", flush=True)
while not os.path.exists(out + "/go"):
    time.sleep(0.05)
write(range(5, 10))
while not os.path.exists(out + "/end"):
    time.sleep(0.05)
"""


class Watched:
    """A job that goes on and ends when the test says so."""

    def __init__(self, jobs: Any, state_dir: Path) -> None:
        self.jobs = jobs
        self.name = jobs.create(SCRIPT, name="watched")
        self._jobs_dir = state_dir / "jobs"

    def touch(self, name: str) -> None:
        for data in self._jobs_dir.glob("*/algo-1/ml/output/data/train"):
            (data.parent / name).touch()


@pytest.fixture(scope="module")
def watched(jobs: Any, service: Service, tidemill: Any) -> Iterator[Watched]:
    job = Watched(jobs, Path(service.state_dir))

    def scalars() -> int:
        return sum(each["Count"] for each in tidemill.list_scalars(TrainingJobName=job.name)["Scalars"])

    jobs.wait_until(lambda: scalars() == 11, lambda: (scalars(), jobs.describe(job.name)))
    yield job
    if jobs.describe(job.name)["TrainingJobStatus"] == "InProgress":
        jobs.sagemaker.stop_training_job(TrainingJobName=job.name)


def test_scalars_and_resources_are_drawn_while_the_job_runs_and_after_its_end(
    page_of: Callable[..., Page],
    watched: Watched,
    jobs: Any,
    tidemill: Any,
    service: Service,
    command: Callable[..., str],
    axe: Callable[[Page], None],
) -> None:
    page = page_of(f"jobs/training/{watched.name}?tab=metrics")
    figure = page.get_by_role("figure", name="loss")
    figure.locator("canvas").wait_for()
    cursor = figure.get_by_role("slider")
    cursor.press("End")
    expect(cursor).to_have_attribute(
        "aria-valuetext", re.compile(r"step 4: .*output/data/old 3\.5.*output/data/train 0\.2")
    )
    page.get_by_role("figure", name="<img").locator("canvas").wait_for()
    expect(page.get_by_role("figure")).to_have_count(2)  # the histogram is none
    watched.touch("go")
    # It grows without a reload.
    cursor.press("End")
    expect(cursor).to_have_attribute("aria-valuemax", "9")
    cursor.press("End")
    expect(cursor).to_have_attribute("aria-valuetext", re.compile(r"step 9: .*output/data/train 0\.1"))
    assert page.title() != "owned"
    axe(page)

    page.get_by_role("link", name="Resources").click()
    memory = page.get_by_role("figure", name=re.compile("Memory"))
    memory.locator("canvas").wait_for()
    position = memory.get_by_role("slider")
    position.press("End")
    expect(position).to_have_attribute("aria-valuetext", re.compile(r": algo-1 \d+(\.\d)? (MiB|GiB)"))
    names = [each.inner_text() for each in page.locator("figure.curve > figcaption").all()]
    assert re.match(r"Processors \(100 % each, \d+ of them\)", names[0])
    assert [name.partition(" (")[0] for name in names[1:]] == [
        *("Memory", "Files", "Disk traffic", "Network of the whole machine")
    ]
    axe(page)

    (instance,) = tidemill.get_instance_samples(Kind="training-job", Name=watched.name)["Instances"]
    assert max(instance["Memory"]) > 100 << 20, "TensorFlow is imported"
    assert max(instance["Cpu"]) > 0.1
    running = {each["Name"]: each for each in tidemill.list_running_instances()["Running"]}
    assert running[watched.name]["SecondaryStatus"] == "Training"
    now = datetime.now(UTC)
    statistics = (
        service.boto3_session()
        .client("cloudwatch")
        .get_metric_statistics(
            Namespace="/aws/sagemaker/TrainingJobs",
            MetricName="MemoryUtilization",
            Dimensions=[{"Name": "Host", "Value": f"{watched.name}/algo-1"}],
            StartTime=now - timedelta(hours=1),
            EndTime=now + timedelta(minutes=1),
            Period=60,
            Statistics=["Maximum"],
        )
    )
    assert 0 < max(each["Maximum"] for each in statistics["Datapoints"]) < 100

    _check_top(watched.name, command, service)
    watched.touch("end")
    assert jobs.wait(watched.name)["TrainingJobStatus"] == "Completed"
    ended = tidemill.get_scalars(TrainingJobName=watched.name)
    assert (ended["Complete"], ended["Damage"]) == (True, [])
    last = {(each["Run"], each["Tag"]): (each["LastStep"], each["Count"]) for each in ended["Scalars"]}
    assert last == {
        ("output/data/old", "loss"): (4, 1),
        ("output/data/train", "loss"): (9, 10),
        ("output/data/train", HOSTILE): (9, 10),
    }
    kept = tidemill.get_instance_samples(Kind="training-job", Name=watched.name)["Instances"][0]
    assert len(kept["TimesMs"]) >= len(instance["TimesMs"])
    page.reload()
    memory.locator("canvas").wait_for()


def test_scalars_of_several_jobs_share_a_chart(
    page_of: Callable[..., Page], watched: Watched, finished: tuple[str, str]
) -> None:
    page = page_of(f"compare?job={watched.name}&job={finished[0]}")
    charts = page.get_by_role("figure", name="loss")
    expect(charts).to_have_count(2)  # the first one, which is there sooner, is that of the logs
    cursor = charts.last.get_by_role("slider")
    cursor.press("Home")
    expect(cursor).to_have_attribute(
        "aria-valuetext", re.compile(r"^step 0: watched output/data/old 3\.5, watched output/data/train 1$")
    )


def _check_top(name: str, command: Callable[..., str], service: Service) -> None:
    """`tidemill top` shows the running job: once, as JSON, and in a terminal until Ctrl-C."""
    head, titles, *rows = command("top", "--once").splitlines()
    assert " running, " in head and " waiting, load " in head
    assert titles.split()[:5] == ["NAME", "HOST", "STATUS", "CPU", "MEMORY"]
    (row,) = (row for row in rows if row.startswith(f"{name} "))
    assert re.match(rf"{name} +algo-1 +Training +\d+% of \d+% +[\d.]+ (MiB|GiB) of [\d.]+ GiB .*\(machine\)", row), row
    shown = json.loads(command("top", "--once", "--json"))
    (own,) = (each for each in shown["running"] if each["Name"] == name)
    assert own["Instances"][0]["Memory"][0] > 0 and shown["machine"]["Cpus"]["Count"] > 0
    program = [ROOT / ".venv/bin/tidemill", "top", "--interval", "1", "--state-dir", str(service.state_dir)]
    terminal, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with subprocess.Popen(program, stdin=other, stdout=other, stderr=other, start_new_session=True) as process:
        os.close(other)
        seen = b""
        while f"{name} ".encode() not in seen:
            seen += os.read(terminal, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            with contextlib.suppress(OSError):  # its end closes the terminal
                os.read(terminal, 65536)
    os.close(terminal)
    assert process.returncode == 0
