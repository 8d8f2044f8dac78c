"""The view of the system: queue, machine, environments, doctor and versions."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, expect

from tidemill import __version__


def test_the_system_shows_queue_machine_environments_and_the_doctor(
    page_of: Callable[..., Page], jobs: Any, axe: Callable[[Page], None]
) -> None:
    whole = {"InstanceType": "ml.m5.large", "InstanceCount": 4, "VolumeSizeInGB": 1}
    running = jobs.create("import time\ntime.sleep(600)\n", ResourceConfig=whole)
    waiting = jobs.create("print('later')\n")
    page = page_of("system", width=360, height=740)
    expect(page.get_by_role("region", name="Running").get_by_role("link", name=running)).to_be_visible()
    queue = page.get_by_role("region", name="Waiting")
    expect(queue.get_by_role("link", name=waiting)).to_be_visible()
    expect(page.get_by_text("0 of 4 free")).to_be_visible()
    expect(page.get_by_role("meter", name="Memory")).to_be_visible()
    environments = page.get_by_role("region", name="Environments")
    expect(environments.get_by_role("cell", name="tf-2.21", exact=True).first).to_be_visible()
    expect(page.get_by_text(__version__, exact=True)).to_be_visible()
    page.get_by_role("button", name="Check this machine").click()
    expect(page.get_by_text("room on disk")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "no sideways scrolling"
    axe(page)
    for name in (waiting, running):
        jobs.sagemaker.stop_training_job(TrainingJobName=name)
    expect(page.get_by_text("No job runs.")).to_be_visible()
