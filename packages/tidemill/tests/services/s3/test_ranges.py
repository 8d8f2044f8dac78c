"""Byte ranges at their limits: which bytes are sent, what is ignored, and what is refused."""

import pytest

from tidemill.errors import AwsError
from tidemill.services.s3.ranges import Slice, copy_range, part_slice, requested_slice
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectInfo


@pytest.mark.parametrize(
    ("text", "offset", "size_bytes"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-5", 5, 1),
        ("bytes=9-9", 9, 1),
        ("bytes=9-10", 9, 1),
        ("bytes=0-99", 0, 10),
        ("bytes=9-", 9, 1),
        ("bytes=-1", 9, 1),
        ("bytes=-10", 0, 10),
        ("bytes=-11", 0, 10),
    ],
)
def test_a_range_selects_bytes_with_both_ends(text: str, offset: int, size_bytes: int) -> None:
    assert requested_slice(text, 10) == Slice(offset, size_bytes)


@pytest.mark.parametrize(
    "text", [None, "", "bytes=5-2", "bytes=5-4", "bytes=", "bytes=-", "bytes=1-2,4-5", "items=0-1", "bytes=a-b"]
)
def test_what_is_no_single_range_is_ignored(text: str | None) -> None:
    assert requested_slice(text, 10) is None


@pytest.mark.parametrize("text", ["bytes=10-", "bytes=10-10", "bytes=-0"])
def test_a_range_without_a_byte_of_the_object_is_refused(text: str) -> None:
    with pytest.raises(AwsError) as refused:
        requested_slice(text, 10)
    assert (refused.value.code, refused.value.status) == ("InvalidRange", 416)
    assert refused.value.headers == {"content-range": "bytes */10"}


def test_a_range_of_an_empty_object_is_refused() -> None:
    with pytest.raises(AwsError, match="lies outside"):
        requested_slice("bytes=0-", 0)


def test_a_copy_takes_a_range_with_both_ends_within_the_source() -> None:
    assert copy_range(None, 10) == Slice(0, 10)
    assert copy_range("bytes=0-9", 10) == Slice(0, 10)
    assert copy_range("bytes=9-9", 10) == Slice(9, 1)
    for text in ("bytes=5-2", "bytes=5-4", "bytes=0-10", "bytes=10-10", "bytes=5-", "bytes=-5", "0-9"):
        with pytest.raises(InvalidArgument, match="cannot be used"):
            copy_range(text, 10)


def test_parts_are_numbered_from_one_to_their_count() -> None:
    info = ObjectInfo(
        bucket="b", key="k", content_id="c", size_bytes=6, etag="e", sha256="s", modified_ms=1, part_sizes=(1, 2, 3)
    )
    assert [part_slice(info, number) for number in (1, 2, 3)] == [Slice(0, 1), Slice(1, 2), Slice(3, 3)]
    for number in (0, -1, 4):
        with pytest.raises(AwsError, match=f"there is no part {number}; .* has 3 parts"):
            part_slice(info, number)
