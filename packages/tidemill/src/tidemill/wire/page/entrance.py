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
from tidemill.wire.reply import HttpReply, json_reply
from tidemill.wire.request import Request, host_name, is_loopback, is_signed, media_type
from tidemill.wire.signing.credentials import Credential

SERVICES = frozenset(
    (
        *("application-autoscaling", "cloudwatch", "logs", "s3"),
        *("sagemaker", "sagemaker-metrics", "sagemaker-runtime", "tidemill"),
    )
)
"""What the page may call. Not STS and IAM: these hand out keys, which would outlive a session."""

_SANDBOX = ((b"content-security-policy", b"sandbox"), (b"x-content-type-options", b"nosniff"))
_OF_PAGE = (
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)

_ENDING_WORKER = b"""self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil((async () => {
  await self.registration.unregister();
  for (const each of await self.clients.matchAll({type: "window"})) each.navigate(each.url);
})()));
"""

_SECRET = "x-tidemill-session"  # noqa: S105 - the name of a header
_BODY_MAX = 4096
_COOKIES_MAX = 32
"""More than another port of the host can set for paths that the browser prefers: one for each beginning of a path."""


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

    def owner_of(self, token: str) -> Credential | None: ...
    async def start(self, token: str, *, over_tls: bool) -> BrowserSession | None: ...
    async def credential(self, cookie: str, secret: str, *, over_tls: bool) -> Credential | None: ...
    async def end(self, cookie: str) -> None: ...


class PageEntrance:
    """Answers what browsers ask for, except for calls, of which it knows who sends them.

    Args:
        files: The built page.
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
    def is_at_root(request: Request) -> bool:
        """Return whether a GET or HEAD is one of a browser for ``/``, which is S3's ListBuckets for everybody else."""
        return (
            request.raw_path == "/"
            and not request.query_string
            and not is_signed(request)
            and "text/html" in request.headers.get("accept", "")
            and not is_aws_host(host_name(request.headers.get("host", "")) or "")
        )

    @staticmethod
    def is_for_worker(request: Request) -> bool:
        """Return whether a browser looks for a newer version of a service worker of this origin.

        The page has none. Whoever listened on this port while the service did not run may have left one, through which
        the browser would send every page of this origin.
        """
        return request.headers.get("service-worker") == "script" and not is_signed(request)

    @staticmethod
    def ending_worker() -> HttpReply:
        """Return a service worker that removes itself, and loads the pages again that it has served."""
        headers = [(b"content-type", b"text/javascript"), (b"cache-control", b"no-store")]
        headers.append((b"content-security-policy", b"default-src 'none'"))
        return HttpReply(200, headers, _ENDING_WORKER)

    @staticmethod
    def leading_here() -> HttpReply:
        """Return the answer that leads a browser to the page."""
        return HttpReply(302, [(b"location", PREFIX.encode()), (b"cache-control", b"no-store")])

    @staticmethod
    def is_file(request: Request) -> bool:
        """Return whether a request is for a file, which says nothing about the service and its users."""
        return not request.raw_path.startswith(CALL) and request.raw_path not in (SESSION, METRICS)

    @staticmethod
    def check_transport(request: Request) -> None:
        """Refuse what could be read, or changed, on its way.

        Raises:
            AwsError: The request came from another machine, without TLS.
        """
        if request.scheme == "https" or is_loopback(host_name(request.headers["host"]) or ""):
            return
        raise AwsError(
            "From other machines the page is reached by HTTPS only: give the service tls_certificate and tls_key, or"
            " forward its port by ssh -L.",
            code="AccessDenied",
        )

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
        found = await self._session(request)
        if found is None:
            raise AwsError(
                "This browser has no session here, or it has ended. `tidemill open` begins one.",
                code="PageSessionEnded",
                status=401,
            )
        return found[1]

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
                return self.leading_here()
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
            raise _malformed()
        token, replaces = _start_document(body)
        present, owner = await self._session(request), self._sessions.owner_of(token)
        if present is not None and owner is not None and owner.arn != present[1].arn and not replaces:
            raise AwsError(
                f"This browser is signed in as {present[1].arn}, and this address signs in as {owner.arn}.",
                code="OtherPageSession",
                status=409,
            )
        session = await self._sessions.start(token, over_tls=request.scheme == "https")
        if session is None:
            raise AwsError(
                "This address was used already, or it is too old: each opens one browser, within five minutes."
                " `tidemill open` makes a new one.",
                code="PageTokenExpired",
                status=403,
            )
        if present is not None:
            await self._sessions.end(present[0])
        content = {
            "secret": session.secret,
            "user": session.credential.arn,
            "readOnly": session.read_only,
            "region": self._region,
            "expires": session.expires_ms // 1000,
        }
        reply = json_reply(content)
        reply.headers.append((b"set-cookie", _set_cookie(request, session.cookie, expires_ms=session.expires_ms)))
        return reply

    async def _end(self, request: Request) -> HttpReply:
        """End the session of a request, if both of its secrets are there."""
        present = await self._session(request)
        if present is not None:
            await self._sessions.end(present[0])
        headers = [(b"cache-control", b"no-store"), (b"set-cookie", _set_cookie(request, "", expires_ms=0))]
        return HttpReply(204, headers)

    async def _session(self, request: Request) -> tuple[str, Credential] | None:
        """Return the cookie of the session of a request, and the key as which it acts; None without a session.

        Other services on this host can set cookies of the same name, for paths that the browser prefers; without the
        other secret they are no more than noise.
        """
        secret = request.headers.get(_SECRET, "")
        for cookie in _cookies(request) if secret else ():
            credential = await self._sessions.credential(cookie, secret, over_tls=request.scheme == "https")
            if credential is not None:
                return cookie, credential
        return None


def make_safe(reply: HttpReply, *, of_page: bool) -> None:
    """Keep a browser from running an answer as a page of this origin.

    Args:
        reply: The answer to a request without a header of a signature: what a browser can be led to. Files of the page
            have a policy of their own.
        of_page: Whether the request was one for the page, whose answers are also of no use to pages of other origins.
    """
    names = {name for name, _ in reply.headers}
    reply.headers.extend(header for header in _SANDBOX if header[0] not in names)
    if of_page:
        reply.headers.extend(_OF_PAGE)
        if b"cache-control" not in names:
            reply.headers.append((b"cache-control", b"no-store"))  # what a session sees stays in no cache


def _start_document(body: bytes) -> tuple[str, bool]:
    """Return the token, and whether the new session may replace that of another user."""
    try:
        content = json.loads(body)
        token, replaces = content["token"], content.get("replaces", False)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _malformed() from None
    if not isinstance(token, str) or not isinstance(replaces, bool):
        raise _malformed()
    return token, replaces


def _malformed() -> AwsError:
    return AwsError(
        'A session begins with a document of type application/json: {"token": ...}.', code="ValidationException"
    )


def _cookie_name(request: Request) -> str:
    """Return the name of the cookie: one for each port, since ports of a host share their cookies."""
    port = request.headers["host"].rpartition("]")[2].partition(":")[2]
    if request.scheme == "https":
        return f"__Secure-tidemill-{port or 443}"  # a prefix that browsers accept only from a secure origin
    return f"tidemill-{port or 80}"


def _cookies(request: Request) -> list[str]:
    name = _cookie_name(request)
    pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";"))
    return [value for each, _, value in pairs if each == name][:_COOKIES_MAX]


def _set_cookie(request: Request, value: str, *, expires_ms: int) -> bytes:
    expires = datetime.fromtimestamp(expires_ms / 1000, UTC)
    secure = "; Secure" if request.scheme == "https" else ""
    return (
        f"{_cookie_name(request)}={value}; Path={PREFIX[:-1]}; HttpOnly; SameSite=Strict{secure};"
        f" Expires={expires:%a, %d %b %Y %H:%M:%S GMT}"
    ).encode("ascii")
