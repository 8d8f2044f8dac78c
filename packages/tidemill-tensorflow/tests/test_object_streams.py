"""Reading and writing of objects over connections that break, on an S3 in memory that keeps S3's documented rules."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError, IncompleteReadError
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.s3 import failures, reading, writing
from tidemill_tensorflow.s3.location import Location
from tidemill_tensorflow.s3.reading import MAX_AHEAD, MIN_AHEAD, ObjectReader
from tidemill_tensorflow.s3.writing import PART_SIZE, ObjectWriter

PLACE = Location("b", "k")
MIN_PART = 5 * 1024 * 1024


def refused(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation")


class Body:
    """Content of an answer; it breaks off after some bytes."""

    def __init__(self, content: bytes, breaks_after: int | None) -> None:
        self._content, self._breaks_after = content, breaks_after
        self.is_closed = False

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        end = len(self._content) if self._breaks_after is None else self._breaks_after
        yield from (self._content[start : min(start + size, end)] for start in range(0, end, size))
        if self._breaks_after is not None:
            raise IncompleteReadError(actual_bytes=end, expected_bytes=len(self._content))

    def read(self) -> bytes:
        return self._content

    def close(self) -> None:
        self.is_closed = True


class Memory:
    """S3 with one object.

    Attributes:
        content: The object; None if there is none.
        breaks: For each of the next answers, after how many bytes it breaks off.
        ranges: Begin and length of each range that was asked for.
        copied: Ranges of the object that were copied into an upload.
    """

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.breaks: list[int] = []
        self.ranges: list[tuple[int, int]] = []
        self.bodies: list[Body] = []
        self.copied: list[str] = []
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.refuses_part = 0
        self.pretended_length: int | None = None

    def head_object(self, **_: Any) -> dict[str, Any]:
        if self.content is None:
            raise refused(404, "404")
        return {"ContentLength": self.pretended_length or len(self.content), "ETag": str(hash(self.content))}

    def get_object(self, *, Range: str = "", IfMatch: str = "", **_: Any) -> dict[str, Any]:
        if self.content is None:
            raise refused(404, "NoSuchKey")
        etag = str(hash(self.content))
        if IfMatch and IfMatch != etag:
            raise refused(412, "PreconditionFailed")
        begin, _, last = Range.removeprefix("bytes=").partition("-")
        start, end = (int(begin), int(last) + 1) if Range else (0, len(self.content))
        self.ranges.append((start, end - start))
        if Range and start >= len(self.content):
            raise refused(416, "InvalidRange")
        part = self.content[start:end]
        self.bodies.append(Body(part, self.breaks.pop(0) if self.breaks else None))
        found = {"ETag": etag, "ContentLength": len(part), "Body": self.bodies[-1]}
        return {**found, "ContentRange": f"bytes {start}-{end}/{len(self.content)}"} if Range else found

    def put_object(self, *, Body: bytes, **_: Any) -> None:
        self.content = Body

    def create_multipart_upload(self, **_: Any) -> dict[str, str]:
        upload = f"upload {len(self.uploads)}"
        self.uploads[upload] = {}
        return {"UploadId": upload}

    def upload_part(self, *, UploadId: str, PartNumber: int, Body: bytes, **_: Any) -> dict[str, str]:
        if PartNumber == self.refuses_part:
            raise refused(403, "AccessDenied")
        self.uploads[UploadId][PartNumber] = Body
        return {"ETag": f"{PartNumber}"}

    def upload_part_copy(
        self,
        *,
        UploadId: str,
        PartNumber: int,
        CopySourceRange: str,
        **_: Any,
    ) -> Any:
        assert self.content is not None
        self.copied.append(CopySourceRange)
        begin, _, last = CopySourceRange.removeprefix("bytes=").partition("-")
        self.uploads[UploadId][PartNumber] = self.content[int(begin) : int(last) + 1]
        return {"CopyPartResult": {"ETag": f"{PartNumber}"}}

    def complete_multipart_upload(self, *, UploadId: str, MultipartUpload: Any, **_: Any) -> None:
        numbers = [part["PartNumber"] for part in MultipartUpload["Parts"]]
        parts = self.uploads.pop(UploadId)
        assert numbers == sorted(parts) == list(range(1, len(parts) + 1))
        if self.pretended_length is None and any(len(parts[number]) < MIN_PART for number in numbers[:-1]):
            raise refused(400, "EntityTooSmall")
        self.content = b"".join(parts[number] for number in numbers)

    def abort_multipart_upload(self, *, UploadId: str, **_: Any) -> None:
        if self.uploads.pop(UploadId, None) is None:
            raise refused(404, "NoSuchUpload")


def read(reader: ObjectReader, offset: int, length: int) -> bytes:
    room = bytearray(length)
    return bytes(room[: reader.read_into(offset, memoryview(room))])


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(1).randbytes(9 * 1024 * 1024)


@pytest.mark.parametrize("length", [100_000, MAX_AHEAD + 1], ids=["read ahead", "at once"])
def test_a_broken_answer_goes_on_behind_the_last_byte(content: bytes, length: int) -> None:
    memory = Memory(content)
    memory.breaks = [1000, 0, 50_000]
    assert read(ObjectReader(memory, PLACE), 7, length) == content[7 : 7 + length]
    assert [start for start, _ in memory.ranges] == [7, 1007, 1007, 51_007]
    assert len({start + size for start, size in memory.ranges}) == 1, "the rest of the same range"
    assert all(body.is_closed for body in memory.bodies)


def test_an_object_whose_answers_always_break_is_an_error_after_some_attempts(content: bytes) -> None:
    memory = Memory(content)
    memory.breaks = [0] * 100
    reader = ObjectReader(memory, PLACE)
    with pytest.raises(failures.FilesystemError, match="s3://b/k: ") as found:
        read(reader, 0, 10)
    assert found.value.code == failures.UNAVAILABLE
    assert len(memory.ranges) == reading._ATTEMPTS
    memory.breaks.clear()
    assert read(reader, 0, 10) == content[:10], "a later read begins anew"


def test_an_object_that_is_replaced_while_its_answer_breaks_is_not_mixed(content: bytes) -> None:
    memory = Memory(content)
    memory.breaks = [1000]
    original = memory.get_object

    def get_object(**given: Any) -> dict[str, Any]:
        if memory.ranges:
            memory.content = content[::-1]
        return original(**given)

    memory.get_object = get_object  # type: ignore[method-assign]
    with pytest.raises(failures.FilesystemError) as found:
        read(ObjectReader(memory, PLACE), 0, 5000)
    assert found.value.code == failures.FAILED_PRECONDITION


def test_reads_one_after_the_other_ask_for_more_each_time_and_others_for_little(content: bytes) -> None:
    memory = Memory(content)
    reader = ObjectReader(memory, PLACE)
    step = 50_000
    read_back = b"".join(read(reader, start, step) for start in range(0, len(content), step))
    assert read_back == content
    sizes = [size for _, size in memory.ranges]
    assert sizes[:4] == [MIN_AHEAD, 2 * MIN_AHEAD, 4 * MIN_AHEAD, 8 * MIN_AHEAD]
    assert sum(sizes) == len(content), "each byte once, and none behind the end"
    memory.ranges.clear()
    for start in (8_000_000, 100, 4_000_000):
        assert read(reader, start, 10) == content[start : start + 10]
    assert memory.ranges == [(8_000_000, MIN_AHEAD), (100, MIN_AHEAD), (4_000_000, MIN_AHEAD)]
    memory.ranges.clear()
    assert read(reader, 4_000_010, 10) == content[4_000_010:4_000_020]
    assert not memory.ranges, "it was read ahead"
    reader.discard()
    assert read(reader, 4_000_010, 10) == content[4_000_010:4_000_020]
    assert len(memory.ranges) == 1


def test_there_is_nothing_behind_the_end_and_in_an_empty_object() -> None:
    for content in (b"", b"abc"):
        reader = ObjectReader(Memory(content), PLACE)
        assert read(reader, 3, 10) == b""
        assert read(reader, 0, 10) == content
        assert read(reader, 1, 10) == content[1:]
        assert read(reader, 0, 0) == b""


def test_what_is_written_in_parts_is_seen_whole_at_each_flush(content: bytes) -> None:
    memory = Memory(b"before")
    writer = ObjectWriter(memory, PLACE, append=False)
    pieces = [content, content, content[:7], content]
    for number, piece in enumerate(pieces, 1):
        writer.append(memoryview(piece))
        assert memory.content == b"".join(pieces[: number - 1] if number > 1 else [b"before"])
        writer.flush()
        assert memory.content == b"".join(pieces[:number])
        assert writer.position == len(memory.content)
        assert not memory.uploads
    before = memory.content
    memory.put_object = None  # type: ignore[assignment]
    writer.close()
    assert memory.content is before, "nothing is sent again"


def test_a_part_that_fails_leaves_the_object_as_it_was_and_no_upload(content: bytes) -> None:
    for refuses_part in (1, 2):
        memory = Memory(b"before")
        memory.refuses_part = refuses_part
        writer = ObjectWriter(memory, PLACE, append=False)
        writer.append(memoryview(content * 2))
        writer.append(memoryview(content * 2)[:PART_SIZE])
        with pytest.raises(failures.FilesystemError, match="s3://b/k: AccessDenied") as found:
            writer.close()
        assert found.value.code == failures.PERMISSION_DENIED
        assert memory.content == b"before" and not memory.uploads


@pytest.mark.parametrize("existing", [None, b"", b"old", bytes(PART_SIZE)], ids=["none", "empty", "small", "large"])
def test_appending_goes_on_behind_what_there_is(existing: bytes | None) -> None:
    memory = Memory(existing)
    writer = ObjectWriter(memory, PLACE, append=True)
    assert writer.position == len(existing or b"")
    writer.append(memoryview(b"new"))
    writer.discard()
    assert memory.content == existing
    writer = ObjectWriter(memory, PLACE, append=True)
    writer.append(memoryview(b"new"))
    writer.close()
    assert memory.content == (existing or b"") + b"new"
    assert len(memory.copied) == (existing is not None and len(existing) == PART_SIZE), "the service copies large ones"


@pytest.mark.parametrize("rest", [0, 1, MIN_PART, 4 << 30])
def test_parts_that_the_service_copies_are_neither_too_large_nor_too_small(rest: int) -> None:
    memory = Memory(b"")
    memory.pretended_length = length = (4 << 30) + rest
    writer = ObjectWriter(memory, PLACE, append=True)
    writer.append(memoryview(b"new"))
    writer.flush()
    spans = sorted(tuple(map(int, span.removeprefix("bytes=").split("-"))) for span in memory.copied)
    assert spans[0][0] == 0 and spans[-1][1] == length - 1
    assert all(first[1] + 1 == second[0] for first, second in itertools.pairwise(spans))
    assert all(MIN_PART <= last + 1 - start <= writing._MAX_COPY <= 5 << 30 for start, last in spans)


# --- any sizes, with requests of a few bytes --------------------------------------------------------------------------
PART = 8


class Loose(Memory):
    """Accepts parts of any size, as the tests make them small."""

    def complete_multipart_upload(self, **given_: Any) -> None:
        self.pretended_length = 1
        super().complete_multipart_upload(**given_)
        self.pretended_length = None


@contextmanager
def small_requests() -> Iterator[None]:
    """Make requests so small that a few bytes need several of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MIN_AHEAD", 4)
        patch.setattr(reading, "MAX_AHEAD", 16)
        patch.setattr(reading, "_CHUNK", 3)
        patch.setattr(writing, "PART_SIZE", PART)
        patch.setattr(writing, "_PARTS_PER_SIZE", 3)
        patch.setattr(writing, "_MAX_COPY", 20)
        yield


places = st.tuples(st.integers(0, 70), st.integers(0, 40))


@small_requests()
@settings(max_examples=200)
@given(st.binary(max_size=60), st.lists(places, max_size=8), st.lists(st.integers(0, 10), max_size=3))
def test_any_reads_return_the_bytes_at_their_places(
    content: bytes, reads: list[tuple[int, int]], breaks: list[int]
) -> None:
    memory = Memory(content)
    reader = ObjectReader(memory, PLACE)
    memory.breaks = breaks
    for offset, length in reads:
        assert read(reader, offset, length) == content[offset : offset + length]
    assert all(body.is_closed for body in memory.bodies)
    assert all(size > 0 for _, size in memory.ranges)


@small_requests()
@settings(max_examples=200)
@given(
    st.none() | st.binary(max_size=30),
    st.booleans(),
    st.lists(st.binary(max_size=30) | st.just("flush"), max_size=8),
    st.booleans(),
)
def test_any_writes_are_one_object_at_each_flush_and_the_object_before_stays_until_then(
    existing: bytes | None, append: bool, calls: list[Any], is_discarded: bool
) -> None:
    memory = Loose(existing)
    writer = ObjectWriter(memory, PLACE, append=append)
    written = (existing or b"") if append else b""
    visible = existing
    for call in calls:
        if call == "flush":
            writer.flush()
            visible = written
            assert not memory.uploads
        else:
            writer.append(memoryview(call))
            written += call
        assert memory.content == visible
        assert writer.position == len(written)
    if is_discarded:
        writer.discard()
        assert memory.content == visible
    else:
        writer.close()
        assert memory.content == written, "also an empty object, as an empty file"
    assert not memory.uploads


@small_requests()
@settings(max_examples=100)
@given(st.binary(max_size=20), st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=5), st.integers(1, 6))
def test_a_part_that_fails_at_any_place_leaves_the_object_and_no_upload(
    existing: bytes, pieces: list[bytes], refused_part: int
) -> None:
    memory = Loose(existing)
    memory.refuses_part = refused_part
    writer = ObjectWriter(memory, PLACE, append=False)
    whole = b"".join(pieces)
    try:
        for piece in pieces:
            writer.append(memoryview(piece))
        writer.close()
    except failures.FilesystemError as error:
        writer.discard()
        assert "AccessDenied" in error.text
        assert memory.content == existing
    else:
        assert memory.content == whole
    assert not memory.uploads


@small_requests()
@given(st.binary(min_size=1, max_size=60), st.integers(1, 40))
def test_an_object_that_changes_between_reads_is_an_error_and_never_a_mixture(content: bytes, first: int) -> None:
    memory = Memory(content)
    reader = ObjectReader(memory, PLACE)
    begin = read(reader, 0, first)
    memory.content = bytes(255 - byte for byte in content)
    try:
        rest = read(reader, first, 60)
    except failures.FilesystemError as error:
        assert "PreconditionFailed" in error.text
    else:
        assert begin + rest == content[: first + len(rest)], "it was read ahead, or there is nothing behind the end"
