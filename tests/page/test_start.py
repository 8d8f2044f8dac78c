"""The begin: `tidemill open`, navigation, and a browser without a session."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser, Page

from tidemill.testing import Service


def test_tidemill_open_prints_an_address_that_signs_one_browser_in_once(
    browser: Browser, service: Service, command: Callable[..., str]
) -> None:
    address = command("open", "--no-browser").strip()
    assert address.startswith(f"{service.url}/_tidemill/#token=")
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.get_by_role("link", name="Endpoints").click()
    assert page.url == f"{service.url}/_tidemill/endpoints", "the token is gone from the address"
    page.reload()
    page.get_by_role("heading", name="Endpoints").wait_for()
    (cookie,) = context.cookies(f"{service.url}/_tidemill/")
    port = service.url.rpartition(":")[2]
    assert (cookie["name"], cookie["path"], cookie["httpOnly"], cookie["sameSite"]) == (
        f"tidemill-{port}",
        "/_tidemill",
        True,
        "Strict",
    )
    assert page.evaluate("document.cookie") == ""
    context.close()
    other = browser.new_page()
    other.goto(address)
    other.get_by_role("alert").get_by_text("used already").wait_for()
    other.close()


def test_a_browser_without_a_session_is_told_what_to_do(browser: Browser, service: Service) -> None:
    page = browser.new_page()
    page.goto(f"{service.url}/_tidemill/jobs")
    page.get_by_text("tidemill open").wait_for()
    page.close()


def test_the_navigation_leads_to_every_view_without_a_violation(
    page_of: Callable[..., Page], axe: Callable[[Page], None]
) -> None:
    page = page_of("jobs")
    for name in ("Experiments", "Pipelines", "Registry", "Endpoints", "Data", "System", "Jobs"):
        page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
        page.locator("main h1").first.wait_for()
        assert page.get_by_role("navigation").locator("[aria-current=page]").inner_text() == name
    axe(page)


def test_the_page_fits_a_phone_and_goes_by_keyboard(page_of: Callable[..., Page]) -> None:
    page = page_of("jobs", width=360, height=640)
    for name in ("Endpoints", "System"):
        link = page.get_by_role("navigation").get_by_role("link", name=name, exact=True)
        link.focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name=name, level=1).wait_for()
        assert page.evaluate("() => document.activeElement.id") == "content"
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("() => document.activeElement.textContent") == "Sign out"


def test_nothing_is_asked_of_another_host(page_of: Callable[..., Page], service: Service) -> None:
    page = page_of("jobs")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("jobs", "compare", "pipelines", "registry", "endpoints", "data", "system"):
        page.goto(f"/_tidemill/{path}")
        page.locator("main h1").first.wait_for()
    assert asked and {url.startswith((service.url, "blob:", "data:")) for url in asked} == {True}


def test_a_call_answers_as_the_client_of_aws_would(page_of: Callable[..., Page]) -> None:
    page = page_of("jobs")
    answer = page.evaluate(
        """async () => {
          const session = JSON.parse(localStorage.getItem("tidemill-session"));
          const response = await fetch("/_tidemill/call/sagemaker/", {
            method: "POST",
            headers: {
              "content-type": "application/x-amz-json-1.1",
              "x-amz-target": "SageMaker.ListTrainingJobs",
              "x-tidemill-session": session.secret,
            },
            body: "{}",
          });
          return [response.status, await response.json()];
        }"""
    )
    assert answer[0] == 200
    assert "TrainingJobSummaries" in answer[1]


def test_a_download_is_saved_and_never_shown(page_of: Callable[..., Page], jobs: Any, tidemill: Any) -> None:
    bucket, key = "sagemaker-us-west-2-000000000000", "page/a b+é.html"
    jobs.s3.put_object(Bucket=bucket, Key=key, Body=b"<script>alert(1)</script>", ContentType="text/html")
    url = tidemill.presign_download(Bucket=bucket, Key=key)["Url"]
    page = page_of("jobs")
    with page.expect_download() as saved:
        page.evaluate("url => { const a = document.createElement('a'); a.href = url; a.click(); }", url)
    assert saved.value.suggested_filename == "a b+é.html"
    assert saved.value.path().read_bytes() == b"<script>alert(1)</script>"
