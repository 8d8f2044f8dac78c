"""`tidemill env --sts`: requests to AWS's own host names reach the service, and nothing else sees them."""

import base64
import json
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest

from tidemill.testing import Service

ESCAPES = """
    import boto3, requests, sagemaker, urllib.request
    session = sagemaker.Session()
    print("ACCOUNT", session.account_id())
    print("BUCKET", session.default_bucket())
    print("ROLE", sagemaker.get_execution_role(session))
    print("TELEMETRY", requests.get("https://sm-pysdk-t-us-west-2.s3.us-west-2.amazonaws.com/telemetry").status_code)
    s3 = boto3.client("s3")
    s3.put_object(Bucket=session.default_bucket(), Key="by name/of host.txt", Body=b"kept")
    kept = s3.get_object(Bucket=session.default_bucket(), Key="by name/of host.txt")["Body"].read()
    print("S3", s3.meta.endpoint_url, kept)
    print("JOBS", type(boto3.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]).__name__)
    for library in (requests.get, urllib.request.urlopen):
        try:
            library("https://elsewhere.example/")
        except OSError as error:
            print("ELSEWHERE", "403" in str(error))
"""


class RefusingProxy:
    """A proxy of the user's network that refuses everything and records what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tokens: set[str] = set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://ann:p%40ss@127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client, client.makefile("rb") as lines:
                self.asked.append(lines.readline().decode().split(" ")[1])
                while (line := lines.readline().decode().strip()) != "":
                    name, _, value = line.partition(": ")
                    if name.lower() == "proxy-authorization":
                        self.tokens.add(base64.b64decode(value.partition(" ")[2]).decode())
                client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture
def refusing() -> Iterator[RefusingProxy]:
    proxy = RefusingProxy()
    yield proxy
    proxy.close()


def exports(service: Service, **ambient: str) -> dict[str, str]:
    """Return what `tidemill env --sts --json` prints in a shell with the given variables."""
    done = subprocess.run(
        [sys.executable, "-m", "tidemill.cli", "env", "--sts", "--json", "--state-dir", str(service.state_dir)],
        env={"PATH": "/usr/bin:/bin", **ambient},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def answer(url: str, request: bytes) -> bytes:
    """Return the first line that a proxy answers."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as sock, sock.makefile("rb") as lines:
        sock.sendall(request)
        return lines.readline().strip()


def connect(url: str, *, authorization: str | None = None, target: str = "sts.amazonaws.com:443") -> bytes:
    header = "" if authorization is None else f"Proxy-Authorization: {authorization}\r\n"
    return answer(url, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n".encode())


def basic(url: str) -> str:
    parts = urlsplit(url)
    return "Basic " + base64.b64encode(f"{parts.username}:{parts.password}".encode()).decode()


def test_requests_to_aws_reach_the_service_and_all_others_the_users_proxy(
    tidemill_service: Service, refusing: RefusingProxy, root: Path, tmp_path: Path
) -> None:
    variables = exports(tidemill_service, https_proxy=refusing.url)
    for name in ("AWS_ENDPOINT_URL", "SAGEMAKER_USER_CONFIG_OVERRIDE"):
        del variables[name]  # what these answer already
    done = subprocess.run(
        [root / ".venvs/peers/bin/python", "-c", textwrap.dedent(ESCAPES)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    shown = [line for line in done.stdout.splitlines() if line.split(" ")[0].isupper()]
    assert shown == [
        "ACCOUNT 000000000000",
        "BUCKET sagemaker-us-west-2-000000000000",
        "ROLE arn:aws:iam::000000000000:role/SageMakerRole",
        "TELEMETRY 403",
        "S3 https://s3.us-west-2.amazonaws.com b'kept'",
        "JOBS list",
        "ELSEWHERE True",
        "ELSEWHERE True",
    ], done.stderr
    assert refusing.asked == ["elsewhere.example:443"] * 2
    assert refusing.tokens == {"ann:p@ss"}
    stored = tidemill_service.client("s3").get_object(Bucket=shown[1].split()[1], Key="by name/of host.txt")
    assert stored["Body"].read() == b"kept"


def test_only_a_shell_with_a_token_may_use_the_proxy(tidemill_service: Service) -> None:
    url = exports(tidemill_service)["HTTPS_PROXY"]
    other = exports(tidemill_service)["HTTPS_PROXY"]
    assert basic(url) != basic(other)
    refused = b"HTTP/1.1 407 Proxy Authentication Required"
    assert connect(url) == refused
    assert connect(url, authorization="Basic !") == refused
    assert connect(url, authorization="Bearer x") == refused
    mixed = url.replace(urlsplit(url).password or "", urlsplit(other).password or "")
    assert connect(url, authorization=basic(mixed)) == refused
    assert connect(url, authorization=basic(url)) == b"HTTP/1.1 200 Connection established"
    assert connect(url, authorization=basic(other)) == b"HTTP/1.1 200 Connection established"
    head = f"\r\nProxy-Authorization: {basic(url)}\r\n\r\n".encode()
    assert answer(url, b"GET http://sts.amazonaws.com/ HTTP/1.1" + head) == b"HTTP/1.1 405 Method Not Allowed"
    assert answer(url, b"CONNECT sts.amazonaws.com HTTP/1.1" + head) == b"HTTP/1.1 400 Bad Request"
    assert answer(url, b"CONNECT a:1 HTTP/1.1\r\nX: " + b"x" * 20_000) == (
        b"HTTP/1.1 431 Request Header Fields Too Large"
    )


def test_the_proxy_is_the_same_after_a_restart_and_for_a_shell_that_has_it(tmp_path: Path) -> None:
    with Service() as service:
        assert json.loads((service.state_dir / "service.json").read_text())["aws_proxy_port"] == 0
        variables = exports(service, http_proxy="http://other:1")
        again = exports(service, **variables)
        assert _unsigned(again) == _unsigned(variables)
        assert "," not in variables["NO_PROXY"].removeprefix("127.0.0.1,localhost,::1")
        service.restart()
        session = boto3.Session(
            variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"], region_name="us-west-2"
        )
        config = boto3.session.Config(proxies={"https": variables["HTTPS_PROXY"]})
        sts = session.client("sts", config=config, verify=variables["AWS_CA_BUNDLE"])
        assert sts.meta.endpoint_url == "https://sts.us-west-2.amazonaws.com"
        assert sts.get_caller_identity()["Account"] == "000000000000"


def _unsigned(variables: Mapping[str, str]) -> dict[str, str]:
    proxies = ("HTTPS_PROXY", "https_proxy")
    return {name: value.rpartition("@")[2] if name in proxies else value for name, value in variables.items()}
