"""Which requests are for the page, and which of them may only come from it."""

import asyncio

import pytest

from tidemill.errors import AwsError
from tidemill.wire.page.entrance import PageEntrance, make_safe
from tidemill.wire.reply import HttpReply
from tidemill.wire.request import Request, is_navigation
from tidemill.wire.signing.credentials import Credential

HTML = "text/html,*/*;q=0.8"


def request(path: str = "/", method: str = "GET", query: str = "", scheme: str = "http", **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in {"host": "127.0.0.1:8780", **headers}.items()}
    return Request(method, path, query, headers=named, scheme=scheme)


@pytest.mark.parametrize("path", ["/_tidemill", "/_tidemill/", "/_tidemill/jobs", "/_tidemill/call/s3/b/k"])
def test_what_is_below_the_path_of_the_page_is_for_it_unless_it_is_a_key_at_a_host_of_aws(path: str) -> None:
    assert PageEntrance.is_for(request(path))
    assert not PageEntrance.is_for(request(path, host="bucket.s3.us-west-2.amazonaws.com"))


@pytest.mark.parametrize("path", ["/", "/_tidemillx", "/bucket/_tidemill/", "//_tidemill/", "/%5ftidemill/"])
def test_other_paths_are_not_for_the_page(path: str) -> None:
    assert not PageEntrance.is_for(request(path))


def test_only_a_browser_at_the_root_is_led_to_the_page() -> None:
    assert PageEntrance.is_at_root(request(accept=HTML))
    assert not PageEntrance.is_at_root(request())
    assert not PageEntrance.is_at_root(request(accept=HTML, authorization="AWS4-HMAC-SHA256 ..."))
    assert not PageEntrance.is_at_root(request(query="X-Amz-Signature=1", accept=HTML))
    assert not PageEntrance.is_at_root(request("/bucket", accept=HTML))
    assert not PageEntrance.is_at_root(request(accept=HTML, host="s3.us-west-2.amazonaws.com"))


def test_a_call_is_the_request_of_a_client_without_the_session() -> None:
    called = request("/_tidemill/call/s3/b/a%2Fb", query="x=1", cookie="c", x_tidemill_session="s", accept="*/*")
    assert PageEntrance.called_service(called) == "s3"
    inner = PageEntrance.inner(called, "s3")
    assert (inner.raw_path, inner.query_string) == ("/b/a%2Fb", "x=1")
    assert inner.headers == {"host": "127.0.0.1:8780", "accept": "*/*"}
    assert PageEntrance.called_service(request("/_tidemill/jobs")) is None
    for service in ("sts", "iam", "kms", "tidemill-instances", "", "S3", "%73%33"):
        with pytest.raises(AwsError, match="The page calls no service"):
            PageEntrance.called_service(request(f"/_tidemill/call/{service}/"))


def test_away_from_loopback_the_page_needs_tls() -> None:
    for host in ("127.0.0.1:1", "localhost", "[::1]:8780", "127.9.9.9"):
        PageEntrance.check_transport(request(host=host))
    PageEntrance.check_transport(request(host="tidemill.example", scheme="https"))
    with pytest.raises(AwsError, match="by HTTPS only"):
        PageEntrance.check_transport(request(host="tidemill.example"))


def test_a_link_is_a_navigation_of_a_window_and_nothing_else_is() -> None:
    link = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert is_navigation(request(**link))
    assert not is_navigation(request(method="POST", **link))
    for other in ({"sec_fetch_dest": "iframe"}, {"sec_fetch_mode": "cors"}, {"sec_fetch_dest": "script"}):
        assert not is_navigation(request(**{**link, **other}))
    assert not is_navigation(request())


def test_every_answer_is_made_safe_once() -> None:
    plain, of_page = HttpReply(200, []), HttpReply(200, [(b"content-security-policy", b"own")])
    make_safe(plain, of_page=False)
    assert dict(plain.headers) == {b"content-security-policy": b"sandbox", b"x-content-type-options": b"nosniff"}
    make_safe(of_page, of_page=True)
    names = [name for name, _ in of_page.headers]
    assert len(names) == len(set(names))
    assert dict(of_page.headers)[b"content-security-policy"] == b"own"
    assert dict(of_page.headers)[b"cache-control"] == b"no-store"


def test_a_password_that_a_browser_keeps_for_this_port_is_no_signature() -> None:
    worker = {"service_worker": "script"}
    assert PageEntrance.is_for_worker(request("/worker.js", **worker))
    assert PageEntrance.is_for_worker(request("/worker.js", authorization="Basic dTpw", **worker))
    assert not PageEntrance.is_for_worker(request("/worker.js", authorization="AWS4-HMAC-SHA256 ...", **worker))
    assert PageEntrance.is_at_root(request(accept=HTML, authorization="Basic dTpw"))


class _Sessions:
    """Knows one session."""

    async def credential(self, cookie: str, secret: str, *, over_tls: bool) -> Credential | None:
        return Credential("AKIAUSER", "key") if (cookie, secret, over_tls) == ("own", "secret", False) else None


def test_cookies_of_another_port_for_every_beginning_of_a_path_lock_nobody_out() -> None:
    entrance = PageEntrance(None, _Sessions(), None, region="us-west-2")  # type: ignore[arg-type]
    path = "/_tidemill/call/s3/bucket/a/b/c"
    foreign = "; ".join("tidemill-8780=foreign" for _ in range(2 * path.count("/")))
    call = request(path, cookie=f"{foreign}; tidemill-8780=own", x_tidemill_session="secret")
    assert asyncio.run(entrance.credential(call)).access_key_id == "AKIAUSER"
