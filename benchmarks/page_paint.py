"""Measure when a browser paints the page first, beside a page without content that a trivial server sends.

Run it as ``python benchmarks/page_paint.py [--rounds N]``, after ``make page``. Each round opens both pages, in turn,
with an empty cache; the page is signed in and shows the table of jobs. The figures are the browser's own times of the
first contentful paint, from the begin of the navigation. The goal is 0.5 s on loopback.
"""

import argparse
import os
import shutil
import statistics
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tidemill.server.client import own_client
from tidemill.testing import Service

GOAL_MS = 500.0
PAINTED = """
() => new Promise((done) => new PerformanceObserver((list) => {
  for (const each of list.getEntriesByName("first-contentful-paint")) done(each.startTime);
}).observe({type: "paint", buffered: true}))
"""


class _Bare(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>bare</title><p>bare</p>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("Chromium is not installed: apt install chromium")
    bare = ThreadingHTTPServer(("127.0.0.1", 0), _Bare)
    thread = threading.Thread(target=bare.serve_forever)
    thread.start()
    try:
        with Service() as service, sync_playwright() as playwright:
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = playwright.chromium.launch(executable_path=program, args=arguments)
            measure(browser, service, bare_url=f"http://127.0.0.1:{bare.server_port}/", rounds=rounds)
            browser.close()
    finally:
        bare.shutdown()
        thread.join()
        bare.server_close()


def measure(browser: Browser, service: Service, *, bare_url: str, rounds: int) -> None:
    """Print the medians of both pages."""
    session = signed_in(browser, service)
    figures: dict[str, list[float]] = {"page": [], "bare": []}
    for _ in range(rounds + 1):
        figures["bare"].append(painted_ms(browser, bare_url, None))
        figures["page"].append(painted_ms(browser, f"{service.url}/_tidemill/jobs", session))
    page, empty = (statistics.median(times[1:]) for times in (figures["page"], figures["bare"]))
    print(
        f"first paint of the page: median {page:.0f} ms (longest {max(figures['page'][1:]):.0f}), a bare page"
        f" {empty:.0f} ms; {page / GOAL_MS:.2f} of the goal of {GOAL_MS:.0f} ms; load {os.getloadavg()[0]:.0f}"
    )


def signed_in(browser: Browser, service: Service) -> Any:
    """Return the state of a browser with a session: its cookie, and what the page stores."""
    token = own_client(service.boto3_session(), service.url).create_page_token()["Token"]
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{service.url}/_tidemill/#token={token}")
    page.get_by_role("button", name="Sign out").wait_for()
    state = context.storage_state()
    context.close()
    return state


def painted_ms(browser: Browser, url: str, state: Any) -> float:
    """Return the time of the first contentful paint in milliseconds, with an empty cache."""
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    page.goto(url)
    figure = float(page.evaluate(PAINTED))
    context.close()
    return figure


if __name__ == "__main__":
    main()
