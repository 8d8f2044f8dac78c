"""Finished jobs side by side."""

import re
from collections.abc import Callable
from urllib.parse import urlencode

from playwright.sync_api import Page, expect


def compared(*names: str) -> str:
    return f"compare?{urlencode([('job', name) for name in names])}"


def test_two_jobs_show_what_differs_and_their_curves(
    page_of: Callable[..., Page], finished: tuple[str, str], hostile: str, axe: Callable[[Page], None]
) -> None:
    slow, fast = finished
    page = page_of(compared(slow, fast))
    table = page.get_by_role("region", name="Comparison of the jobs")
    row = table.get_by_role("row", name="rate")
    expect(row.get_by_role("cell")).to_have_text(["0.1", "0.9"])
    assert table.get_by_role("row", name="note").get_by_role("cell").all_inner_texts() == [
        "not set",
        hostile.replace("\u202e", "⟨U+202E⟩"),
    ]
    assert table.get_by_role("row", name="loss").get_by_role("cell").all_inner_texts() == ["0.3333", "0.0526"]
    assert table.get_by_role("row", name="epochs").count() == 0
    page.get_by_label("Also what is equal").check()
    expect(table.get_by_role("row", name="epochs").get_by_role("cell")).to_have_text(["20", "20"])
    assert "all=1" in page.url

    figure = page.get_by_role("figure", name="loss")
    figure.locator("canvas").wait_for()
    cursor = figure.get_by_role("slider")
    cursor.press("End")
    expect(cursor).to_have_attribute("aria-valuetext", f"step 20: {slow} 0.3333, {fast} 0.0526")
    cursor.press("ArrowLeft")
    expect(cursor).to_have_attribute("aria-valuetext", f"step 19: {slow} 0.3448, {fast} 0.0552")
    figure.get_by_role("button", name=slow).click()
    expect(cursor).to_have_attribute("aria-valuetext", f"step 19: {fast} 0.0552")
    figure.get_by_role("button", name=slow).click()
    page.get_by_label("Smoothing").press("End")
    # The value is the smoothed one now.
    expect(cursor).not_to_have_attribute("aria-valuetext", re.compile("0.0552"))
    page.get_by_label("Smoothing").press("Home")
    page.get_by_label("Logarithmic").check()
    page.get_by_label("By").select_option("relative time")
    figure.get_by_text("Values as a table").click()
    points = figure.get_by_role("region", name=f"Points of {fast}")
    expect(points.get_by_role("row")).to_have_count(21)
    assert page.title() != "owned"
    axe(page)


def test_jobs_are_added_and_removed_within_the_view(page_of: Callable[..., Page], finished: tuple[str, str]) -> None:
    slow, fast = finished
    page = page_of("compare")
    for name in finished:
        page.get_by_label("Job", exact=True).fill(name)
        page.get_by_role("button", name="Add", exact=True).click()
        page.get_by_role("columnheader", name=name).wait_for()
    expect(page).to_have_url(re.compile(re.escape(compared(slow, fast)) + "$"))
    page.get_by_role("button", name=f"Remove {slow}").click()
    expect(page.get_by_role("columnheader", name=slow)).to_have_count(0)
    page.go_back()
    page.get_by_role("columnheader", name=slow).wait_for()


def test_a_job_that_is_gone_does_not_hide_the_others(page_of: Callable[..., Page], finished: tuple[str, str]) -> None:
    page = page_of(compared(finished[0], "gone"), expected=("400",), width=360, height=740)
    page.get_by_text("'gone'").wait_for()
    page.get_by_role("row", name="accuracy").get_by_text("0.6667").wait_for()
    page.wait_for_function("document.documentElement.scrollWidth <= 360")
