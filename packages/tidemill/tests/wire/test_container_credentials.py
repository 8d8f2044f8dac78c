"""Requests for a job's keys in the form of AWS's container credentials."""

import json
import urllib.error
import urllib.request

import pytest
import toys
from botocore.credentials import ContainerProvider

from tidemill.core.container_credentials import VARIABLE, located, path_of

RIGHT = path_of(toys.TEMPORARY.access_key_id, str(toys.TEMPORARY.session_token))
EXPIRED = path_of(toys.EXPIRED.access_key_id, str(toys.EXPIRED.session_token))


def fetch(port: int, path: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_boto3_gets_the_keys_and_their_end_by_the_variable_of_containers(port: int) -> None:
    variables = located({"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", VARIABLE: RIGHT})
    found = ContainerProvider(environ=variables).load()
    assert found is not None
    frozen = found.get_frozen_credentials()
    temporary = toys.TEMPORARY
    assert (frozen.access_key, frozen.secret_key, frozen.token) == (
        temporary.access_key_id,
        temporary.secret_access_key,
        temporary.session_token,
    )


def test_the_answer_has_the_form_of_containers(port: int) -> None:
    # curl sends the first part of the URL as the name of a user.
    status, body = fetch(port, RIGHT, headers={"Authorization": "Basic MTY5LjI1NC4xNzAuMjo="})
    assert status == 200
    assert json.loads(body) == {
        "RoleArn": toys.TEMPORARY.arn,
        "AccessKeyId": toys.TEMPORARY.access_key_id,
        "SecretAccessKey": toys.TEMPORARY.secret_access_key,
        "Token": toys.TEMPORARY.session_token,
        "Expiration": "2100-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    "path",
    [
        EXPIRED,
        RIGHT[:-1],
        f"{RIGHT}0",
        f"/v2/credentials/{toys.KEY}-",
        path_of(toys.KEY, ""),
        path_of("ASIANOBODY", "x"),
    ],
    ids=["expired", "short", "long", "permanent", "empty token", "unknown"],
)
def test_every_other_path_is_refused(port: int, path: str) -> None:
    status, body = fetch(port, path)
    assert (status, b"<Code>AccessDenied</Code>" in body, b"secret" in body) == (403, True, False)


@pytest.mark.parametrize(
    ("method", "headers"),
    [("POST", {}), ("PUT", {}), ("GET", {"Host": "evil.example"}), ("GET", {"Origin": "http://evil.example"})],
)
def test_web_pages_and_other_methods_get_nothing(port: int, method: str, headers: dict[str, str]) -> None:
    status, body = fetch(port, RIGHT, method=method, headers=headers)
    assert (status in (400, 403, 421, 501), toys.TEMPORARY.secret_access_key.encode() in body) == (True, False)
