"""Converts output members to the query protocol's XML: Response, Result, ResponseMetadata."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import OperationModel

from tidemill.wire.protocols.serialize_xml import compile_to_xml
from tidemill.wire.reply import HttpReply

__all__ = ["compile_query_reply"]


def compile_query_reply(operation: OperationModel) -> Callable[[Mapping[str, Any], str], HttpReply]:
    """Return the writer of an operation's output: a function of the members and the request id."""
    namespace = operation.service_model.metadata.get("xmlNamespace", "")
    shape = operation.output_shape
    wrapper = shape.serialization.get("resultWrapper", f"{operation.name}Result") if shape is not None else None
    members = compile_to_xml(shape) if shape is not None else None
    start = f'<{operation.name}Response xmlns="{namespace}">'

    def write(value: Mapping[str, Any], request_id: str) -> HttpReply:
        out = [start]
        if members is not None:
            out.append(f"<{wrapper}>")
            members(value, out)
            out.append(f"</{wrapper}>")
        out.append(
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{operation.name}Response>"
        )
        return HttpReply(200, [(b"content-type", b"text/xml")], "".join(out).encode("utf-8", "replace"))

    return write
