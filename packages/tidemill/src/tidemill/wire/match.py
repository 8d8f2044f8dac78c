"""Determines the service of a request by its target header, its content type and its path, in this order, or else S3.

The protocol is not fixed per service, because the protocol in a model changes between releases of clients.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidemill.wire.protocols.models import JSON_TARGETS
from tidemill.wire.request import Request, media_type
from tidemill.wire.router import RestRouter

__all__ = ["SIGNING_NAMES", "Form", "Match", "match"]

Form = str
"""Format of errors: ``json``, ``rest-json``, ``rest-xml`` or ``query``."""

SIGNING_NAMES = {"sagemaker-runtime": "sagemaker", "cloudwatch": "monitoring", "tidemill-instances": "tidemill"}
"""Names in signatures of services that sign under another name than botocore's."""

_QUERY_SCOPES = {"sts": "sts", "iam": "iam", "monitoring": "cloudwatch"}
_RUNTIME_PATH = re.compile(r"/endpoints/[^/]+/(invocations|async-invocations|invocations-response-stream)")
_METRICS_PATH = re.compile(r"/BatchPutMetrics|/FeatureGroup/.*|/BatchGetRecord")
_SCOPE = re.compile(r"Credential=[^/,\s]+/\d+/[^/,\s]*/([^/,\s]+)/aws4_request")


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
    unknown: str | None = None
    """The requested operation, if this service does not have it."""

    @property
    def signing_name(self) -> str:
        """The service's name in the scope of a signature."""
        return SIGNING_NAMES.get(self.service, self.service)


def match(request: Request, *, router: Callable[[str], RestRouter]) -> Match:
    """Determine service, protocol and operation.

    Args:
        request: The head of a request, not verified.
        router: Returns the routes of a REST service.

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
    if _RUNTIME_PATH.fullmatch(request.raw_path):
        return _match_rest(request, "sagemaker-runtime", "rest-json", router)
    if scope == "sagemaker" and _METRICS_PATH.fullmatch(request.raw_path):
        return Match("sagemaker-runtime", "rest-json", unknown=f"{request.method} {request.raw_path[:128]}")
    return _match_rest(request, "s3", "rest-xml", router)


def _match_target(request: Request, target: str) -> Match:
    prefix, _, operation = target.rpartition(".")
    version = "1.0" if media_type(request.headers.get("content-type", "")).endswith("json-1.0") else "1.1"
    service = JSON_TARGETS.get(prefix)
    if service is None or not operation:
        return Match("sagemaker", "json", json_version=version, unknown=f"X-Amz-Target {target[:128]!r}")
    return Match(service, "json", operation=operation, json_version=version)


def _match_rest(request: Request, service: str, form: Form, router: Callable[[str], RestRouter]) -> Match:
    found = router(service).find(request)
    if found is None:
        return Match(service, form, unknown=f"{request.method} {request.raw_path[:128]}")
    return Match(service, form, operation=found[0], path=found[1])


def _is_form(request: Request) -> bool:
    return media_type(request.headers.get("content-type", "")) == "application/x-www-form-urlencoded"


def _scope(request: Request) -> str | None:
    text = request.headers.get("authorization")
    if text is None and "X-Amz-Credential" in request.query_string:
        text = f"Credential={request.query_map.get('X-Amz-Credential', '')}"
    found = _SCOPE.search(text[:4096]) if text is not None else None
    return found[1] if found is not None else None
