"""Every bad request of the table gets its own refusal, and the service keeps working."""

import contextlib
from collections.abc import Iterator

import hostile
import pytest
import toys
from hostile import Row, Target
from signing import json_call, presigned
from structlog.testing import LogCapture


@pytest.fixture(scope="module")
def target(port: int) -> Target:
    return Target(port, toys.KEY, toys.SECRET)


@pytest.fixture(scope="module")
def healthy_port(toy: toys.Toys) -> Iterator[int]:
    """Yield the port of services that answer a health check."""
    with toys.serving(toys.toy_gateway(toy, health={"isolation": "mount"})) as port:
        yield port


@pytest.mark.parametrize("row", hostile.ROWS, ids=lambda row: row.name)
def test_a_bad_request_is_refused(row: Row, target: Target) -> None:
    row.check(target)


def test_a_good_request_is_answered_so_that_the_refusals_mean_something(target: Target) -> None:
    assert target.send(target.call()).status == 200
    assert target.send(target.call(hostile.CREATE, hostile._job())).status == 200
    assert target.send(target.s3(body=b"hello")).status == 200
    assert target.send(target.url()).body == b"hello"
    for kind, trailers in [
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", None),
        (hostile.TRAILER, {"x-amz-checksum-crc32": hostile.crc32(b"helloworld")}),
        (hostile.UNSIGNED, {"x-amz-checksum-crc32": hostile.crc32(b"helloworld")}),
    ]:
        announced = "x-amz-checksum-crc32" if trailers else None
        upload = target.chunked(b"hello", b"world", kind=kind, announced=announced, trailers=trailers)
        answer = target.send(upload.raw())
        assert answer.status == 200, answer.text
        assert target.send(target.s3("GET", "/bucket/chunked")).body == b"helloworld"


def test_a6_another_region_is_refused_in_strict_mode(toy: toys.Toys, target: Target) -> None:
    assert target.send(target.call(region="eu-west-1")).status == 200
    with toys.serving(toys.toy_gateway(toy, strict_region=True)) as port:
        strict = Target(port, toys.KEY, toys.SECRET)
        answer = strict.send(strict.call(region="eu-west-1"))
        assert (answer.status, answer.code) == (400, "AuthorizationHeaderMalformed")
        assert strict.send(strict.call()).status == 200


@pytest.mark.parametrize(
    ("credential", "token", "code"),
    [
        (toys.TEMPORARY, toys.TEMPORARY.session_token, None),
        (toys.TEMPORARY, None, "InvalidToken"),
        (toys.TEMPORARY, "another-token", "InvalidToken"),
        (toys.EXPIRED, toys.EXPIRED.session_token, "ExpiredToken"),
        (toys.Keys().lookup(toys.KEY), "token-of-nobody", "InvalidToken"),
    ],
    ids=["right", "A12 none", "wrong", "A13 expired", "on a permanent key"],
)
def test_a_temporary_key_needs_its_own_living_token(
    target: Target, credential: toys.Credential, token: str | None, code: str | None
) -> None:
    keys = {"key": credential.access_key_id, "secret": credential.secret_access_key, "token": token}
    for request in (json_call(target.port, hostile.LIST, b"{}", **keys), presigned(target.port, "/bucket/key", **keys)):
        answer = target.send(request)
        assert (answer.status < 400) == (code is None), answer.text
        assert code is None or answer.code == code


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8780"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Host": "rebound.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_health_check_is_answered_to_no_web_page(
    healthy_port: int, method: str, fields: dict[str, str], status: int
) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", healthy_port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, "/healthz", headers=fields)
        reply = connection.getresponse()
        body = reply.read()
    assert reply.status == status
    assert (b'"isolation": "mount"' in body) == (status == 200 and method == "GET")


def test_unknown_members_are_ignored_and_logged(target: Target, toy: toys.Toys, wire_log: LogCapture) -> None:
    answer = target.send(
        target.call(hostile.CREATE, hostile._job(Nonsense=1, Tags=[{"Key": "k", "Value": "v", "X": 1}]))
    )
    assert answer.status == 200
    assert "Nonsense" not in toy.seen[-1][1]
    assert any(
        entry["event"] == "wire.unknown_members" and entry["members"] == ["Nonsense", "Tags.0.X"]
        for entry in wire_log.entries
    )


def test_any_instance_type_and_role_is_accepted(target: Target) -> None:
    config = {"InstanceCount": 1, "InstanceType": "local-2cpu", "VolumeSizeInGB": 1}
    body = hostile._job(ResourceConfig=config, RoleArn="SageMakerRole")
    assert target.send(target.call(hostile.CREATE, body)).status == 200


def test_a_refused_request_leaves_the_connection_usable_when_its_body_was_read(target: Target) -> None:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=20)
    for expected in (400, 200, 400, 200):
        call = target.call(body=b"{" if expected == 400 else b"{}")
        connection.request("POST", "/", body=call.body, headers=dict(call.headers))
        reply = connection.getresponse()
        reply.read()
        assert reply.status == expected
        assert reply.getheader("connection") != "close"
    connection.close()


def test_every_reply_names_its_request(target: Target) -> None:
    assert target.send(target.call()).headers["x-amzn-requestid"]
    assert target.send(target.call(secret="wrong")).headers["x-amzn-errortype"] == "SignatureDoesNotMatch"
    answer = target.send(target.s3("GET", "/bucket/absent"))
    assert answer.headers["x-amz-request-id"] in answer.text
