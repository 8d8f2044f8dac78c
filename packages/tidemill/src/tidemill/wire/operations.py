"""One operation of a service, ready for use: how to parse, check and answer it. Compiled from the model once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from botocore.model import OperationModel, StructureShape

from tidemill.wire.bodies.body import MEMBERS, BodyStream
from tidemill.wire.exchange import Reply
from tidemill.wire.protocols.models import service_model
from tidemill.wire.protocols.parse_json import Convert, compile_json, compile_json_body
from tidemill.wire.protocols.parse_query import compile_query
from tidemill.wire.protocols.parse_rest import compile_rest
from tidemill.wire.protocols.serialize_json import compile_json_reply
from tidemill.wire.protocols.serialize_rest import compile_rest_reply, header_pairs
from tidemill.wire.protocols.serialize_xml import compile_query_reply
from tidemill.wire.reply import HttpReply
from tidemill.wire.request import Request
from tidemill.wire.validation.validate import Refuse, compile_check, compile_refusals, refuse_invalid

Read = Callable[[Request, Mapping[str, str], bytes | BodyStream, list[str]], dict[str, Any]]
"""Arguments: request, path parameters or form fields, body, and a list that collects unknown members."""
Write = Callable[[Mapping[str, Any], str], HttpReply]
"""Arguments: output members and the request id."""

_VALIDATION_CODES = {
    "cloudwatch": "ValidationError",
    "iam": "ValidationError",
    "logs": "InvalidParameterException",
    "s3": "InvalidArgument",
    "sagemaker-runtime": "ValidationError",
    "sts": "ValidationError",
}

_REFUSAL_CODES = {"s3": "InvalidRequest"}
"""Error codes for refused members, for services that have another code for them than for malformed members."""


@dataclass(frozen=True, slots=True)
class Operation:
    """The functions and facts that the gateway needs for one operation."""

    service: str
    name: str
    read: Read
    check: Callable[[dict[str, Any]], None]
    """Refuses members that the model does not allow."""
    refuse: Refuse
    """Refuses members that the service cannot honor, and returns the KMS keys that the others name."""
    write: Write
    streams_input: bool
    """Whether the handler gets the body as a stream."""
    checks_digest: bool
    """Whether checksum headers are about this request's body; in some operations they are about another object."""

    def write_reply(self, answer: Reply, request_id: str) -> HttpReply:
        """Write an answer whose status or headers differ from the model.

        Args:
            answer: The handler's answer.
            request_id: As for ``write``.
        """
        reply = self.write(answer.members, request_id)
        if answer.status != 200:
            reply.status = answer.status
        reply.headers.extend(header_pairs(answer.headers.items()))
        return reply


@lru_cache(maxsize=1024)
def operation(
    service: str, name: str, form: str, json_version: str = "1.1", *, refuses_encryption: bool = False
) -> Operation:
    """Return a compiled operation; each is compiled once.

    Args:
        service: botocore's name of the service.
        form: ``json``, ``rest-json``, ``rest-xml`` or ``query``, as in the request.
        json_version: Version of the JSON protocol in the reply's content type.
        refuses_encryption: As in `compile_refusals`.
    """
    code = _VALIDATION_CODES.get(service, "ValidationException")
    model = service_model(service).operation_model(name)
    shape = model.input_shape
    payload = shape.serialization.get("payload") if shape is not None else None
    streams = bool(payload and shape is not None and shape.members[payload].serialization.get("streaming"))
    about_object = shape is not None and MEMBERS["crc32"] in shape.members
    return Operation(
        service=service,
        name=name,
        read=_reader(shape, form, code),
        check=partial(refuse_invalid, compile_check(shape), code=code),
        refuse=compile_refusals(
            service,
            name,
            shape,
            code=_REFUSAL_CODES.get(service, code),
            refuses_encryption=refuses_encryption,
        ),
        write=_writer(model, form, json_version),
        streams_input=streams,
        checks_digest=streams or not about_object,
    )


@lru_cache(maxsize=64)
def json_reader(service: str, name: str) -> Convert:
    """Return the function that converts values of JSON to the input of an operation, whatever its protocol.

    Args:
        service: botocore's name of the service.
    """
    shape = service_model(service).operation_model(name).input_shape
    return (lambda value, path, unknown: {}) if shape is None else compile_json(shape)


def _reader(shape: StructureShape | None, form: str, code: str) -> Read:
    if form == "query":
        from_form = compile_query(shape)
        return lambda request, fields, body, unknown: from_form(fields)
    if form in ("rest-json", "rest-xml"):
        return compile_rest(shape, form="json" if form == "rest-json" else "xml", code=code)
    return compile_json_body(shape)


def _writer(model: OperationModel, form: str, json_version: str) -> Write:
    if form == "query":
        return compile_query_reply(model)
    if form in ("rest-json", "rest-xml"):
        return compile_rest_reply(model, form="json" if form == "rest-json" else "xml")
    return compile_json_reply(model.output_shape, version=json_version)
