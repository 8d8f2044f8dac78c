"""The entrance of browsers: files of the page, sessions, and calls, which have a session instead of a signature."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol

from tidemill.core.aws_hosts import is_aws_host
from tidemill.errors import AwsError
from tidemill.wire.page.files import PageFiles
from tidemill.wire.page.metrics import MetricsPage
from tidemill.wire.page.paths import CALL, METRICS, PREFIX, SESSION
from tidemill.wire.reply import HttpReply
from tidemill.wire.request import Request, host_name, media_type
from tidemill.wire.signing.credentials import Credential

SERVICES = frozenset(
    (
        *("application-autoscaling", "cloudwatch", "logs", "s3"),
        *("sagemaker", "sagemaker-metrics", "sagemaker-runtime", "tidemill"),
    )
)
"""What the page may call. Not STS and IAM: these hand out keys, which would outlive a session."""

_POLICY = b"content-security-policy"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

_SECRET = "x-tidemill-session"  # noqa: S105 - the name of a header
_BODY_MAX = 4096


class BrowserSession(Protocol):
    """A session that has just begun; see `tidemill.control.page_sessions`."""

    @property
    def cookie(self) -> str: ...
    @property
    def secret(self) -> str: ...
    @property
    def credential(self) -> Credential: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def expires_ms(self) -> int: ...


class BrowserSessions(Protocol):
    """The sessions of browsers; see `tidemill.control.page_sessions`."""

    async def start(self, token: str) -> BrowserSession | None: ...
    async def credential(self, cookie: str, secret: str) -> Credential | None: ...
    async def end(self, cookie: str) -> None: ...


class PageEntrance:
    """Answers what browsers ask for, except for calls, of which it knows who sends them.

    Args:
        files: The built page.
        sessions: The sessions of browsers.
        metrics: Answers monitors.
        region: The service's region, for the page.
    """

    def __init__(self, files: PageFiles, sessions: BrowserSessions, metrics: MetricsPage, *, region: str) -> None:
        self._files = files
        self._sessions = sessions
        self._metrics = metrics
        self._region = region

    @staticmethod
    def is_for(request: Request) -> bool:
        """Return whether a request is one for the page.

        At AWS's hosts, which a proxy brings here, the path is a key of an object.
        """
        path = request.raw_path
        if not path.startswith(PREFIX) and path != PREFIX[:-1]:
            return False
        return not is_aws_host(host_name(request.headers.get("host", "")) or "")

    @staticmethod
    def called_service(request: Request) -> str | None:
        """Return the service that a request calls, e.g. ``sagemaker``; None if it is no call.

        Raises:
            AwsError: NotFound, the page may not call the service.
        """
        if not request.raw_path.startswith(CALL):
            return None
        service = request.raw_path.removeprefix(CALL).partition("/")[0]
        if service not in SERVICES:
            raise AwsError(
                f"The page calls no service {service[:64]!r}; it calls {', '.join(sorted(SERVICES))}.",
                code="NotFound",
                status=404,
            )
        return service

    @staticmethod
    def inner(request: Request, service: str) -> Request:
        """Return the request that a client would send for a call, without a signature.

        Args:
            service: The service that it calls.
        """
        return Request(
            request.method,
            request.raw_path.removeprefix(f"{CALL}{service}") or "/",
            request.query_string,
            headers={name: value for name, value in request.headers.items() if name not in ("cookie", _SECRET)},
            scheme=request.scheme,
            address=request.address,
        )

    async def credential(self, request: Request) -> Credential:
        """Return the key as which a call acts.

        Raises:
            AwsError: PageSessionEnded, unless the request has both secrets of a session.
        """
        cookie, secret = _cookie(request), request.headers.get(_SECRET, "")
        found = await self._sessions.credential(cookie, secret) if cookie and secret else None
        if found is None:
            raise AwsError(
                "This browser has no session here, or it has ended. `tidemill open` begins one.",
                code="PageSessionEnded",
                status=401,
            )
        return found

    async def answer(self, request: Request, read: Callable[[int], Awaitable[bytes]]) -> HttpReply:
        """Answer a request that is no call.

        Args:
            read: Returns the body, of at most so many bytes.

        Raises:
            AwsError: The method is not allowed, or a session cannot begin.
        """
        if request.raw_path == SESSION:
            if request.method == "POST":
                return await self._start(request, await read(_BODY_MAX))
            if request.method == "DELETE":
                return await self._end(request)
        elif request.method in ("GET", "HEAD"):
            if request.raw_path == PREFIX[:-1]:
                return HttpReply(308, [(b"location", PREFIX.encode())])
            if request.raw_path == METRICS:
                return await self._metrics.reply(request)
            return self._files.reply(
                request.raw_path.removeprefix(PREFIX),
                accepts_gzip="gzip" in request.headers.get("accept-encoding", ""),
                origin=f"{request.scheme}://{request.headers['host']}",
            )
        raise AwsError(
            f"The method {request.method} is not allowed here; a session begins by POST and ends by DELETE, files are"
            " read by GET.",
            code="MethodNotAllowed",
            status=405,
        )

    async def _start(self, request: Request, body: bytes) -> HttpReply:
        if media_type(request.headers.get("content-type", "")) != "application/json":
            raise AwsError("A session begins with a document of JSON: {'token': ...}.", code="ValidationException")
        session = await self._sessions.start(_token(body))
        if session is None:
            raise AwsError(
                "This address was used already, or it is too old: each opens one browser, within five minutes."
                " `tidemill open` makes a new one.",
                code="PageTokenExpired",
                status=403,
            )
        content = {
            "secret": session.secret,
            "user": session.credential.arn,
            "readOnly": session.read_only,
            "region": self._region,
            "expires": session.expires_ms // 1000,
        }
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
        headers.append((b"set-cookie", _set_cookie(request, session.cookie, expires_ms=session.expires_ms)))
        return HttpReply(200, headers, json.dumps(content).encode())

    async def _end(self, request: Request) -> HttpReply:
        """End the session of a request, if both of its secrets are there."""
        await self.credential(request)
        await self._sessions.end(_cookie(request))
        headers = [(b"cache-control", b"no-store"), (b"set-cookie", _set_cookie(request, "", expires_ms=0))]
        return HttpReply(204, headers)


def make_safe(reply: HttpReply) -> None:
    """Add what every answer below ``/_tidemill/`` has: no browser shows it in a frame or as something that can run.

    Args:
        reply: A file of the page has a policy of its own.
    """
    if all(name != _POLICY for name, _ in reply.headers):
        reply.headers.append((_POLICY, b"sandbox"))
    reply.headers.extend(_HEADERS)


def _token(body: bytes) -> str:
    try:
        token = json.loads(body)["token"]
    except (ValueError, TypeError, KeyError):
        token = None
    if not isinstance(token, str):
        raise AwsError("A session begins with a document of JSON: {'token': ...}.", code="ValidationException")
    return token


def _cookie_name(request: Request) -> str:
    """Return the name of the cookie: one for each port, since ports of a host share their cookies."""
    port = request.headers["host"].rpartition("]")[2].partition(":")[2]
    if request.scheme == "https":
        return f"__Secure-tidemill-{port or 443}"  # a prefix that browsers accept only from a secure origin
    return f"tidemill-{port or 80}"


def _cookie(request: Request) -> str:
    name = _cookie_name(request)
    pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").replace(",", ";").split(";"))
    values = [value for each, _, value in pairs if each == name]
    return values[0] if len(values) == 1 else ""


def _set_cookie(request: Request, value: str, *, expires_ms: int) -> bytes:
    expires = datetime.fromtimestamp(expires_ms / 1000, UTC)
    secure = "; Secure" if request.scheme == "https" else ""
    return (
        f"{_cookie_name(request)}={value}; Path={PREFIX[:-1]}; HttpOnly; SameSite=Strict{secure};"
        f" Expires={expires:%a, %d %b %Y %H:%M:%S GMT}"
    ).encode("ascii")
