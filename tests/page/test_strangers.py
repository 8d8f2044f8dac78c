"""What strangers get of the page: web pages of other origins, other hosts, halves of sessions, used tokens."""

import http.client
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tidemill.server.client import own_client
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
LIST = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "SageMaker.ListTrainingJobs"}


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(json.loads(self.body)["__type"])


Ask = Callable[..., Answer]


@pytest.fixture(scope="session")
def ask(service: Service) -> Ask:
    """Return a function that sends a request, without a browser."""
    port = int(service.url.rpartition(":")[2])

    def send(method: str, path: str, headers: Mapping[str, str] | None = None, body: object = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        data = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        connection.request(method, path, body=data, headers=dict(headers or {}))
        reply = connection.getresponse()
        answer = Answer(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
        connection.close()
        return answer

    return send


@pytest.fixture
def start(ask: Ask, tidemill: Any) -> Callable[..., dict[str, str]]:
    """Return a function that begins a session and returns the headers of its requests."""

    def begin(client: Any = tidemill, **options: Any) -> dict[str, str]:
        token = client.create_page_token(**options)["Token"]
        answer = ask("POST", "/_tidemill/session", {"content-type": "application/json"}, {"token": token})
        assert answer.status == 200, answer
        cookie = answer.headers["set-cookie"].partition(";")[0]
        return {"cookie": cookie, "x-tidemill-session": json.loads(answer.body)["secret"]}

    return begin


@pytest.fixture
def user(service: Service) -> Iterator[Callable[[Mapping[str, Any]], Mapping[str, str]]]:
    """Return a function that creates a key of a user with a policy; the key is deleted at the end."""
    iam = service.client("iam")

    def create(policy: Mapping[str, Any]) -> Mapping[str, str]:
        iam.create_user(UserName="ann")
        iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName="ann")["AccessKey"]
        return {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}

    yield create
    for name in iam.list_user_policies(UserName="ann")["PolicyNames"]:
        iam.delete_user_policy(UserName="ann", PolicyName=name)
    for each in iam.list_access_keys(UserName="ann")["AccessKeyMetadata"]:
        iam.delete_access_key(UserName="ann", AccessKeyId=each["AccessKeyId"])
    iam.delete_user(UserName="ann")


def client_of(service: Service, name: str, key: Mapping[str, str]) -> Any:
    """Return a client with a key of its own."""
    import boto3

    session = boto3.Session(region_name="us-west-2", **key)
    return own_client(session, service.url) if name == "tidemill" else session.client(name, endpoint_url=service.url)


def called(ask: Ask, session: Mapping[str, str], operation: str = "ListTrainingJobs", **members: Any) -> Answer:
    headers = {**LIST, "x-amz-target": f"SageMaker.{operation}", **session}
    return ask("POST", "/_tidemill/call/sagemaker/", headers, members)


def test_half_of_a_session_is_nothing(ask: Ask, start: Callable[..., dict[str, str]]) -> None:
    one, other = start(), start()
    assert called(ask, one).status == 200
    name = one["cookie"].partition("=")[0]
    for half in (
        {},
        {"cookie": one["cookie"]},
        {"x-tidemill-session": one["x-tidemill-session"]},
        {"cookie": one["cookie"], "x-tidemill-session": other["x-tidemill-session"]},
        {"cookie": one["cookie"], "x-tidemill-session": ""},
        {"cookie": f"{name}=", "x-tidemill-session": one["x-tidemill-session"]},
        {"cookie": f"{name}={one['x-tidemill-session']}", "x-tidemill-session": one["cookie"].partition("=")[2]},
        {"cookie": one["cookie"].replace(name, "tidemill-1"), "x-tidemill-session": one["x-tidemill-session"]},
    ):
        answer = called(ask, half)
        assert (answer.status, answer.code) == (401, "PageSessionEnded"), half
        assert ask("GET", f"/_tidemill/call/s3/{BUCKET}", half).status == 401
    shadowed = {**one, "cookie": f"{name}=of-another-port; {one['cookie']}"}
    assert called(ask, shadowed).status == 200, "another port's cookie of this name does not lock the user out"


def test_other_origins_and_hosts_are_refused_before_the_session_is_looked_at(
    ask: Ask, start: Callable[..., dict[str, str]], service: Service
) -> None:
    session = start()
    port = service.url.rpartition(":")[2]
    for foreign in (
        {"origin": "http://evil.test"},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{int(port) + 1}"},
        {"origin": f"http://localhost:{port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        assert called(ask, {**session, **foreign}).status == 403, foreign
        json_type = {"content-type": "application/json"}
        assert ask("POST", "/_tidemill/session", {**json_type, **foreign}, {"token": "t"}).status == 403, foreign
        assert ask("DELETE", "/_tidemill/session", {**session, **foreign}).status == 403, foreign
    for host in ("evil.test", f"evil.test:{port}", "127.0.0.1.evil.test", "[::1].evil.test"):
        assert called(ask, {**session, "host": host}).status == 421, host
        assert ask("GET", "/_tidemill/", {"host": host}).status == 421, host
    assert called(ask, {**session, "origin": f"http://127.0.0.1:{port}", "sec-fetch-site": "same-origin"}).status == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert ask("GET", "/_tidemill/jobs", link).status == 200, "a link in a chat leads here: the file says nothing"
    assert ask("GET", "/_tidemill/jobs", {**link, "sec-fetch-dest": "iframe"}).status == 403
    assert ask("GET", f"/_tidemill/call/s3/{BUCKET}", {**session, **link}).status == 403
    assert ask("OPTIONS", "/_tidemill/call/sagemaker/", {"origin": "http://evil.test"}).status == 403


def test_a_token_begins_one_session_even_if_two_use_it_at_once(ask: Ask, tidemill: Any) -> None:
    token = tidemill.create_page_token()["Token"]

    def use(_: int) -> int:
        return ask("POST", "/_tidemill/session", {"content-type": "application/json"}, {"token": token}).status

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(use, range(8))) == [200] + [403] * 7
    for malformed in (b"", b"{", b"[]", b'{"token": 1}', b'{"token": null}', b"[" * 4000):
        answer = ask("POST", "/_tidemill/session", {"content-type": "application/json"}, malformed)
        assert answer.status == 400, malformed
    lone = ask("POST", "/_tidemill/session", {"content-type": "application/json"}, b'{"token": "\\ud800"}')
    assert (lone.status, lone.code) == (403, "PageTokenExpired")
    answer = ask("POST", "/_tidemill/session", {"content-type": "text/plain"}, {"token": token})
    assert answer.status == 400, "what a form of another page can send begins no session"
    assert ask("POST", "/_tidemill/session", {"content-type": "application/json"}, b" " * 5000).status == 413


def test_answers_cannot_be_framed_sniffed_or_run(ask: Ask, start: Callable[..., dict[str, str]], jobs: Any) -> None:
    index = ask("GET", "/_tidemill/jobs")
    policy = index.headers["content-security-policy"]
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy and "default-src 'none'" in policy
    assert f"script-src http://127.0.0.1:{jobs.service.url.rpartition(':')[2]}/_tidemill/assets/;" in policy
    assert b"<script>" not in index.body and b"<style" not in index.body and b"onload" not in index.body
    assert index.headers["cache-control"] == "no-store"
    script = index.body.decode().partition('src="')[2].partition('"')[0]
    assert "immutable" in ask("GET", script).headers["cache-control"]
    assert ask("GET", "/_tidemill/assets/../../server/keys.py").status == 404
    assert ask("GET", "/_tidemill/assets/%2e%2e/index.html").status == 404
    jobs.s3.put_object(Bucket=BUCKET, Key="page/evil.html", Body=b"<script>x</script>", ContentType="text/html")
    session = start()
    answers = [index, ask("GET", script), called(ask, session), called(ask, {})]
    answers.append(ask("GET", f"/_tidemill/call/s3/{BUCKET}/page/evil.html", session))
    answers.append(ask("GET", f"/_tidemill/call/s3/{BUCKET}/no-such-object", session))
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["content-security-policy"] in (policy, "sandbox")
    assert answers[4].body == b"<script>x</script>"
    url = jobs.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "page/evil.html"})
    presigned = ask("GET", url.removeprefix(jobs.service.url))
    assert presigned.body == b"<script>x</script>"
    assert presigned.headers["content-security-policy"] == "sandbox"
    assert presigned.headers["x-content-type-options"] == "nosniff"
    assert "cross-origin-resource-policy" not in presigned.headers, "a page elsewhere may show a picture"


def test_only_a_browser_that_asks_for_the_root_is_led_to_the_page(ask: Ask, service: Service) -> None:
    html = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    led = ask("GET", "/", html)
    assert (led.status, led.headers["location"]) == (302, "/_tidemill/")
    assert ask("GET", "/_tidemill").headers["location"] == "/_tidemill/"
    assert ask("GET", "/", {"accept": "*/*"}).status == 403
    assert b"<Code>" in ask("GET", "/", {"accept": "*/*"}).body
    assert ask("GET", "/?list-type=2", html).status == 403
    s3 = service.client("s3")
    s3.meta.events.register("before-sign.s3", lambda request, **_: request.headers.add_header("Accept", "text/html"))
    assert s3.list_buckets()["Buckets"]


def test_a_session_makes_no_keys_and_no_further_session(ask: Ask, start: Callable[..., dict[str, str]]) -> None:
    session = start()
    own = {"content-type": "application/x-amz-json-1.1", **session}
    for operation in ("CreatePageToken", "DeletePageSessions"):
        answer = ask("POST", "/_tidemill/call/tidemill/", {**own, "x-amz-target": f"Tidemill.{operation}"}, {})
        assert (answer.status, answer.code) == (400, "AccessDeniedException")
    for service in ("sts", "iam", "kms", "tidemill-instances", "", "..", "sagemaker%2f"):
        assert ask("POST", f"/_tidemill/call/{service}/", {**own, "x-amz-target": "SageMaker.ListModels"}, {}).code == (
            "NotFound"
        )
    crossed = ask("POST", "/_tidemill/call/logs/", {**own, "x-amz-target": "TidemillInstances.ReportInstance"}, {})
    assert crossed.code == "UnknownOperationException"


def test_a_read_only_session_changes_nothing(ask: Ask, start: Callable[..., dict[str, str]], jobs: Any) -> None:
    session = start(ReadOnly=True)
    jobs.s3.put_object(Bucket=BUCKET, Key="page/kept", Body=b"kept")
    assert called(ask, session).status == 200
    assert ask("GET", f"/_tidemill/call/s3/{BUCKET}/page/kept", session).body == b"kept"
    for operation, members in {
        "StopTrainingJob": {"TrainingJobName": "j"},
        "DeleteEndpoint": {"EndpointName": "e"},
        "AddTags": {"ResourceArn": f"arn:aws:sagemaker:us-west-2:{'0' * 12}:training-job/j", "Tags": []},
    }.items():
        answer = called(ask, session, operation, **members)
        assert (answer.status, answer.code) == (400, "AccessDeniedException"), operation
        assert "this read-only session" in answer.body.decode()
    for method, path, body in (
        ("PUT", "page/kept", b"changed"),
        ("DELETE", "page/kept", None),
        ("POST", "page/kept?uploads", b""),
    ):
        assert ask(method, f"/_tidemill/call/s3/{BUCKET}/{path}", session, body).status == 403
    own = {"content-type": "application/x-amz-json-1.1", **session}
    for operation, members in {
        "CreatePageToken": {},
        "CreateMetricsToken": {"Name": "n"},
        "DeleteMetricsToken": {"Name": "n"},
        "TestWebhook": {"Name": "n"},
    }.items():
        answer = ask("POST", "/_tidemill/call/tidemill/", {**own, "x-amz-target": f"Tidemill.{operation}"}, members)
        assert "this read-only session" in answer.body.decode(), "it needs no permission, and yet is none that reads"
    waited = {**own, "x-amz-target": "Tidemill.WaitForChanges"}
    interests = {"Interests": [{"Kind": "training-job"}], "WaitSeconds": 0}
    assert ask("POST", "/_tidemill/call/tidemill/", waited, interests).status == 200
    invoke = ask("POST", "/_tidemill/call/sagemaker-runtime/endpoints/e/invocations", session, b"{}")
    assert invoke.code == "AccessDeniedException"
    assert jobs.s3.get_object(Bucket=BUCKET, Key="page/kept")["Body"].read() == b"kept"


def test_a_session_may_do_what_the_policy_of_its_key_allows(
    ask: Ask, start: Callable[..., dict[str, str]], user: Callable[..., Any], service: Service, jobs: Any
) -> None:
    allow = {"Effect": "Allow", "Action": ["sagemaker:List*", "s3:GetObject"], "Resource": "*"}
    deny = {"Effect": "Deny", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/page/secret"}
    key = user({"Version": "2012-10-17", "Statement": [allow, deny]})
    for name in ("secret", "open"):
        jobs.s3.put_object(Bucket=BUCKET, Key=f"page/{name}", Body=name.encode())
    session = start(client_of(service, "tidemill", key))
    assert called(ask, session).status == 200
    assert called(ask, session, "StopTrainingJob", TrainingJobName="j").code == "AccessDeniedException"
    assert ask("GET", f"/_tidemill/call/s3/{BUCKET}/page/open", session).body == b"open"
    assert ask("GET", f"/_tidemill/call/s3/{BUCKET}/page/secret", session).status == 403
    presign = {"content-type": "application/x-amz-json-1.1", "x-amz-target": "Tidemill.PresignDownload", **session}
    answer = ask("POST", "/_tidemill/call/tidemill/", presign, {"Bucket": BUCKET, "Key": "page/secret"})
    assert answer.code == "AccessDeniedException"
    # Temporary keys, with a policy of their own, have a session no longer and with no more rights than these.
    sts = client_of(service, "sts", key)
    iam = service.client("iam")
    role = "arn:aws:iam::000000000000:role/Looker"
    policy = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": role}}
    iam.put_user_policy(UserName="ann", PolicyName="sts", PolicyDocument=json.dumps(policy))
    listing = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}
    assumed = sts.assume_role(RoleArn=role, RoleSessionName="looking", Policy=json.dumps(listing))["Credentials"]
    iam.delete_user_policy(UserName="ann", PolicyName="sts")
    temporary = {
        "aws_access_key_id": assumed["AccessKeyId"],
        "aws_secret_access_key": assumed["SecretAccessKey"],
        "aws_session_token": assumed["SessionToken"],
    }
    narrow = start(client_of(service, "tidemill", temporary))
    assert ask("GET", f"/_tidemill/call/s3/{BUCKET}/page/open", narrow).body == b"open"
    assert called(ask, narrow).code == "AccessDeniedException"
    iam.delete_access_key(UserName="ann", AccessKeyId=key["aws_access_key_id"])
    for ended in (session, narrow):
        assert called(ask, ended).code == "PageSessionEnded", "a revoked key ends its sessions at once"


EVERYTHING: dict[str, dict[str, Any]] = {
    "CreatePageToken": {},
    "DeletePageSessions": {},
    "PresignDownload": {"Bucket": BUCKET, "Key": "page/secret.zip"},
    "ListArchive": {"Bucket": BUCKET, "Key": "page/secret.zip"},
    "ReadArchiveMember": {"Bucket": BUCKET, "Key": "page/secret.zip", "Index": 0},
    "ListJobs": {"Kind": "training"},
    "DescribeJob": {"Kind": "training", "Name": "JOB"},
    "GetLogLines": {"LogGroup": "/aws/sagemaker/TrainingJobs", "LogStream": "STREAM"},
    "SearchLogLines": {"LogGroup": "/aws/sagemaker/TrainingJobs", "LogStream": "STREAM", "Text": "secret"},
    "GetMetricPoints": {"TrainingJobName": "JOB"},
    "ListScalars": {"TrainingJobName": "JOB"},
    "GetScalars": {"TrainingJobName": "JOB"},
    "GetInstanceSamples": {"Kind": "training-job", "Name": "JOB"},
    "ListRunningInstances": {},
    "WaitForChanges": {"Interests": [{"Kind": "training-job"}], "WaitSeconds": 0},
    "DescribeMachine": {},
    "ListEnvironments": {},
    "RunDoctor": {},
    "DescribeEndpointInstances": {"EndpointName": "secret"},
    "DescribeServedModels": {"EndpointName": "secret"},
    "CreateMetricsToken": {"Name": "secret"},
    "ListMetricsTokens": {},
    "DeleteMetricsToken": {"Name": "secret"},
    "ListWebhooks": {},
    "TestWebhook": {"Name": "secret"},
}
"""An input of every operation of tidemill that asks for something there is."""

ANSWERED = {
    "ListRunningInstances": {"Running": []},
    "WaitForChanges": {"Changes": []},
}
"""What a user who may do nothing is answered all the same, apart from tokens."""


def test_a_user_who_may_do_nothing_sees_nothing_by_any_operation(
    ask: Ask, start: Callable[..., dict[str, str]], user: Callable[..., Any], service: Service, jobs: Any, tidemill: Any
) -> None:
    name = jobs.create('print("secret")')
    jobs.s3.put_object(Bucket=BUCKET, Key="page/secret.zip", Body=b"PK\x05\x06" + bytes(18))
    jobs.wait(name)
    (stream,) = jobs.logs_client.describe_log_streams(
        logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{name}/"
    )["logStreams"]
    key = user({"Version": "2012-10-17", "Statement": {"Effect": "Deny", "Action": "*", "Resource": "*"}})
    session = start(client_of(service, "tidemill", key))
    own = {"content-type": "application/x-amz-json-1.1", **session}
    assert set(tidemill.meta.service_model.operation_names) == set(EVERYTHING), "a new operation is tested here, too"
    for operation, members in EVERYTHING.items():
        text = json.dumps(members).replace("JOB", name).replace("STREAM", stream["logStreamName"])
        answer = ask("POST", "/_tidemill/call/tidemill/", {**own, "x-amz-target": f"Tidemill.{operation}"}, text)
        if operation in ANSWERED:
            assert ANSWERED[operation].items() <= json.loads(answer.body).items(), (operation, answer)
        else:
            assert (answer.status, answer.code) == (400, "AccessDeniedException"), (operation, answer)
    for target, members in (
        ("SageMaker.DescribeTrainingJob", {"TrainingJobName": name}),
        ("SageMaker.ListTrainingJobs", {}),
        ("SageMaker.Search", {"Resource": "TrainingJob"}),
    ):
        answer = ask("POST", "/_tidemill/call/sagemaker/", {**own, "x-amz-target": target}, members)
        assert answer.code == "AccessDeniedException", (target, answer)
    for path in ("", BUCKET, f"{BUCKET}/page/secret.zip"):
        assert ask("GET", f"/_tidemill/call/s3/{path}", session).status == 403


def test_no_file_of_the_service_has_the_secrets_of_a_session(
    ask: Ask, start: Callable[..., dict[str, str]], service: Service
) -> None:
    session = start()
    assert called(ask, session).status == 200
    secrets = (session["cookie"].partition("=")[2], session["x-tidemill-session"])
    # Neither the database nor the log has them.
    files = [path for path in service.state_dir.rglob("*") if path.is_file() and not path.is_socket()]
    for path in files:
        content = path.read_bytes()
        assert not any(secret.encode() in content for secret in secrets), f"{path} has a secret of a session"
    assert ask("DELETE", "/_tidemill/session", session).status == 204
    assert called(ask, session).code == "PageSessionEnded"


def test_revoking_ends_all_sessions_of_a_key(
    ask: Ask, start: Callable[..., dict[str, str]], user: Callable[..., Any], service: Service
) -> None:
    """With a key of its own: the tests' browser keeps its session."""
    key = user({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}})
    own, sessions = start(), [start(client_of(service, "tidemill", key)) for _ in range(2)]
    variables = {
        "AWS_ACCESS_KEY_ID": key["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": key["aws_secret_access_key"],
        "AWS_REGION": "us-west-2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", "open", "--revoke", "--endpoint-url", service.url],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "2 sessions of the page ended\n"
    assert [called(ask, each).code for each in sessions] == ["PageSessionEnded"] * 2
    assert called(ask, own).status == 200


def test_the_address_of_tidemill_open_is_in_no_list_of_processes(
    browser: Browser, service: Service, tmp_path: Path
) -> None:
    seen = tmp_path / "arguments"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", "open", "--state-dir", str(service.state_dir)],
        env={**os.environ, "BROWSER": f"{program} %s", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    address = done.stdout.splitlines()[-1]
    assert "#token=" in address
    arguments = seen.read_text()
    file = tmp_path / "tidemill/open.html"
    assert arguments.strip() == file.as_uri()
    assert address in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    context = browser.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    page.get_by_role("button", name="Sign out").wait_for()
    context.close()
    assert "token=" not in service.log


class _Foreign(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>another page</title><p>another page</p>")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def foreign() -> Iterator[int]:
    """Yield the port of a web server of somebody else on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Foreign)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


ATTACK = """
async ([url, listed]) => {
  const found = [];
  const attempts = {
    cors: {mode: "cors", credentials: "include", headers: listed},
    plain: {mode: "no-cors", credentials: "include"},
    post: {method: "POST", mode: "no-cors", credentials: "include", body: "{}"},
  };
  for (const path of ["/_tidemill/call/sagemaker/", "/_tidemill/session", "/_tidemill/", "/"]) {
    for (const [name, options] of Object.entries(attempts)) {
      try {
        const answer = await fetch(url + path, {...options, method: options.method || "GET"});
        if (answer.type !== "opaque") found.push([path, name, answer.status, await answer.text()]);
      } catch {}
    }
  }
  return found;
}
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.test"])
def test_a_page_of_another_origin_gets_nothing(
    signed_in: BrowserContext, foreign: int, service: Service, host: str
) -> None:
    page = signed_in.new_page()
    page.goto(f"http://{host}:{foreign}/")
    statuses: list[tuple[str, int]] = []
    page.on("response", lambda answer: statuses.append((answer.url, answer.status)))
    assert page.evaluate(ATTACK, [service.url, {"x-tidemill-session": "guessed"}]) == []
    assert statuses, "the requests were sent"
    assert {status for url, status in statuses if url.startswith(service.url)} == {403}
    # In a frame, in a script, in a style, in a picture: nothing is shown, nothing runs.
    page.evaluate(
        """url => new Promise(done => {
          const frame = document.createElement("iframe");
          frame.src = url + "/_tidemill/jobs";
          frame.onload = frame.onerror = () => done(null);
          document.body.append(frame);
        })""",
        service.url,
    )
    assert "Sign out" not in "".join(frame.locator("body").inner_text() for frame in page.frames[1:] if frame.url)
    assert page.evaluate("() => localStorage.getItem('tidemill-session')") is None, "storage is per port"
    page.close()


def test_a_rebinding_host_gets_nothing(signed_in: BrowserContext, service: Service) -> None:
    port = service.url.rpartition(":")[2]
    page = signed_in.new_page()
    answer = page.goto(f"http://rebound.test:{port}/_tidemill/jobs")
    assert answer is not None and answer.status == 421
    assert page.evaluate("() => window.origin") == "null"
    # The page that the name led to before: its origin is the same as that of the service under this name.
    page.route("**/earlier", lambda route: route.fulfill(body="<p>earlier</p>", content_type="text/html"))
    page.goto(f"http://rebound.test:{port}/earlier")
    statuses = page.evaluate(
        """async () => {
          const asked = [["GET", ""], ["POST", "call/sagemaker/"], ["POST", "session"]];
          const status = ([method, path]) => fetch("/_tidemill/" + path, {method}).then((r) => r.status, () => 0);
          return Promise.all(asked.map(status));
        }"""
    )
    assert set(statuses) <= {0, 421}, "refused by the browser, which knows networks, or by the service"
    assert page.evaluate("() => document.cookie + JSON.stringify(localStorage)") == "{}"
    page.close()


def test_an_object_never_runs_as_a_page_of_the_service(signed_in: BrowserContext, jobs: Any, service: Service) -> None:
    script = "<body><script>document.title = 'ran ' + localStorage.getItem('tidemill-session')</script>text</body>"
    picture = "<svg xmlns='http://www.w3.org/2000/svg'><script>document.documentElement.id = 'ran'</script></svg>"
    for name, body, kind in (("a.html", script, "text/html"), ("a.svg", picture, "image/svg+xml")):
        jobs.s3.put_object(Bucket=BUCKET, Key=f"page/{name}", Body=body.encode(), ContentType=kind)
        url = jobs.s3.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": f"page/{name}"})
        page = signed_in.new_page()
        page.goto(url)
        assert page.evaluate("() => document.documentElement.id + document.title") == ""
        assert page.evaluate("() => window.origin") == "null"
        page.close()


def test_the_policy_of_the_page_stops_markup_and_scripts_if_a_fault_lets_them_in(
    page_of: Callable[..., Page],
) -> None:
    page = page_of("jobs", expected=("Content Security Policy", "TrustedHTML", "Refused", "violates", "requires"))
    stopped = page.evaluate(
        """async () => {
          const results = [];
          try { document.body.insertAdjacentHTML("beforeend", "<img src=x>"); results.push("markup"); } catch {}
          // Not in this call: the debugger that makes it may evaluate text.
          await new Promise((done) => setTimeout(() => {
            try { new Function("return 1")(); results.push("eval"); } catch {}
            done();
          }));
          const inline = document.createElement("div");
          try { inline.setAttribute("onclick", "window.ran = 1"); results.push("inline handler"); } catch {}
          const script = document.createElement("script");
          try { script.src = "/sagemaker-us-west-2-000000000000/page/evil.js"; results.push("script"); } catch {}
          const style = document.createElement("style");
          style.textContent = "h1 { color: rgb(1, 2, 3) }";
          document.head.append(style);
          if (getComputedStyle(document.querySelector("h1")).color === "rgb(1, 2, 3)") results.push("inline style");
          return results;
        }"""
    )
    assert stopped == []


def test_an_address_that_signs_in_somebody_else_asks_first(
    browser: Browser, service: Service, tidemill: Any, user: Callable[..., Any]
) -> None:
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    key = user({"Version": "2012-10-17", "Statement": everything})
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{service.url}/_tidemill/#token={tidemill.create_page_token()['Token']}")
    page.get_by_role("button", name="Sign out").wait_for()
    page.goto("about:blank")
    token = client_of(service, "tidemill", key).create_page_token(ReadOnly=True)["Token"]
    page.goto(f"{service.url}/_tidemill/#token={token}")
    page.get_by_role("heading", name="Sign in as another user?").wait_for()
    page.get_by_role("button", name="Sign in as the other user").click()
    page.get_by_text("read-only").wait_for()
    assert page.locator(".session").get_by_text("ann").is_visible()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in").wait_for()
    context.close()
