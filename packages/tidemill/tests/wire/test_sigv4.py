"""The verifier with AWS's published examples, and where it is deliberately lenient."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tidemill.errors import AwsError
from tidemill.wire.request import Request
from tidemill.wire.signing.credentials import Credential
from tidemill.wire.signing.sigv4 import Claim, Verifier, canonical_query, path_candidates, signing_key

KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
STREAMING = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


class OneKey:
    def lookup(self, access_key_id: str) -> Credential | None:
        return Credential(KEY, SECRET, arn="arn:example") if access_key_id == KEY else None


class Still:
    """A clock that shows the time of the examples."""

    def __init__(self, stamp: str = "20130524T000000Z") -> None:
        self._now = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)

    def now_ms(self) -> int:
        return int(self._now.timestamp() * 1000)

    def monotonic_s(self) -> float:
        return 0.0


def request(method: str, path: str, headers: dict[str, str], query: str = "") -> Request:
    return Request(method, path, query, headers={name.lower(): value for name, value in headers.items()})


def authorization(names: str, signature: str) -> str:
    scope = "20130524/us-east-1/s3/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={KEY}/{scope},SignedHeaders={names},Signature={signature}"


def verify(found: Request, payload: str, **clock: Any) -> Claim:
    verifier = Verifier(OneKey(), region="us-east-1", clock=Still(**clock))
    claim = verifier.claim(found, service="s3")
    verifier.verify(claim, found, payload=payload, is_s3=True)
    return claim


def get_object(**changes: str) -> Request:
    headers = {
        "Host": "examplebucket.s3.amazonaws.com",
        "Range": "bytes=0-9",
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": "20130524T000000Z",
        "Authorization": authorization(
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
    }
    return request("GET", "/test.txt", headers | changes)


def test_the_published_get_object_verifies() -> None:
    assert verify(get_object(), EMPTY).credential.arn == "arn:example"


@pytest.mark.parametrize("changes", [{"Range": "bytes=0-8"}, {"Host": "other"}, {"x-amz-date": "20130524T000001Z"}])
def test_a_changed_header_does_not(changes: dict[str, str]) -> None:
    with pytest.raises(AwsError) as caught:
        verify(get_object(**changes), EMPTY)
    assert caught.value.code == "SignatureDoesNotMatch"


def test_the_published_list_with_a_query_verifies_in_any_order_of_its_parameters() -> None:
    headers = {
        "Host": "examplebucket.s3.amazonaws.com",
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": "20130524T000000Z",
        "Authorization": authorization(
            "host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        ),
    }
    for query in ("max-keys=2&prefix=J", "prefix=J&max-keys=2"):
        verify(request("GET", "/", headers, query), EMPTY)


def test_the_published_presigned_url_verifies_and_expires() -> None:
    query = (
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
        "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
        "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    )
    found = request("GET", "/test.txt", {"Host": "examplebucket.s3.amazonaws.com"}, query)
    assert verify(found, "UNSIGNED-PAYLOAD", stamp="20130524T235959Z").presigned
    with pytest.raises(AwsError, match="expired"):
        verify(found, "UNSIGNED-PAYLOAD", stamp="20130525T000001Z")


def test_the_head_of_the_published_chunked_upload_verifies() -> None:
    headers = {
        "Host": "s3.amazonaws.com",
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
        "Authorization": authorization(
            "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length"
            ";x-amz-storage-class",
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        ),
        "x-amz-content-sha256": STREAMING,
        "Content-Encoding": "aws-chunked",
        "x-amz-decoded-content-length": "66560",
        "Content-Length": "66824",
    }
    verify(request("PUT", "/examplebucket/chunkObject.txt", headers), STREAMING)


def test_a_plus_sign_in_a_query_is_a_plus_sign() -> None:
    assert canonical_query(request("GET", "/", {}, "b=1+2&a=%7e%2f&c")) == "a=~%2F&b=1%2B2&c="


def test_a_path_may_be_signed_as_it_was_sent_or_as_it_is_tidied() -> None:
    assert path_candidates("/b/a%2Fb", is_s3=True) == ["/b/a%2Fb", "/b/a/b"]
    assert path_candidates("/b/(x)", is_s3=True) == ["/b/(x)", "/b/%28x%29"]
    assert path_candidates("/endpoints//./a%20b/../c", is_s3=False) == ["/endpoints/c"]
    assert path_candidates("/a%20b", is_s3=False) == ["/a%2520b"]


def test_the_date_header_replaces_a_missing_amazon_date() -> None:
    from email.utils import format_datetime

    import botocore.auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    now = datetime.now(UTC).replace(microsecond=0)
    made = AWSRequest(method="GET", url="http://h/b/k", headers={"Date": "x"})
    made.context["client_config"] = None
    botocore.auth.S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(made)
    assert "X-Amz-Date" not in made.headers
    headers = dict(made.headers.items()) | {"Host": "h"}
    assert headers["Date"][:16] == format_datetime(now)[:16]
    verify(request("GET", "/b/k", headers), EMPTY, stamp=now.strftime("%Y%m%dT%H%M%SZ"))


def test_the_signing_key_of_the_documentation() -> None:
    key = signing_key("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "20120215", "us-east-1", "iam")
    assert key.hex() == "f4780e2d9f65fa895f9c67b32ce1baf0b0d8a43505a000a1a9e090d414db404d"
