"""Signing in by a key, and the page away from loopback."""

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from playwright.sync_api import Browser, Page, Request

from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory
from tidemill.testing import Service

HOST = "tidemill.test"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that other machines reach under a name, with TLS."""
    files = tmp_path_factory.mktemp("tls")
    certificate = trustme.CA().issue_cert(HOST)
    certificate.private_key_pem.write_to_path(files / "key.pem")
    (files / "key.pem").chmod(0o600)
    certificate.cert_chain_pems[0].write_to_path(files / "certificate.pem")
    settings = {
        "tls_certificate": files / "certificate.pem",
        "tls_key": files / "key.pem",
        "allowed_hosts": [HOST],
        "port": 0,
    }
    with Service(settings=settings) as running:
        yield running


def public_port(service: Service) -> int:
    record = find_service(StateDirectory(service.state_dir))
    assert record is not None
    return int(record.public_url.rpartition(":")[2])


def sign_in(page: Page, key_id: str, secret: str, token: str = "") -> None:
    page.get_by_label("Access key ID").fill(key_id)
    page.get_by_label("Secret access key").fill(secret)
    page.get_by_label("Session token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def test_a_key_signs_in_without_being_sent_or_stored(browser: Browser, remote: Service) -> None:
    iam = remote.client("iam")
    iam.create_user(UserName="ben")
    policy = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
    iam.put_user_policy(UserName="ben", PolicyName="p", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName="ben")["AccessKey"]
    secret = key["SecretAccessKey"]
    port = public_port(remote)
    context = browser.new_context(ignore_https_errors=True, base_url=f"https://{HOST}:{port}")
    page = context.new_page()
    sent: list[str] = []

    def note(request: Request) -> None:
        sent.append(f"{request.url} {request.all_headers()} {request.post_data}")

    page.on("requestfinished", note)
    page.goto("/_tidemill/system")
    sign_in(page, key["AccessKeyId"], f"{secret}x")
    page.get_by_role("alert").get_by_text("SignatureDoesNotMatch").wait_for()
    sign_in(page, "AKIAUNKNOWN000000000", secret)
    page.get_by_role("alert").get_by_text("AKIAUNKNOWN000000000").wait_for()
    sign_in(page, key["AccessKeyId"], secret)
    page.get_by_role("button", name="Sign out").wait_for()
    assert page.locator(".session").get_by_text("ben").is_visible()
    assert sent and not any(secret in each for each in sent)
    assert secret not in page.evaluate("() => JSON.stringify([localStorage, sessionStorage]) + document.body.innerHTML")
    (cookie,) = context.cookies()
    assert (cookie["name"], cookie["secure"], cookie["httpOnly"]) == (f"__Secure-tidemill-{port}", True, True)
    asked = """async target => {
      const {secret} = JSON.parse(localStorage.getItem("tidemill-session"));
      const headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target};
      const init = {method: "POST", headers: {...headers, "x-tidemill-session": secret}, body: "{}"};
      return (await fetch("/_tidemill/call/sagemaker/", init)).json();
    }"""
    assert page.evaluate(asked, "SageMaker.ListModels")["__type"] == "AccessDeniedException"
    page.get_by_role("button", name="Sign out").click()
    # Temporary keys sign in with their token, and only with it.
    import boto3

    session = boto3.Session(key["AccessKeyId"], secret, region_name="us-west-2")
    sts = session.client("sts", endpoint_url=remote.url)
    temporary = sts.get_session_token()["Credentials"]
    sign_in(page, temporary["AccessKeyId"], temporary["SecretAccessKey"])
    page.get_by_role("alert").get_by_text("InvalidToken").wait_for()
    sign_in(page, temporary["AccessKeyId"], temporary["SecretAccessKey"], temporary["SessionToken"])
    page.get_by_role("button", name="Sign out").wait_for()
    context.close()


def test_from_other_machines_the_page_needs_tls(remote: Service, tmp_path: Path) -> None:
    port = int(remote.url.rpartition(":")[2])
    for path in ("/_tidemill/", "/_tidemill/session", "/_tidemill/call/sagemaker/"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", path, headers={"host": f"{HOST}:{port}"})
        answer = connection.getresponse()
        assert answer.status == 403
        assert "HTTPS only" in json.loads(answer.read())["message"]
        connection.close()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    secure: Any = http.client.HTTPSConnection("127.0.0.1", public_port(remote), timeout=60, context=trusting)
    secure.request("GET", "/_tidemill/", headers={"host": HOST})
    answer = secure.getresponse()
    assert answer.status == 200
    assert f"script-src https://{HOST}/_tidemill/assets/;" in answer.headers["content-security-policy"]
    secure.close()
