"""The special rules of S3's XML: the namespace, the names of root elements, and one reply that is only a text."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import StructureShape

from tidemill.wire.protocols.serialize_xml import compile_to_xml, escape

__all__ = ["S3_NAMESPACE", "s3_document"]

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_ROOTS = {
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "CopyObject": "CopyObjectResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketTagging": "Tagging",
    "GetBucketVersioning": "VersioningConfiguration",
    "GetObjectAttributes": "GetObjectAttributesResponse",
    "GetObjectTagging": "Tagging",
    "ListBuckets": "ListAllMyBucketsResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListObjectVersions": "ListVersionsResult",
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListParts": "ListPartsResult",
    "UploadPartCopy": "CopyPartResult",
}
"""The model does not name the root elements; clients other than botocore check them."""


def s3_document(shape: StructureShape, operation_name: str) -> Callable[[Mapping[str, Any]], bytes]:
    """Return the writer of an S3 reply document."""
    if operation_name == "GetBucketLocation":
        return _location
    root = _ROOTS.get(operation_name) or str(shape.serialization.get("name", shape.name.removesuffix("Output")))
    members = compile_to_xml(shape)
    start, end = f'{_HEAD}<{root} xmlns="{S3_NAMESPACE}">', f"</{root}>"

    def write(value: Mapping[str, Any]) -> bytes:
        out = [start]
        members(value, out)
        out.append(end)
        return "".join(out).encode("utf-8", "replace")

    return write


def _location(value: Mapping[str, Any]) -> bytes:
    region = escape(value.get("LocationConstraint") or "")
    return f'{_HEAD}<LocationConstraint xmlns="{S3_NAMESPACE}">{region}</LocationConstraint>'.encode()
