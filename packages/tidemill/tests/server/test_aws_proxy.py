"""The proxy of `tidemill env --sts`: hosts that are not AWS's, and processes that leave the proxy again."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidemill.core.aws_hosts import bucket_in, is_aws_host
from tidemill.core.shell_proxy import BUNDLES, proxy_user, without_shell_proxy, write_bundle
from tidemill.environments.uv_command import installer_variables
from tidemill.server.authority import Authority
from tidemill.server.aws_proxy import AwsProxy, ProxyTokens


@contextlib.asynccontextmanager
async def echo(head: bytes = b"", *, seen: list[bytes] | None = None) -> AsyncIterator[int]:
    """Listen, answer the first request with ``head`` if one is given, and send everything else back."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head:
            (seen if seen is not None else []).append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(head)
        while data := await reader.read(1000):
            writer.write(data)
        writer.write(b" end")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def proxy(directory: Path) -> AsyncIterator[tuple[ProxyTokens, int]]:
    tokens = ProxyTokens(directory / "proxy.json")
    tokens.create()
    own = AwsProxy(tokens, Authority(directory / "ca.pem", directory / "ca.key"), service=("127.0.0.1", 1))
    server = await asyncio.start_server(own.serve, "127.0.0.1", 0)
    async with server:
        yield tokens, server.sockets[0].getsockname()[1]


async def through(tokens: ProxyTokens, port: int, target: str, *, upstream: str = "", data: bytes = b"") -> bytes:
    """Send ``data`` to ``target`` through the proxy, and return everything that arrives."""
    pair = tokens.url(port, upstream=upstream).removeprefix("http://").rpartition("@")[0]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    token = base64.b64encode(pair.encode()).decode()
    writer.write(f"CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Basic {token}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " in head:
        writer.write(data)
        writer.write_eof()
        head += await reader.read()
    writer.close()
    return head


def test_bytes_for_other_hosts_pass_unchanged(tmp_path: Path) -> None:
    async def passed() -> bytes:
        async with echo() as port, proxy(tmp_path) as (tokens, at):
            return await through(tokens, at, f"localhost:{port}", data=bytes(range(256)) * 4000)

    assert asyncio.run(passed()).partition(b"\r\n\r\n")[2] == bytes(range(256)) * 4000 + b" end"


def test_other_hosts_are_reached_by_the_proxy_that_the_shell_had(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def passed() -> bytes:
        async with echo(b"HTTP/1.1 200 OK\r\n\r\n", seen=seen) as port, proxy(tmp_path) as (tokens, at):
            return await through(
                tokens, at, "far.example:443", upstream=f"http://ann:p%40ss@127.0.0.1:{port}", data=b"hello"
            )

    assert asyncio.run(passed()).endswith(b"\r\n\r\nhello end")
    token = base64.b64encode(b"ann:p@ss")
    head = b"CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\nProxy-Authorization: Basic "
    assert seen == [head + token + b"\r\n\r\n"]


@pytest.mark.parametrize(
    ("target", "upstream"),
    [
        pytest.param("127.0.0.1:1", "", id="nobody listens"),
        pytest.param("far.example:443", "http://127.0.0.1:1", id="the proxy before it does not listen"),
        pytest.param("sts.amazonaws.com:443", "", id="the service does not listen"),
    ],
)
def test_a_host_that_cannot_be_reached_is_a_bad_gateway(tmp_path: Path, target: str, upstream: str) -> None:
    async def passed() -> bytes:
        async with proxy(tmp_path) as (tokens, at):
            return await through(tokens, at, target, upstream=upstream)

    assert asyncio.run(passed()).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")


@pytest.mark.parametrize(
    ("host", "is_aws", "bucket"),
    [
        ("sts.us-west-2.amazonaws.com", True, None),
        ("s3.us-west-2.amazonaws.com", True, None),
        ("data.s3.us-west-2.amazonaws.com", True, "data"),
        ("my.data.s3.amazonaws.com", True, "my.data"),
        ("data.s3-us-west-2.amazonaws.com", True, "data"),
        ("data.s3.dualstack.us-west-2.amazonaws.com", True, "data"),
        ("data.s3.cn-north-1.amazonaws.com.cn", True, "data"),
        ("sagemaker.us-west-2.api.aws", True, None),
        ("amazonaws.com.example", False, None),
        ("evilamazonaws.com", False, None),
        ("data.s3.example", False, None),
    ],
)
def test_hosts_of_aws(host: str, is_aws: bool, bucket: str | None) -> None:
    assert is_aws_host(host) is is_aws
    assert bucket_in(host) == bucket


def test_a_process_that_leaves_the_proxy_has_the_variables_of_before(tmp_path: Path) -> None:
    before = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://corp:1",
        "https_proxy": "http://corp:1",
        "SSL_CERT_FILE": "/corp.pem",
    }
    bundle = write_bundle(b"certificates", directory=tmp_path, name="x", environ=before)
    proxy_url = f"http://{proxy_user('n', upstream='http://corp:1')}:mac@127.0.0.1:9"
    shell = {
        **before,
        "HTTPS_PROXY": proxy_url,
        "https_proxy": proxy_url,
        **dict.fromkeys(BUNDLES, str(bundle)),
        "NODE_EXTRA_CA_CERTS": "/state/client/aws-authority.pem",
    }
    assert without_shell_proxy(shell) == before
    assert "mac" not in str(installer_variables(shell))
    assert installer_variables(shell)["SSL_CERT_FILE"] == "/corp.pem"
    bundle.unlink()
    assert without_shell_proxy(shell) == {name: before[name] for name in ("PATH", "HTTPS_PROXY", "https_proxy")}
    assert without_shell_proxy(before) == before


def test_the_authority_is_kept(tmp_path: Path) -> None:
    first = Authority(tmp_path / "ca.pem", tmp_path / "ca.key")
    pem = (tmp_path / "ca.pem").read_bytes()
    again = Authority(tmp_path / "ca.pem", tmp_path / "ca.key")
    assert (tmp_path / "ca.pem").read_bytes() == pem
    assert first.context("a.amazonaws.com") is first.context("a.amazonaws.com")
    assert again.context("a.amazonaws.com") is not first.context("a.amazonaws.com")
    assert (tmp_path / "ca.key").stat().st_mode & 0o777 == 0o600
