"""Errors in the form of each protocol: JSON with ``__type``, S3's XML, the query protocol's XML."""

import json

from tidemill._shared.http.limits import Headers, Refusal
from tidemill.errors import AwsError
from tidemill.wire.match import Match
from tidemill.wire.protocols.models import error_members, service_model
from tidemill.wire.protocols.serialize_json import dump
from tidemill.wire.protocols.serialize_rest import header_pairs
from tidemill.wire.protocols.serialize_xml import element
from tidemill.wire.reply import HttpReply
from tidemill.wire.request import Request

_BODILESS = (204, 304)
_REFUSAL_CODES = {
    408: "RequestTimeout",
    414: "RequestURITooLong",
    431: "RequestHeaderSectionTooLarge",
    500: "InternalFailure",
    503: "ServiceUnavailable",
}


def error_reply(error: AwsError, *, request: Request, match: Match, request_id: str) -> HttpReply:
    """Serialize an error.

    Args:
        request: The request; the answer to a HEAD has no body.
        match: Determines the protocol.
        request_id: Included in the body if the protocol has a member for it.
    """
    if match.form == "rest-xml":
        reply = _s3(error, request, request_id)
    elif match.form == "query":
        reply = _query(error, match, request_id)
    else:
        reply = _json(error, match)
    reply.headers.extend(header_pairs(error.headers.items()))
    if request.method == "HEAD" or error.status in _BODILESS:
        reply.content_length = 0 if request.method == "HEAD" else None
        reply.body = b""
        reply.headers = [pair for pair in reply.headers if pair[0] != b"content-type"]
    return reply


def refusal_form(refusal: Refusal) -> tuple[Headers, bytes]:
    """Return the headers and the body for a request whose protocol is not known, because its head was refused.

    Args:
        refusal: The refusal of the connection.
    """
    code = _REFUSAL_CODES.get(refusal.status, "InvalidRequest")
    body = json.dumps({"__type": code, "message": refusal.message}).encode("ascii")
    headers = ((b"content-type", b"application/x-amz-json-1.1"), (b"x-amzn-errortype", code.encode("ascii")))
    return headers, body


def _json(error: AwsError, match: Match) -> HttpReply:
    document: dict[str, object] = {"__type": error.code, "message": error.message, **error.members}
    if "Message" in error_members(match.service, error.code):
        document["Message"] = error.message
    content_type = "application/json" if match.form == "rest-json" else f"application/x-amz-json-{match.json_version}"
    headers = [(b"content-type", content_type.encode()), (b"x-amzn-errortype", error.code.encode())]
    return HttpReply(error.status, headers, dump(document))


def _s3(error: AwsError, request: Request, request_id: str) -> HttpReply:
    parts = [element("Code", error.code), element("Message", error.message)]
    parts.extend(element(name, str(value)) for name, value in error.members.items())
    if "Resource" not in error.members:
        parts.append(element("Resource", request.raw_path[:1024]))
    parts += [element("RequestId", request_id), element("HostId", request_id)]
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{"".join(parts)}</Error>'
    return HttpReply(error.status, [(b"content-type", b"application/xml")], text.encode("utf-8", "replace"))


def _query(error: AwsError, match: Match, request_id: str) -> HttpReply:
    namespace = service_model(match.service).metadata.get("xmlNamespace", "")
    kind = "Receiver" if error.status >= 500 else "Sender"
    text = (
        f'<ErrorResponse xmlns="{namespace}"><Error><Type>{kind}</Type>{element("Code", error.code)}'
        f"{element('Message', error.message)}</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return HttpReply(error.status, [(b"content-type", b"text/xml")], text.encode("utf-8", "replace"))
