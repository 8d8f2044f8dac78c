"""A port that another program used while the service did not run: what that program got, and left, is worth nothing."""

import contextlib
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, TimeoutError

from tidemill.server.client import own_client
from tidemill.testing import Service

INSTALL = """
async () => {
  await navigator.serviceWorker.register("/worker.js", {scope: "/"});
  await navigator.serviceWorker.ready;
}
"""
WORKER = b"""
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("fetch", (event) => event.respondWith(
  new Response("<h1>stolen</h1>", {headers: {"content-type": "text/html"}})));
"""


class _Thief(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        is_worker = self.path == "/worker.js"
        self.send_response(200)
        self.send_header("content-type", "text/javascript" if is_worker else "text/html")
        self.end_headers()
        self.wfile.write(WORKER if is_worker else b"<h1>another program</h1>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


def status_of(service: Service, session: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", int(service.url.rpartition(":")[2]), timeout=60)
    headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "SageMaker.ListModels", **session}
    connection.request("POST", "/_tidemill/call/sagemaker/", body="{}", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def begin(service: Service) -> dict[str, str]:
    """Begin a session without a browser, and return the headers of its requests."""
    token = own_client(service.boto3_session(), service.url).create_page_token()["Token"]
    connection = http.client.HTTPConnection("127.0.0.1", int(service.url.rpartition(":")[2]), timeout=60)
    connection.request(
        "POST", "/_tidemill/session", body=json.dumps({"token": token}), headers={"content-type": "application/json"}
    )
    answer = connection.getresponse()
    session = json.loads(answer.read())
    cookie = str(answer.headers["set-cookie"]).partition(";")[0]
    connection.close()
    return {"cookie": cookie, "x-tidemill-session": session["secret"]}


def test_what_a_program_on_the_port_of_an_ended_service_gets_and_leaves_is_worth_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    with Service(state_dir=tmp_path / "s") as service:
        session = begin(service)
        assert status_of(service, session) == 200
        port = int(service.url.rpartition(":")[2])
        service.stop()
        thief = ThreadingHTTPServer(("127.0.0.1", port), _Thief)
        thread = threading.Thread(target=thief.serve_forever)
        thread.start()
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{port}/")
        page.evaluate(INSTALL)
        page.goto(f"http://127.0.0.1:{port}/_tidemill/jobs")
        page.get_by_role("heading", name="stolen").wait_for()
        page.goto("about:blank")
        thief.shutdown()
        thread.join()
        thief.server_close()
        service.start()
        assert int(service.url.rpartition(":")[2]) == port
        assert status_of(service, session) == 401, "both of its secrets were sent to the other program"
        # A navigation makes the browser look for a newer version of the worker, a moment later; that one removes it.
        for _ in range(20):
            page.goto(f"http://127.0.0.1:{port}/_tidemill/jobs")
            with contextlib.suppress(TimeoutError):
                page.get_by_text("This browser is not signed in").wait_for(timeout=5000)
                break
        assert page.get_by_text("This browser is not signed in").is_visible()
        assert page.evaluate("async () => (await navigator.serviceWorker.getRegistrations()).length") == 0
        context.close()
