"""Presigned POST: forms of boto3's ``generate_presigned_post``, sent as a browser sends them."""

import base64
import hmac
import json
from typing import Any
from xml.etree import ElementTree

import pytest
import urllib3
from botocore.exceptions import ClientError

REGION = "us-west-2"


@pytest.fixture(scope="module")
def s3v4(server: Any) -> Any:
    return server.client(signature_version="s3v4")


def send(form: dict[str, Any], body: bytes = b"hello", *, filename: str = "a.txt", **changes: Any) -> Any:
    """Send a form with its file, as a web page of another origin would. A change to None leaves the field out."""
    fields = {name: value for name, value in {**form["fields"], **changes}.items() if value is not None}
    parts = [*fields.items(), ("file", (filename, body, "text/plain")), ("submit", "Upload")]
    data, content_type = urllib3.encode_multipart_formdata(parts)
    headers = {"content-type": content_type, "origin": "http://pages.example.com"}
    with urllib3.PoolManager() as pool:
        return pool.request("POST", form["url"], body=data, headers=headers, redirect=False, retries=False)


def refused(reply: Any) -> tuple[int, str, str]:
    root = ElementTree.fromstring(reply.data)
    return reply.status, root.findtext("Code") or "", root.findtext("Message") or ""


@pytest.mark.parametrize("signature", ["s3v4", "default"])
def test_a_form_uploads_one_object(s3: Any, s3v4: Any, bucket: str, signature: str) -> None:
    client = s3v4 if signature == "s3v4" else s3
    fields = {
        "acl": "private",
        "Content-Type": "text/csv",
        "x-amz-meta-team": "blue",
        "x-amz-storage-class": "STANDARD_IA",
        "tagging": "<Tagging><TagSet><Tag><Key>a</Key><Value>1 &amp; 2</Value></Tag></TagSet></Tagging>",
    }
    conditions = [{name: value} for name, value in fields.items()]
    form = client.generate_presigned_post(bucket, "in/${filename}", Fields=fields, Conditions=conditions)
    assert ("x-amz-signature" in form["fields"]) is (signature == "s3v4")
    body = bytes(range(256)) * 2000 + b"\r\n--not-the-boundary\r\n"
    reply = send(form, body, filename="C:\\data\\a b.csv")
    assert (reply.status, reply.data) == (204, b"")
    found = s3.get_object(Bucket=bucket, Key="in/a b.csv")
    assert found["Body"].read() == body
    assert (found["ContentType"], found["Metadata"], found["StorageClass"]) == (
        "text/csv",
        {"team": "blue"},
        "STANDARD_IA",
    )
    assert reply.headers["etag"] == found["ETag"]
    assert s3.get_object_tagging(Bucket=bucket, Key="in/a b.csv")["TagSet"] == [{"Key": "a", "Value": "1 & 2"}]


def test_the_answer_is_the_one_that_the_form_asks_for(s3v4: Any, bucket: str) -> None:
    conditions = [["starts-with", "$success_action_status", ""], ["starts-with", "$success_action_redirect", "http"]]
    form = s3v4.generate_presigned_post(bucket, "k", Conditions=conditions)
    page = "http://pages.example.com/done?x=1"
    assert send(form, success_action_status="200", success_action_redirect="http:nowhere").status == 200
    redirected = send(form, success_action_status="200", success_action_redirect=page)
    assert redirected.status == 303
    assert redirected.headers["location"].startswith(f"{page}&bucket={bucket}&key=k&etag=%22")
    form = s3v4.generate_presigned_post(bucket, "k", Conditions=[["starts-with", "$success_action_status", ""]])
    made = send(form, success_action_status="201")
    document = {element.tag: element.text for element in ElementTree.fromstring(made.data)}
    assert (made.status, document["Bucket"], document["Key"]) == (201, bucket, "k")
    assert document["ETag"] == made.headers["etag"]
    assert document["Location"] == made.headers["location"] == f"{form['url'].rstrip('/')}/k"


CONDITIONS: list[Any] = [
    ["content-length-range", 3, 5],
    ["starts-with", "$key", "in/"],
    ["eq", "$x-amz-meta-a", "1"],
    ["starts-with", "$Content-Type", "image/"],
]
GOOD = {"x-amz-meta-a": "1", "Content-Type": "image/png"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"body": b"abc"}, None),
        ({"body": b"ab"}, (400, "EntityTooSmall", "2 bytes")),
        ({"body": b"abcdef"}, (400, "EntityTooLarge", "5 bytes")),
        ({"x-amz-meta-a": "2"}, (403, "AccessDenied", '["eq", "$x-amz-meta-a", "1"]')),
        ({"x-amz-meta-a": None}, (403, "AccessDenied", "Policy Condition failed")),
        ({"Content-Type": "text/html"}, (403, "AccessDenied", '"starts-with", "$content-type", "image/"')),
        ({"key": "out/x"}, (403, "AccessDenied", '["starts-with", "$key", "in/"]')),
        ({"x-amz-meta-b": "1"}, (403, "AccessDenied", "Extra input fields: x-amz-meta-b")),
        ({"acl": "public-read"}, (403, "AccessDenied", "Extra input fields: acl")),
        ({"x-ignore-this": "1"}, None),
        ({"x-amz-signature": "0" * 64}, (403, "SignatureDoesNotMatch", "signature")),
        ({"x-amz-signature": None}, (403, "AccessDenied", "not signed")),
        ({"x-amz-credential": "AKIANOBODY/20261126/us-west-2/s3/aws4_request"}, (403, "InvalidAccessKeyId", "AKIA")),
        ({"policy": None}, (403, "AccessDenied", "not signed")),
        ({"key": None}, (400, "InvalidArgument", "key")),
    ],
)
def test_a_form_is_refused_unless_its_policy_allows_it(
    s3: Any, s3v4: Any, bucket: str, changes: dict[str, Any], expected: tuple[int, str, str] | None
) -> None:
    form = s3v4.generate_presigned_post(bucket, "in/${filename}", Fields=GOOD, Conditions=CONDITIONS)
    reply = send(form, **changes)
    if expected is None:
        assert reply.status == 204
        assert s3.head_object(Bucket=bucket, Key="in/a.txt")["ContentType"] == "image/png"
        return
    status, code, message = refused(reply)
    assert (status, code) == expected[:2]
    assert expected[2] in message
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_a_form_of_another_bucket_or_an_earlier_time_is_refused(s3: Any, s3v4: Any, bucket: str) -> None:
    form = s3v4.generate_presigned_post(bucket, "k")
    other = f"{bucket}-other"
    s3.create_bucket(Bucket=other, CreateBucketConfiguration={"LocationConstraint": REGION})
    moved = {**form, "url": form["url"].replace(bucket, other)}
    assert refused(send(moved))[:2] == (403, "AccessDenied")
    expired = s3v4.generate_presigned_post(bucket, "k", ExpiresIn=-1)
    assert refused(send(expired)) == (403, "AccessDenied", "Invalid according to Policy: Policy expired.")
    with pytest.raises(ClientError):
        s3.head_object(Bucket=bucket, Key="k")
    absent = s3v4.generate_presigned_post("no-such-bucket-here", "k")
    assert refused(send(absent))[:2] == (404, "NoSuchBucket")


def signed_anew(s3: Any, form: dict[str, Any], *bucket_conditions: Any, url: str) -> dict[str, Any]:
    """Return a form of the old signature for another URL, with other conditions on the bucket."""
    document = json.loads(base64.b64decode(form["fields"]["policy"]))
    document["conditions"] = [*bucket_conditions, *(each for each in document["conditions"] if "bucket" not in each)]
    policy = base64.b64encode(json.dumps(document).encode())
    digest = hmac.digest(s3._get_credentials().secret_key.encode(), policy, "sha1")
    signature = base64.b64encode(digest).decode()
    return {"url": url, "fields": {**form["fields"], "policy": policy.decode(), "signature": signature}}


def test_a_policy_without_a_bucket_is_not_one_for_every_bucket(server: Any, s3: Any, bucket: str) -> None:
    form = s3.generate_presigned_post(bucket, "k")
    unbound = signed_anew(s3, form, url=form["url"])
    assert refused(send(unbound)) == (403, "AccessDenied", "Invalid according to Policy: Extra input fields: bucket")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    anywhere = ["starts-with", "$bucket", ""]
    assert send(signed_anew(s3, form, anywhere, url=form["url"])).status == 204
    assert refused(send(signed_anew(s3, form, anywhere, url=f"{server.url}/b%C3%BCcket")))[:2] == (404, "NoSuchBucket")


def test_a_changed_policy_is_refused(s3v4: Any, bucket: str) -> None:
    form = s3v4.generate_presigned_post(bucket, "k")
    document = json.loads(base64.b64decode(form["fields"]["policy"]))
    document["expiration"] = "2100-01-01T00:00:00Z"
    changed = base64.b64encode(json.dumps(document).encode()).decode()
    assert refused(send(form, policy=changed))[:2] == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "MalformedPOSTRequest"),
        (b"--b\r\n", "MalformedPOSTRequest"),
        (b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\nk\r\n--b--\r\n', "InvalidArgument"),
        (b"--b\r\nContent-Type: text/plain\r\n\r\nk\r\n--b--\r\n", "MalformedPOSTRequest"),
        (b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n' + b"k" * 30_000, "MalformedPOSTRequest"),
        (
            b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n' + b"k" * 30_000 + b"\r\n--b--\r\n",
            "MaxPostPreDataLengthExceededError",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="key"\r\n\r\n' + b"k" * 200_000 + b"\r\n--b--\r\n",
            "MaxPostPreDataLengthExceededError",
        ),
    ],
)
def test_a_malformed_form_is_refused(server: Any, bucket: str, body: bytes, code: str) -> None:
    with urllib3.PoolManager() as pool:
        reply = pool.request(
            "POST",
            f"{server.url}/{bucket}",
            body=body,
            headers={"content-type": "multipart/form-data; boundary=b"},
            retries=False,
        )
    assert refused(reply)[:2] == (400, code)
