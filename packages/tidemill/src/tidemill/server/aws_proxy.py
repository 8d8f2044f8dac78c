"""The HTTPS proxy of `tidemill env --sts`: AWS's host names reach the service, all other hosts are passed through.

Some clients name AWS's address themselves, e.g. that of STS, so `AWS_ENDPOINT_URL` does not redirect them. A shell
that uses this proxy sends their requests here: the proxy ends TLS with a certificate that this shell trusts, and
forwards the bytes to the service, which verifies the signature as of any other request.

The proxy listens on loopback once a shell has asked for it, and asks for a token. A token is made for one shell from a
secret in the state directory, so the service keeps no list of them. It also names the proxy that the shell used before,
through which other hosts are reached.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import secrets
import signal
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import structlog

from tidemill.core.aws_hosts import is_aws_host
from tidemill.core.files import read_json, write_json
from tidemill.core.shell_proxy import named_upstream, proxy_user
from tidemill.server.listener import listening

if TYPE_CHECKING:
    from tidemill.server.authority import Authority

_HEAD_MAX_BYTES = 16 * 1024
_HEAD_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 30.0
_CHUNK_BYTES = 64 * 1024

_log = structlog.get_logger("tidemill.server")


@dataclass(frozen=True, slots=True)
class ProxyTokens:
    """Makes and checks the tokens with which shells use the proxy.

    Attributes:
        file: Holds the secret, and the port that the proxy had last. It exists once a shell has asked for the proxy.
    """

    file: Path

    @property
    def wanted(self) -> bool:
        """Whether a shell has asked for the proxy."""
        return self.file.exists()

    @property
    def port(self) -> int:
        """The port that the proxy had last; 0 if it never listened."""
        return int((read_json(self.file) or {}).get("port", 0))

    def keep_port(self, port: int) -> None:
        """Record the port, so that shells reach the proxy after a restart, too.

        Args:
            port: The port on which the proxy listens.
        """
        write_json(self.file, {**(read_json(self.file) or {}), "port": port})

    def create(self) -> None:
        """Make the secret unless it exists."""
        if not self.wanted:
            write_json(self.file, {"secret": secrets.token_hex(32), "port": 0})

    def url(self, port: int, *, upstream: str = "") -> str:
        """Return the proxy's URL with a new token, for one shell.

        Args:
            port: The proxy's port.
            upstream: URL of the proxy through which the shell reaches other hosts; empty for none.
        """
        user = proxy_user(secrets.token_hex(8), upstream=upstream)
        return f"http://{user}:{self._mac(user)}@127.0.0.1:{port}"

    def upstream_of(self, authorization: str) -> str | None:
        """Return the upstream proxy that a token names, or None if the token is not valid.

        Args:
            authorization: Value of the header Proxy-Authorization.
        """
        scheme, _, encoded = authorization.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            user, _, password = base64.b64decode(encoded, validate=True).decode("ascii").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        if not hmac.compare_digest(password.encode(), self._mac(user).encode()):
            return None
        return named_upstream(user)

    def _mac(self, user: str) -> str:
        secret = (read_json(self.file) or {})["secret"]
        return hmac.new(bytes.fromhex(secret), user.encode(), hashlib.sha256).hexdigest()


@contextlib.asynccontextmanager
async def offer_proxy(
    tokens: ProxyTokens,
    *,
    authority: tuple[Path, Path],
    service: tuple[str, int],
    opened: Callable[[int], None],
) -> AsyncGenerator[None]:
    """Open the proxy if a shell has asked for it, or when one does: `tidemill env --sts` sends SIGUSR1.

    Args:
        tokens: Made by `tidemill env --sts`.
        authority: Files of the authority's certificate, which shells trust, and of its private key.
        service: Host and port of the service.
        opened: Called with the port on which the proxy listens.
    """
    from tidemill.server.authority import Authority

    loop = asyncio.get_running_loop()
    stack = contextlib.AsyncExitStack()
    listens = False

    async def open_once() -> None:
        nonlocal listens
        if listens or not tokens.wanted:
            return
        listens = True
        sock = stack.enter_context(listening(host="127.0.0.1", port=tokens.port, or_next=True))
        proxy = AwsProxy(tokens, Authority(*authority), service=service)
        server = await asyncio.start_server(proxy.serve, sock=sock, limit=_HEAD_MAX_BYTES)
        stack.callback(server.close)
        port = sock.getsockname()[1]
        tokens.keep_port(port)
        _log.info("aws_proxy.listens", port=port)
        opened(port)

    async with stack:
        await open_once()
        tasks: set[asyncio.Task[None]] = set()

        def asked() -> None:
            tasks.add(task := asyncio.ensure_future(open_once()))
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGUSR1, asked)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)


class _Refused(Exception):
    """The request cannot be answered; the arguments are the status line's text and further lines of the head."""


class AwsProxy:
    """Answers the CONNECT requests of shells that have a token.

    Args:
        tokens: Checks tokens.
        authority: Makes the certificates of AWS's host names.
        service: Host and port of the service.
    """

    def __init__(self, tokens: ProxyTokens, authority: "Authority", *, service: tuple[str, int]) -> None:
        self._tokens = tokens
        self._authority = authority
        self._service = service

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it.

        Args:
            reader: Reads what the client sends.
            writer: Writes to the client.
        """
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                await self._serve(reader, writer)
            except _Refused as refusal:
                text = "\r\n".join((f"HTTP/1.1 {refusal.args[0]}", *refusal.args[1:], "Content-Length: 0"))
                writer.write(f"{text}\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port, upstream = await self._target(reader)
        aws = is_aws_host(host)
        far_reader, far_writer = await (self._reach(*self._service) if aws else self._pass_on(host, port, upstream))
        with contextlib.closing(far_writer):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            if aws:
                context = await asyncio.to_thread(self._authority.context, host)
                await writer.start_tls(context, ssl_handshake_timeout=_HEAD_TIMEOUT_S)
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    async def _target(self, reader: asyncio.StreamReader) -> tuple[str, int, str]:
        """Read the head of a CONNECT request; return host, port and the upstream proxy of the shell."""
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_TIMEOUT_S)
        except asyncio.LimitOverrunError:
            raise _Refused("431 Request Header Fields Too Large") from None
        except TimeoutError:
            raise _Refused("408 Request Timeout") from None
        request, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        upstream = self._tokens.upstream_of(headers.get("proxy-authorization", ""))
        if upstream is None:
            raise _Refused("407 Proxy Authentication Required", 'Proxy-Authenticate: Basic realm="tidemill env --sts"')
        method, _, rest = request.partition(" ")
        if method != "CONNECT":
            raise _Refused("405 Method Not Allowed", "Allow: CONNECT")
        host, _, port = rest.partition(" ")[0].rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise _Refused("400 Bad Request")
        return host.strip("[]").rstrip(".").lower(), int(port), upstream

    async def _pass_on(self, host: str, port: int, upstream: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host that is not AWS's, through the proxy that the shell used before if there is one."""
        if not upstream:
            return await self._reach(host, port)
        proxy = _Upstream(upstream)
        reader, writer = await self._reach(proxy.host, proxy.port, tls=proxy.tls)
        writer.write(proxy.connect(f"[{host}]:{port}" if ":" in host else f"{host}:{port}"))
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _CONNECT_TIMEOUT_S)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise _Refused("502 Bad Gateway") from error
        status = head.split(b"\r\n")[0].decode("latin-1").partition(" ")[2]
        if not status.startswith("2"):
            writer.close()
            raise _Refused(status or "502 Bad Gateway")
        return reader, writer

    @staticmethod
    async def _reach(host: str, port: int, *, tls: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.wait_for(asyncio.open_connection(host, port, ssl=tls or None), _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise _Refused("502 Bad Gateway") from error


@dataclass(frozen=True)
class _Upstream:
    """A proxy by its URL, as in HTTPS_PROXY."""

    url: str

    @cached_property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url if "://" in self.url else f"http://{self.url}")

    @property
    def host(self) -> str:
        return self._parts.hostname or ""

    @property
    def tls(self) -> bool:
        return self._parts.scheme == "https"

    @property
    def port(self) -> int:
        return self._parts.port or (443 if self.tls else 80)

    def connect(self, target: str) -> bytes:
        """Return the request that asks the proxy for a connection to ``target``."""
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self._parts.username is not None:
            pair = f"{unquote(self._parts.username)}:{unquote(self._parts.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end; then end the other direction, so that neither side waits for the other."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            return
    except OSError:
        pass
    writer.close()
