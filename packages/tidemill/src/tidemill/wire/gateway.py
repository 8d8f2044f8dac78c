"""The server of the service, and the gateway that passes its requests to all services.

Steps of a request: match, guard, verify, read and parse, validate, authorize, handler, serialize. Every refusal has the
format of the request's protocol. An unexpected exception is logged with the request id, and answered as an internal
failure without details.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from tidemill._shared.http.exchange import ClientLeft, Exchange
from tidemill._shared.http.limits import Limits, Refusal, Traffic
from tidemill._shared.http.listener import Listener
from tidemill.core.clock import Clock, SystemClock
from tidemill.errors import AwsError, ServiceUnavailable, StateCorrupt
from tidemill.wire.bodies.body import BodyStream, inflated, open_body, too_large
from tidemill.wire.container_credentials import PREFIX, container_credentials
from tidemill.wire.error_reply import error_reply, refusal_form
from tidemill.wire.exchange import Authorizer, Caller, Context, Handler, Reply, Service
from tidemill.wire.forms.upload import FormUpload
from tidemill.wire.match import SIGNING_NAMES, Match, Routers, match, match_call, operation_in_form, unknown_operation
from tidemill.wire.observer import REFUSED, RequestObserver
from tidemill.wire.operations import Operation, operation
from tidemill.wire.page.entrance import PageEntrance, make_safe
from tidemill.wire.reply import HttpReply, json_reply, send_reply
from tidemill.wire.request import Guard, Request, is_navigation, new_request_id
from tidemill.wire.signing.credentials import CredentialLookup
from tidemill.wire.signing.sigv4 import UNSIGNED_PAYLOAD, Claim, Verifier
from tidemill.wire.socket_owner import SocketOwners

__all__ = ["LIMITS", "Answer", "BodyLimits", "Gateway", "HttpServer"]

LIMITS = Limits(answer_timeout_s=float("inf"), unproven=64)
"""The service's limits: operations have their own limits on bodies and time."""

Answer = Callable[[Exchange], Awaitable[None]]
"""Answers one request. May raise `ClientLeft`."""

PAGE = "/_tidemill"
"""What every path of the page begins with, and no bucket's does."""

_CERTAINTY_CHECKS = 20
_CERTAINTY_PAUSE_S = 0.1

_log = structlog.get_logger("tidemill.wire")


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """Maximum sizes of request bodies in bytes, after chunk decoding."""

    control_bytes: int = 2 * 1024 * 1024
    """JSON of control-plane services, and S3's XML documents."""
    form_bytes: int = 64 * 1024
    """Forms of the query protocol."""
    invoke_bytes: int = 6 * 1024 * 1024
    """InvokeEndpoint."""
    object_bytes: int = 5 * 1024**3
    """One S3 upload or part."""


class HttpServer:
    """Answers the requests of sockets.

    Args:
        answer: Called with each request, in a task of its own; a `Gateway`, in the service.
        limits: Limits on requests and their duration.
    """

    def __init__(self, answer: Answer, *, limits: Limits = LIMITS) -> None:
        self._application = answer
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._owners = SocketOwners()
        traffic = Traffic(limits, streams=True, refusal_form=refusal_form, now_s=self._loop.time)
        self.listener = Listener(self._begin, traffic, loop=self._loop, owner_of=self._owners)

    async def drain(self, *, timeout_s: float) -> None:
        """Close idle connections, wait for current requests, and abort those that are not answered in time."""
        deadline_s = self._loop.time() + timeout_s
        await self.listener.drain(grace_s=0, timeout_s=timeout_s)
        self._owners.close()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=max(0, deadline_s - self._loop.time()))
            if late:
                _log.warning("http.requests_cut", requests=len(late), timeout_s=timeout_s)
                for task in late:
                    task.cancel()
                await asyncio.wait(late)

    def _begin(self, exchange: Exchange) -> None:
        task = self._loop.create_task(self._answer(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._application(exchange)
        except ClientLeft:
            return
        except Exception:  # noqa: BLE001 - the application answers its own failures; this one is of the application
            _log.exception("http.application_failed", path=_path(exchange))
        if not exchange.answered and not exchange.gone:
            _log.error("http.not_answered", path=_path(exchange))
            exchange.refuse(Refusal(500, "An internal error occurred. Its details are in the service's log."))


class Gateway:
    """Receives AWS requests and passes them to services.

    Args:
        services: Services by botocore's name: sagemaker, sagemaker-runtime, logs, s3, sts, iam, cloudwatch, kms.
        credentials: Finds the secrets with which requests are signed.
        authorizer: Decides whether a credential may send a request.
        region: The service's region, passed to handlers.
        allowed_hosts: Host names accepted in addition to loopback names.
        answers_aws: See `Guard`.
        clock: Clock for the age of signatures.
        is_certain: Returns whether no other service can have taken over. Default: none can.
        limits: Maximum sizes of bodies.
        health: Members of the answer to ``GET /healthz``. Default: that request is one for a bucket.
        strict_region: Whether to refuse signatures made for another region.
        refuses_encryption: Whether to refuse requests to encrypt stored data, which are recorded otherwise.
        page: The entrance of browsers. Default: there is none.
        observer: Observes all answered requests. Default: only counts them.
    """

    def __init__(
        self,
        services: Mapping[str, Service],
        credentials: CredentialLookup,
        *,
        authorizer: Authorizer,
        region: str,
        allowed_hosts: Iterable[str] = (),
        answers_aws: Callable[[], bool] = lambda: False,
        clock: Clock | None = None,
        is_certain: Callable[[], bool] | None = None,
        limits: BodyLimits | None = None,
        health: Mapping[str, str] | None = None,
        strict_region: bool = False,
        refuses_encryption: bool = False,
        page: PageEntrance | None = None,
        observer: RequestObserver | None = None,
    ) -> None:
        self._handlers = {name: dict(service.handlers) for name, service in services.items()}
        self._authorizer = authorizer
        self._region = region
        self._guard = Guard(allowed_hosts, answers_aws=answers_aws)
        self._clock = clock or SystemClock()
        self._verifier = Verifier(credentials, region=region, clock=self._clock, strict_region=strict_region)
        self._credentials = credentials
        self._is_certain = is_certain
        self._refuses_encryption = refuses_encryption
        self._limits = limits or BodyLimits()
        self._health = health
        self._routers = Routers(self._handlers)
        self._observer = observer or RequestObserver()
        self._page = page

    @property
    def operations(self) -> frozenset[tuple[str, str]]:
        """The (service, name) pairs of all operations that have a handler."""
        return frozenset((name, each) for name, handlers in self._handlers.items() for each in handlers)

    def warm(self) -> None:
        """Load the models of all services now, so that the first requests need not wait for them."""
        self._routers.load()

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request.

        Raises:
            ClientLeft: The client disconnected before the end of its request.
        """
        try:
            request = Request.of(exchange)
        except ValueError:
            exchange.refuse(Refusal(400, "Malformed HTTP request: the target is no URL"))
            return
        begun_s, state = time.perf_counter(), _RequestState(exchange, request, new_request_id())
        span = self._observer.begin_span(request) if self._observer.traces else None
        reply = await self._reply(state)
        request_id = state.request_id.encode("ascii")
        reply.headers.append((b"x-amzn-requestid", request_id))
        if state.match.service == "s3":
            reply.headers.append((b"x-amz-request-id", request_id))
        if state.of_page or not request.headers.get("authorization", "").startswith("AWS"):  # as `is_signed`
            make_safe(reply, of_page=state.of_page)
        exchange.closes = state.must_close or (not exchange.exhausted and request.has_body)
        if isinstance(reply.body, bytes) and reply.content_length is None and exchange.method != b"HEAD":
            exchange.start(reply.status, reply.headers)
            exchange.send(reply.body)
        else:
            await send_reply(exchange, reply)
        self._observer.end(
            begun_s, state.match.service, state.operation, reply.status, span=span, request_id=state.request_id
        )

    async def _reply(self, state: "_RequestState") -> HttpReply:
        try:
            return await self._answer(state)
        except ClientLeft:
            raise
        except AwsError as error:
            if error.status >= 500:
                _log.error("wire.failure", request_id=state.request_id, code=error.code, error=error.message)
            state.must_close = state.must_close or error.close
            return error_reply(error, request=state.request, match=state.match, request_id=state.request_id)
        except StateCorrupt as error:
            _log.error("wire.state_corrupt", request_id=state.request_id, error=str(error))
            failure = AwsError(str(error), code=_internal(state.match))
            return error_reply(failure, request=state.request, match=state.match, request_id=state.request_id)
        except Exception:  # noqa: BLE001 - the last line of defense: logged in full, answered without detail
            _log.exception(
                "wire.internal_failure",
                request_id=state.request_id,
                service=state.match.service,
                operation=state.match.operation,
            )
            failure = AwsError(
                f"An internal error occurred. Its details are in the service's log under request id"
                f" {state.request_id}.",
                code=_internal(state.match),
            )
            return error_reply(failure, request=state.request, match=state.match, request_id=state.request_id)

    async def _answer(self, state: "_RequestState") -> HttpReply:
        request = state.request
        if self._page is not None and "service-worker" in request.headers and self._page.is_for_worker(request):
            self._guard.check(request)
            return self._page.ending_worker()
        if self._page is not None and request.raw_path.startswith(PAGE) and self._page.is_for(request):
            return await self._answer_page(state, self._page)
        found = state.match = match(request, routers=self._routers)
        if self._page is not None and request.method in ("GET", "HEAD") and self._page.is_at_root(request):
            self._guard.check(request, from_anywhere=is_navigation(request))
            return self._page.leading_here()
        self._guard.check(request, from_anywhere=found.is_form)
        if self._health is not None and _is_health_check(request):
            return json_reply({"status": "ok", **self._health})
        await self._await_certainty()
        if request.method == "GET" and request.path.startswith(PREFIX):
            reply = container_credentials(request.path, self._credentials, now_ms=self._clock.now_ms())
            state.prove()
            return reply
        if found.unknown is not None:
            raise unknown_operation(found, found.unknown, method=request.method, routers=self._routers)
        if found.is_form:
            return await self._answer_form(state)
        if found.service == "s3":
            return await self._answer_s3(state)
        return await self._answer_plain(state)

    async def _answer_page(self, state: "_RequestState", page: PageEntrance) -> HttpReply:
        """Answer a request below ``/_tidemill/``: a file, the begin or end of a session, or a call of an operation."""
        request = state.request
        state.of_page, state.match = True, Match("tidemill", "rest-json")
        self._guard.check(request, from_anywhere=page.is_file(request) and is_navigation(request))
        page.check_transport(request)
        service = page.called_service(request)
        if not page.is_file(request):
            await self._await_certainty()
        if service is None:
            return await page.answer(request, lambda limit_bytes: self._read(state, limit_bytes))
        claim = Claim(await page.credential(request), verified=True, of_page=True)
        state.prove()
        request = state.request = page.inner(request, service)
        found = state.match = match_call(request, service, routers=self._routers)
        if found.unknown is not None:
            raise unknown_operation(found, found.unknown, method=request.method, routers=self._routers)
        return await (self._answer_s3(state, claim) if service == "s3" else self._answer_plain(state, claim))

    async def _await_certainty(self) -> None:
        """Wait a moment for the database: after a restart it is often back before the client would retry."""
        if self._is_certain is None:
            return
        for _ in range(_CERTAINTY_CHECKS):
            if self._is_certain():
                return
            await asyncio.sleep(_CERTAINTY_PAUSE_S)
        raise ServiceUnavailable(
            "the database cannot be used now, and another service may have taken over; try again in a moment"
        )

    async def _answer_plain(self, state: "_RequestState", claim: Claim | None = None) -> HttpReply:
        """Answer for a service with small bodies: read the body, then verify the signature over its hash."""
        request, found = state.request, state.match
        claim = claim or self._verifier.claim(request, service=SIGNING_NAMES.get(found.service, found.service))
        compressed = self._is_compressed(request, found)
        body = await self._read(state, self._plain_limit(found))
        self._verifier.verify_whole(claim, request, body)
        state.prove()
        if compressed:
            body = inflated(body, limit_bytes=self._plain_limit(found))
        name, fields = operation_in_form(body) if found.form == "query" else (found.operation or "", found.path)
        handler, spec = self._operation(found, name, request)
        return await self._handle(state, handler, spec, claim, fields, body)

    async def _answer_s3(self, state: "_RequestState", claim: Claim | None = None) -> HttpReply:
        """Answer for S3, where the signature covers the announced hash, which is verified while the body is read."""
        request, found = state.request, state.match
        claim = claim or self._verifier.claim(request, service="s3")
        # Nothing covers the body of a call of the page, and no chunk of it is signed.
        payload = UNSIGNED_PAYLOAD if claim.of_page else request.headers.get("x-amz-content-sha256")
        if payload is None:
            if not claim.presigned:
                raise AwsError("Missing required header for this request: x-amz-content-sha256.", code="InvalidRequest")
            payload = UNSIGNED_PAYLOAD
        self._verifier.verify(claim, request, payload=payload, is_s3=True)
        state.prove()
        handler, spec = self._operation(found, found.operation or "", request)
        stream = open_body(
            request,
            claim,
            state.exchange.receive,
            payload=payload,
            limit_bytes=self._limits.object_bytes if spec.streams_input else self._limits.control_bytes,
            checks_digest=spec.checks_digest,
        )
        _hide_chunking(request, stream)
        if spec.streams_input:
            return await self._handle(state, handler, spec, claim, found.path, stream)
        return await self._handle(state, handler, spec, claim, found.path, await stream.read())

    async def _answer_form(self, state: "_RequestState") -> HttpReply:
        """Answer a presigned POST of S3: the put that its form describes."""
        form = await FormUpload.open(
            state.request,
            state.exchange.receive,
            bucket=state.match.path["Bucket"],
            verifier=self._verifier,
            limit_bytes=self._limits.object_bytes,
            now_ms=self._clock.now_ms(),
        )
        state.prove()
        handler, spec = self._operation(state.match, "PutObject", state.request)
        members = await self._call(state, handler, spec, form.claim, form.request, form.path, form.body)
        return form.reply(members.members if isinstance(members, Reply) else members)

    async def _handle(
        self,
        state: "_RequestState",
        handler: Handler,
        spec: Operation,
        claim: Claim,
        fields: Mapping[str, str],
        body: bytes | BodyStream,
    ) -> HttpReply:
        answer = await self._call(state, handler, spec, claim, state.request, fields, body)
        if isinstance(answer, Reply):
            return spec.write_reply(answer, state.request_id)
        return spec.write(answer, state.request_id)

    async def _call(
        self,
        state: "_RequestState",
        handler: Handler,
        spec: Operation,
        claim: Claim,
        request: Request,
        fields: Mapping[str, str],
        body: bytes | BodyStream,
    ) -> Mapping[str, Any] | Reply:
        """Read and check the members of a request, and call its handler if its signer may send it."""
        unknown: list[str] = []
        state.operation = spec.name
        members = spec.read(request, fields, body, unknown)
        if unknown:
            _log.warning("wire.unknown_members", request_id=state.request_id, operation=spec.name, members=unknown)
        spec.check(members)
        context = Context(
            request_id=state.request_id,
            service=spec.service,
            operation=spec.name,
            caller=Caller(claim.credential.access_key_id, claim.credential.arn),
            region=self._region,
            headers=request.headers,
            scheme=request.scheme,
            address=request.address,
            presigned=claim.presigned,
            of_page=claim.of_page,
            kms_keys=spec.refuse(members),
        )
        return await self._authorizer.handle(handler, members, context, claim.credential)

    def _operation(self, found: Match, name: str, request: Request) -> tuple[Handler, Operation]:
        handler = self._handlers.get(found.service, {}).get(name)
        if handler is None:
            what = f"{found.service} operation {name[:128]!r}"
            raise unknown_operation(found, what, method=request.method, routers=self._routers, name=name)
        return handler, operation(
            found.service, name, found.form, found.json_version, refuses_encryption=self._refuses_encryption
        )

    def _plain_limit(self, found: Match) -> int:
        if found.form == "query":
            return self._limits.form_bytes
        return self._limits.invoke_bytes if found.service == "sagemaker-runtime" else self._limits.control_bytes

    async def _read(self, state: "_RequestState", limit_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            AwsError: RequestEntityTooLarge (413).
        """
        announced_bytes, received_bytes, more = state.request.content_length or 0, 0, True
        pieces: list[bytes] = []
        while more and max(announced_bytes, received_bytes) <= limit_bytes:
            piece, more = await state.exchange.receive()
            received_bytes += len(piece)
            pieces.append(piece)
        if max(announced_bytes, received_bytes) <= limit_bytes:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        error = too_large(limit_bytes)
        if state.match.service == "sagemaker-runtime":
            error.members |= {"OriginalStatusCode": 413, "OriginalMessage": error.message}
        raise error

    @staticmethod
    def _is_compressed(request: Request, found: Match) -> bool:
        """Return whether the body is compressed by gzip, as boto3 does it for PutMetricData."""
        encoding = request.headers.get("content-encoding", "identity").strip().lower()
        if encoding in ("", "identity") or found.service == "sagemaker-runtime":
            return False
        if encoding == "gzip" and found.service == "cloudwatch":
            return True
        raise AwsError(
            f"Request bodies must not be compressed here; received Content-Encoding {encoding[:64]!r}. Turn request"
            " compression off in the client.",
            code="UnsupportedMediaTypeException",
        )


class _RequestState:
    """State of one request in the gateway."""

    def __init__(self, exchange: Exchange, request: Request, request_id: str) -> None:
        self.exchange = exchange
        self.request = request
        self.request_id = request_id
        self.match = Match("s3", "rest-xml")
        self.operation = REFUSED
        self.must_close = False
        self.of_page = False

    def prove(self) -> None:
        """Tell the connection, unless it knows already, that a request of it was signed."""
        if self.exchange.prove is not None:
            self.exchange.prove()


def _path(exchange: Exchange) -> str:
    return exchange.target.partition(b"?")[0].decode("latin-1")


def _internal(found: Match) -> str:
    """Return the code by which the service of a request names its own failures."""
    return "InternalError" if found.service == "s3" else "InternalFailure"


def _is_health_check(request: Request) -> bool:
    """Return whether this is ``GET /healthz``, the one request that need not be signed.

    It discloses only isolation and version, and cannot be a request for a bucket of that name: those are signed.
    """
    return (
        request.raw_path == "/healthz"
        and request.method in ("GET", "HEAD")
        and not request.query_string
        and "authorization" not in request.headers
    )


def _hide_chunking(request: Request, stream: BodyStream) -> None:
    """Show handlers the size and encoding of the object, not those of the transfer."""
    if "x-amz-decoded-content-length" in request.headers and stream.size_bytes is not None:
        request.headers["content-length"] = str(stream.size_bytes)
    encodings = [part.strip() for part in request.headers.get("content-encoding", "").split(",")]
    if "aws-chunked" in encodings:
        kept = [part for part in encodings if part and part != "aws-chunked"]
        if kept:
            request.headers["content-encoding"] = ",".join(kept)
        else:
            del request.headers["content-encoding"]
