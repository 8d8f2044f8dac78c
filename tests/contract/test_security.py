"""The answers of a running service to clients without keys."""

import json
import urllib.error
import urllib.request

import pytest

from tidemill.testing import Service


def fetch(url: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/sagemaker-us-west-2-000000000000", {}),
        ("/sagemaker-us-west-2-000000000000/key", {}),
        ("/", {"X-Amz-Target": "SageMaker.ListTrainingJobs"}),
        ("/", {"X-Amz-Target": "Logs_20140328.DescribeLogStreams"}),
        ("/endpoints/e/invocations", {}),
        ("/v2/credentials/ASIATIDEMILLTESTS000", {}),
        ("/v2/credentials/ASIATIDEMILLTESTS000-0123456789abcdef0123456789abcdef01234567", {}),
        ("/healthz/", {}),
        ("/healthz?list-type=2", {}),
        ("/healthz", {"Authorization": "x"}),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_request_that_is_not_signed_gets_nothing_but_the_health_of_the_service(
    tidemill_service: Service, method: str, path: str, headers: dict[str, str]
) -> None:
    status, _ = fetch(f"{tidemill_service.url}{path}", method=method, headers=headers)
    assert status in (400, 403, 501)  # 501: no client may do that
    status, body = fetch(f"{tidemill_service.url}/healthz")
    assert status == 200
    assert json.loads(body).keys() == {"status", "version", "isolation", "isolation_reason", "warm"}
