"""Webhooks of a real service: what a receiver gets of a job, also if the service is killed meanwhile."""

import hashlib
import hmac
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tidemill.server.client import own_client
from tidemill.testing import Service

SECRET = "a-secret-of-the-receiver"
PAGE = Path(__file__).parents[2] / "docs/how-to/receive-state-changes.md"


@dataclass
class Receiver:
    """A receiver on loopback. It answers with `status`, and keeps what it gets."""

    status: int = 200
    requests: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.requests.append((dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?of=team"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def events(self) -> list[Mapping[str, Any]]:
        return [json.loads(body) for _, body in list(self.requests)]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def service(receiver: Receiver) -> Iterator[Service]:
    """Yield a service with a receiver that answers, and one that accepts connections and never does."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        webhooks = {
            "team": {"url": receiver.url, "secret": SECRET},
            "silent": {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/", "secret": SECRET},
        }
        with Service(settings={"webhooks": webhooks, "stop_grace_s": 2}) as service:
            yield service


@pytest.fixture(scope="module")
def jobs(service: Service, jobs_of: Any) -> Any:
    return jobs_of(service)


def of_job(receiver: Receiver, name: str) -> list[Mapping[str, Any]]:
    return [each for each in receiver.events() if each["detail"].get("TrainingJobName") == name]


def has_ended(events: list[Mapping[str, Any]]) -> bool:
    return any(each["detail"]["TrainingJobStatus"] == "Completed" for each in events)


def test_a_receiver_gets_the_states_of_a_job_in_the_form_of_eventbridge(
    jobs: Any, receiver: Receiver, wait_until: Callable[..., Any]
) -> None:
    name = jobs.create("print('hello')", Environment={"TEAM": "blue"})
    described = jobs.wait(name)  # although the other receiver answers nothing
    assert described["TrainingJobStatus"] == "Completed"
    wait_until(lambda: has_ended(of_job(receiver, name)), "the last event")
    events = of_job(receiver, name)
    last = events[-1]
    assert {key: last[key] for key in ("version", "detail-type", "source", "account", "region", "resources")} == {
        "version": "0",
        "detail-type": "SageMaker Training Job State Change",
        "source": "aws.sagemaker",
        "account": "000000000000",
        "region": "us-west-2",
        "resources": [described["TrainingJobArn"]],
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", last["time"])
    detail = last["detail"]
    for member in ("TrainingJobArn", "SecondaryStatus", "ModelArtifacts", "ResourceConfig", "Environment"):
        assert detail[member] == described[member]
    for member in ("CreationTime", "TrainingStartTime", "TrainingEndTime"):
        assert detail[member] == round(described[member].timestamp() * 1000)
    seconds = [each["detail"]["SecondaryStatus"] for each in events]
    passed = [each["Status"] for each in described["SecondaryStatusTransitions"]]
    assert (seconds[0], seconds[-1]) == ("Starting", "Completed")
    assert seconds == [each for each in passed if each in seconds]  # in order, none twice
    assert len({each["id"] for each in events}) == len(events)


def test_a_kill_of_the_service_loses_and_reorders_nothing(
    service: Service, jobs: Any, receiver: Receiver, wait_until: Callable[..., Any]
) -> None:
    receiver.status = 503
    name = jobs.create("print('hello')")
    jobs.wait(name)
    wait_until(lambda: of_job(receiver, name), "a first attempt")
    service.kill()
    service.start()
    refused = [each["id"] for each in of_job(receiver, name)]
    already = len(of_job(receiver, name))
    receiver.status = 204
    wait_until(lambda: has_ended(of_job(receiver, name)[already:]), "the last event")
    events = of_job(receiver, name)
    accepted = events[already:]
    assert refused[0] in {each["id"] for each in accepted}, "the first change is sent again, by the same id"
    unique = list(dict.fromkeys(each["id"] for each in events))
    states = [next(each for each in events if each["id"] == one)["detail"]["SecondaryStatus"] for one in unique]
    assert (states[0], states[-1]) == ("Starting", "Completed")
    own = own_client(service.boto3_session(), service.url)

    def pending(webhook: str) -> int:
        return next(each["Pending"] for each in own.list_webhooks()["Webhooks"] if each["Name"] == webhook)

    wait_until(lambda: pending("team") == 0, "everything is accepted")
    assert pending("silent") > 4
    assert SECRET not in service.log
    assert "of=team" not in service.log, "the path of an address is a secret at many receivers"


def test_the_owner_can_try_a_webhook(service: Service, receiver: Receiver) -> None:
    def tidemill(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "tidemill.cli", *arguments, "--state-dir", str(service.state_dir)]
        environment = os.environ | variables
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    receiver.status = 200
    tried = tidemill("webhooks", "test", "team")
    assert (tried.returncode, tried.stdout) == (0, "team has accepted the event (status 200)\n"), tried.stderr
    headers, body = receiver.requests[-1]
    assert json.loads(body)["detail-type"] == "tidemill Webhook Test"
    expected = hmac.new(SECRET.encode(), headers["x-tidemill-timestamp"].encode() + b"." + body, hashlib.sha256)
    assert headers["x-tidemill-signature"] == f"sha256={expected.hexdigest()}"
    assert headers["x-tidemill-delivery"] == json.loads(body)["id"]
    receiver.status = 302  # never followed
    tried = tidemill("webhooks", "test", "team")
    assert (tried.returncode, "answered with status 302" in tried.stderr) == (1, True)
    assert "no webhook 'other'" in tidemill("webhooks", "test", "other").stderr
    listed = tidemill("webhooks", "list").stdout
    assert "silent" in listed
    assert SECRET not in listed
    config = service.state_dir.parent / "webhooks.toml"
    config.write_text(f'[webhooks.team]\nurl = "https://team.example/"\nsecret = "{SECRET}"\n')
    for form in ((), ("--json",), ("--origin",)):
        shown = tidemill("config", "show", *form, TIDEMILL_CONFIG=str(config)).stdout
        assert ("team.example" in shown, SECRET in shown) == (True, False), shown


def test_the_receiver_of_the_page_accepts_what_is_signed_and_nothing_else(receiver: Receiver) -> None:
    text = PAGE.read_text()
    code = text[text.index("```python\n") + len("```python\n") :].partition("```")[0]
    scope: dict[str, Any] = {"__name__": "receiver"}
    exec(compile(code, str(PAGE), "exec"), scope)
    headers, body = next(each for each in receiver.requests)
    timestamp, signature = headers["x-tidemill-timestamp"], headers["x-tidemill-signature"]
    now_s = int(timestamp) + 10
    accepts = scope["is_from_tidemill"]
    assert accepts(SECRET, timestamp, body, signature, now_s=now_s)
    assert not accepts("another secret", timestamp, body, signature, now_s=now_s)
    assert not accepts(SECRET, timestamp, body + b" ", signature, now_s=now_s)
    assert not accepts(SECRET, str(int(timestamp) + 1), body, signature, now_s=now_s)
    assert not accepts(SECRET, timestamp, body, signature, now_s=int(timestamp) + 301)
