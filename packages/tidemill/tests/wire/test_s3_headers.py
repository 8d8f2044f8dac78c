"""S3's headers as clients write them: enumerations in any case, and empty headers, for every member of the model."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.model import ListShape, Shape

from tidemill.errors import AwsError
from tidemill.wire.operations import operation
from tidemill.wire.protocols.models import service_model
from tidemill.wire.request import Request

CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "bucket-owner")


def header_members() -> Iterator[tuple[str, str, Shape]]:
    """Yield operation, member and shape of every header of every S3 operation."""
    model = service_model("s3")
    for name in model.operation_names:
        shape = model.operation_model(name).input_shape
        for member, inner in shape.members.items() if shape is not None else ():
            if inner.serialization.get("location") == "header":
                yield name, member, inner


def read(operation_name: str, header: str, value: str) -> dict[str, Any]:
    """Return the members of a request whose only header is ``header``."""
    request = Request("PUT", "/b/k", headers={header: value})
    return operation("s3", operation_name, "rest-xml").read(request, {}, b"", [])


def test_every_enumeration_in_a_header_is_read_in_any_case() -> None:
    seen = set()
    for name, member, shape in header_members():
        header = shape.serialization["name"].lower()
        listed = isinstance(shape, ListShape)
        inner = shape.member if isinstance(shape, ListShape) else shape
        for value in inner.metadata.get("enum", ()):
            for written in (value.lower(), value.upper(), value.title(), value):
                assert read(name, header, written)[member] == ([value] if listed else value)
            seen.add(header)
    assert {"x-amz-checksum-mode", "x-amz-acl", "x-amz-metadata-directive", "x-amz-object-attributes"} <= seen


def test_a_value_outside_an_enumeration_is_passed_on_to_be_refused() -> None:
    assert read("GetObject", "x-amz-checksum-mode", "Enable") == {"ChecksumMode": "Enable"}


@pytest.mark.parametrize("blank", ["", " "])
def test_every_empty_header_is_absent_but_for_conditions(blank: str) -> None:
    kept = set()
    for name, member, shape in header_members():
        header = shape.serialization["name"].lower()
        try:
            kept_value = member in read(name, header, blank)
        except AwsError as error:  # an empty time
            assert (error.code, error.status) == ("InvalidArgument", 400)
            kept_value = True
        if kept_value:
            kept.add(header)
    assert all(any(part in header for part in CONDITIONS) for header in kept)
    assert {"if-match", "if-none-match", "x-amz-copy-source-if-modified-since", "x-amz-expected-bucket-owner"} <= kept
    assert "x-amz-acl" not in kept


def test_metadata_may_be_empty() -> None:
    assert read("PutObject", "x-amz-meta-note", "")["Metadata"] == {"note": ""}
