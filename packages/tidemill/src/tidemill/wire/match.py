"""Determines the service of a request by its target header, its content type and its path, in this order, or else S3.

The protocol is not fixed per service, because the protocol in a model changes between releases of clients. Method,
path, query and headers select the operation of a REST service, according to the model.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from botocore.model import OperationModel

from tidemill.core.aws_hosts import bucket_in
from tidemill.core.compatibility.nothing import INSTEAD
from tidemill.errors import AwsError, UnknownOperation
from tidemill.wire.protocols.models import JSON_TARGETS, service_model
from tidemill.wire.protocols.parse_query import parse_form
from tidemill.wire.request import Request, host_name, media_type

Form = str
"""Format of errors: ``json``, ``rest-json``, ``rest-xml`` or ``query``."""

SIGNING_NAMES = {
    "sagemaker-runtime": "sagemaker",
    "sagemaker-metrics": "sagemaker",
    "cloudwatch": "monitoring",
    "tidemill-instances": "tidemill",
}
"""Names in signatures of services that sign under another name than botocore's."""

_QUERY_SCOPES = {"sts": "sts", "iam": "iam", "monitoring": "cloudwatch"}
_REST_SCOPES = ("s3", "sagemaker")
"""Services in the scopes of requests that the path distinguishes."""
_XML_SCOPES = ("cloudfront", "route53")
"""Services of AWS that do not exist here, and whose clients expect errors in XML."""
_RUNTIME_PATH = re.compile(r"/endpoints/[^/]+/(invocations|async-invocations|invocations-response-stream)")
_FORM_PATH = re.compile(r"/[^/]+/?")
_METRICS_PATH = re.compile(r"/BatchPutMetrics|/BatchGetMetrics")
_FEATURE_STORE_PATH = re.compile(r"/FeatureGroup/.*|/BatchGetRecord")
_PARAMETER = re.compile(r"\{(\w+)(\+?)\}")
_NO_QUERY: Mapping[str, str] = {}
_SCOPE = re.compile(r"Credential=[^/,\s]+/\d+/[^/,\s]*/([^/,\s]+)/aws4_request", re.ASCII)


@dataclass(frozen=True, slots=True)
class Match:
    """The service, protocol and operation in the head of a request."""

    service: str
    form: Form
    operation: str | None = None
    """None if the body names it (query protocol), or if there is none (``unknown``)."""
    path: Mapping[str, str] = field(default_factory=dict)
    """Parameters taken from the path."""
    json_version: str = "1.1"
    is_form: bool = False
    """Whether it is a presigned POST: the put that a form describes."""
    unknown: str | None = None
    """The requested operation, if this service does not have it."""


@dataclass(frozen=True, slots=True)
class _Route:
    """One operation, and the properties of its requests."""

    operation: str
    literals: Mapping[str, str]
    """Query parameters in the model's path, with their value or an empty text."""
    parameters: frozenset[str]
    """Query parameters that the operation requires, those of ``literals`` included."""
    headers: frozenset[str]
    """Headers that the operation requires."""
    rank: tuple[int, int, bool]
    """Sort key: more specific routes are greater, and among equal ones those with a handler."""

    def fits(self, query: Mapping[str, str], headers: Mapping[str, str]) -> bool:
        """Return whether a request has everything that the route requires."""
        return (
            self.headers <= headers.keys()
            and self.parameters <= query.keys()
            and all(value in ("", query[name]) for name, value in self.literals.items())
        )


@dataclass(slots=True)
class _Place:
    pattern: re.Pattern[str]
    routes: dict[str | None, list[_Route]] = field(default_factory=dict)
    """By one of the query parameters that they require, or by None."""


class RestRouter:
    """The operations of one REST service by method, path, query and headers.

    Args:
        service: botocore's name of the service.
        handled: Operations that have a handler.
    """

    def __init__(self, service: str, *, handled: Collection[str]) -> None:
        self._places: dict[str, dict[str, _Place]] = {}
        model = service_model(service)
        for name in model.operation_names:
            self._add(model.operation_model(name), handled=name in handled)

    def find(self, request: Request) -> tuple[str, Mapping[str, str]] | None:
        """Return the operation's name and its path parameters, or None.

        Args:
            request: Method, path and query.
        """
        query = request.query_map if request.query_string else _NO_QUERY
        keys = (None, *query)
        path = _path(request)
        for place in self._places.get(request.method, {}).values():
            found = place.pattern.fullmatch(path)
            if found is None:
                continue
            routes = [
                route for key in keys for route in place.routes.get(key, ()) if route.fits(query, request.headers)
            ]
            if routes:
                return max(routes, key=lambda route: route.rank).operation, {
                    name: request.decode(text) for name, text in found.groupdict().items() if text is not None
                }
        return None

    def knows(self, method: str) -> bool:
        """Return whether any operation uses ``method``.

        Args:
            method: For example ``GET``.
        """
        return method in self._places

    def _add(self, operation: OperationModel, *, handled: bool) -> None:
        path, _, query = str(operation.http["requestUri"]).partition("?")
        places = self._places.setdefault(operation.http["method"], {})
        place = places.get(path)
        if place is None:
            place = places[path] = _Place(_path_pattern(path))
        parameters, headers = _required(operation)
        literals = dict(parse_qsl(query, keep_blank_values=True))
        route = _Route(
            operation.name,
            literals,
            parameters=frozenset((*literals, *parameters)),
            headers=frozenset(headers),
            rank=(len(literals), len(parameters) + len(headers), handled),
        )
        place.routes.setdefault(next(iter((*literals, *parameters)), None), []).append(route)


class Routers:
    """The routes of REST services, made when they are needed first.

    Args:
        handled: By service, the operations that have a handler.
    """

    def __init__(self, handled: Mapping[str, Collection[str]]) -> None:
        self._handled = handled
        self._routers: dict[str, RestRouter] = {}

    def load(self) -> None:
        """Load the models of all services, and make the routes of S3."""
        for service in self._handled:
            service_model(service)
        self.of("s3")

    def of(self, service: str) -> RestRouter:
        """Return the routes of a service.

        Args:
            service: botocore's name of the service.
        """
        router = self._routers.get(service)
        if router is None:
            router = self._routers[service] = RestRouter(service, handled=self._handled.get(service, ()))
        return router


def match(request: Request, *, routers: Routers) -> Match:
    """Determine service, protocol and operation.

    Args:
        request: The head of a request, not verified.
        routers: The routes of REST services.

    Raises:
        AwsError: InvalidURI, the path is not UTF-8.
    """
    target = request.headers.get("x-amz-target")
    if target is not None:
        return _match_target(request, target)
    if "smithy-protocol" in request.headers:
        return Match("sagemaker", "json", unknown=f"protocol {request.headers['smithy-protocol'][:64]!r}")
    scope = _scope(request)
    if request.method == "POST" and scope != "s3" and _is_form(request):
        service = _QUERY_SCOPES.get(scope or "sts")
        if service is None:
            return Match("sts", "query", unknown=f"service {scope!r}")
        return Match(service, "query")
    if scope is None and _is_post_form(request):
        path = {"Bucket": request.decode(request.raw_path.strip("/"))}
        return Match("s3", "rest-xml", operation="PutObject", path=path, is_form=True)
    if _RUNTIME_PATH.fullmatch(request.raw_path):
        return _match_rest(request, "sagemaker-runtime", "rest-json", routers)
    if scope == "sagemaker" and _METRICS_PATH.fullmatch(request.raw_path):
        return _match_rest(request, "sagemaker-metrics", "rest-json", routers)
    if scope == "sagemaker" and _FEATURE_STORE_PATH.fullmatch(request.raw_path):
        return Match("sagemaker-runtime", "rest-json", unknown=_line(request))
    if scope is not None and scope not in _REST_SCOPES:
        form = "rest-xml" if scope in _XML_SCOPES else "rest-json"
        return Match("sagemaker-runtime", form, unknown=f"service {scope[:64]!r} ({_line(request)})")
    return _match_rest(request, "s3", "rest-xml", routers)


def match_call(request: Request, service: str, *, routers: Routers) -> Match:
    """Determine protocol and operation of a request whose service is known: a call of the page.

    Args:
        request: Method, path, query and headers as a client would send them.
        service: botocore's name of the service.
        routers: The routes of REST services.
    """
    if service in JSON_TARGETS.values():
        found = _match_target(request, request.headers.get("x-amz-target", ""))
        if found.service == service:
            return found
        return Match(service, "json", unknown=f"X-Amz-Target {request.headers.get('x-amz-target', '')[:128]!r}")
    return _match_rest(request, service, "rest-xml" if service == "s3" else "rest-json", routers)


def operation_in_form(body: bytes) -> tuple[str, dict[str, str]]:
    """Return the operation that a form of the query protocol names, and the form's fields.

    Raises:
        AwsError: MissingAction, or the form is malformed.
    """
    fields = parse_form(body)
    if "Action" not in fields:
        raise AwsError(
            "The form names no Action. Send Action=OPERATION and the operation's parameters.", code="MissingAction"
        )
    return fields["Action"], fields


def unknown_operation(found: Match, what: str, *, method: str, routers: Routers, name: str = "") -> AwsError:
    """Return the error for an operation that this service does not have.

    Args:
        found: The service and the protocol.
        what: The operation in words, for the message.
        method: HTTP method of the request.
        routers: The routes of REST services.
        name: Name of the operation in the model. Default: not known.
    """
    if found.service != "s3":
        instead = INSTEAD.get(name) if found.service in ("sagemaker", "application-autoscaling") else None
        message = f"This service does not implement the {what}"
        return UnknownOperation(f"{message}; instead, {instead}" if instead else f"{message}.")
    if not routers.of("s3").knows(method):
        return AwsError(f"The method {method} is not allowed against this resource.", code="MethodNotAllowed")
    return AwsError(f"This service does not implement {what}.", code="NotImplemented")


def _match_target(request: Request, target: str) -> Match:
    prefix, _, operation = target.rpartition(".")
    version = "1.0" if media_type(request.headers.get("content-type", "")).endswith("json-1.0") else "1.1"
    service = JSON_TARGETS.get(prefix)
    if service is None or not operation:
        return Match("sagemaker", "json", json_version=version, unknown=f"X-Amz-Target {target[:128]!r}")
    return Match(service, "json", operation=operation, json_version=version)


def _match_rest(request: Request, service: str, form: Form, routers: Routers) -> Match:
    found = routers.of(service).find(request)
    if found is None:
        return Match(service, form, unknown=_line(request))
    return Match(service, form, operation=found[0], path=found[1])


def _path(request: Request) -> str:
    """Return the path, which begins with the bucket, also if the client named that in AWS's host."""
    host = request.headers.get("host", "")
    bucket = bucket_in(host_name(host) or "") if ".s3" in host else None
    return request.raw_path if bucket is None else f"/{bucket}{request.raw_path}"


def _line(request: Request) -> str:
    return f"{request.method} {request.raw_path[:128]}"


def _is_form(request: Request) -> bool:
    return media_type(request.headers.get("content-type", "")) == "application/x-www-form-urlencoded"


def _is_post_form(request: Request) -> bool:
    """Return whether a request is a presigned POST of S3."""
    return (
        request.method == "POST"
        and not request.query_string
        and _FORM_PATH.fullmatch(request.raw_path) is not None
        and media_type(request.headers.get("content-type", "")) == "multipart/form-data"
    )


def _scope(request: Request) -> str | None:
    text = request.headers.get("authorization")
    if text is None and "X-Amz-Credential" in request.query_string:
        text = f"Credential={request.query_map.get('X-Amz-Credential', '')}"
    found = _SCOPE.search(text[:4096]) if text is not None else None
    return found[1] if found is not None else None


def _required(operation: OperationModel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shape = operation.input_shape
    found: dict[str, list[str]] = {"querystring": [], "header": []}
    for name in shape.required_members if shape is not None else ():
        member = shape.members[name].serialization if shape is not None else {}
        location = member.get("location")
        if location in found:
            found[location].append(member.get("name", name))
    return tuple(found["querystring"]), tuple(name.lower() for name in found["header"])


def _path_pattern(path: str) -> re.Pattern[str]:
    parts: list[str] = []
    position = 0
    for found in _PARAMETER.finditer(path):
        parts.append(re.escape(path[position : found.start()]))
        parts.append(f"(?P<{found[1]}>{'.+' if found[2] else '[^/]+'})")
        position = found.end()
    parts.append(re.escape(path[position:]))
    text = "".join(parts)
    return re.compile(text if text.endswith("/") else f"{text}/?" if not text.endswith(".+)") else text, re.DOTALL)
