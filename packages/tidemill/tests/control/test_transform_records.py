"""Transform jobs split objects into requests, and join answers to results."""

import gzip
import io
import struct
from typing import Any

import pytest
from awscrt.checksums import crc32c

from tidemill.control.transform.paths import NothingSelected, Path
from tidemill.control.transform.payloads import PayloadCutter
from tidemill.control.transform.processing import Processing, ProcessingFault
from tidemill.control.transform.records import BadObject, splitter


def record_io(*records: bytes) -> bytes:
    return b"".join(struct.pack("<II", 0xCED7230A, len(each)) + each + b"\0" * (-len(each) % 4) for each in records)


def tf_record(*records: bytes) -> bytes:
    def check(data: bytes) -> bytes:
        value = crc32c(data)
        return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    framed = []
    for each in records:
        length = struct.pack("<Q", len(each))
        framed.append(length + check(length) + each + check(each))
    return b"".join(framed)


def cutter(split: str, *, single: bool = False, limit_bytes: int = 20, **members: Any) -> PayloadCutter:
    processing = members.pop("processing", Processing(of_lines=split == "Line"))
    return PayloadCutter(
        split=splitter(split),
        framed=not single and split != "None",
        single=single,
        limit_bytes=limit_bytes,
        gzipped=members.pop("gzipped", False),
        processing=processing,
    )


def bodies(cut: PayloadCutter, content: bytes) -> list[bytes]:
    return [payload.body for payload in cut.payloads(io.BytesIO(content))]


@pytest.mark.parametrize(
    ("cut", "content", "expected"),
    [
        (cutter("None"), b"abc\ndef", [b"abc\ndef"]),
        (cutter("None"), b"", []),
        (cutter("Line"), b"ab\r\n\n\ncd", [b"ab\ncd"]),
        (cutter("Line", single=True), b"ab\ncd\n", [b"ab", b"cd"]),
        (cutter("Line", limit_bytes=6), b"ab\ncd\nefghij\nk\n", [b"ab\ncd", b"efghij", b"k"]),
        (cutter("Line", gzipped=True), gzip.compress(b"ab\n", mtime=0) + gzip.compress(b"cd", mtime=0), [b"ab\ncd"]),
        (cutter("RecordIO"), record_io(b"a", b"") + record_io(b"bcd"), [record_io(b"a", b""), record_io(b"bcd")]),
        (cutter("RecordIO", single=True), record_io(b"abcde", b"fg"), [b"abcde", b"fg"]),
        (cutter("TFRecord", limit_bytes=99), tf_record(b"abcde", b"fg"), [tf_record(b"abcde", b"fg")]),
        (cutter("TFRecord", single=True), tf_record(b"abcde", b"fg"), [b"abcde", b"fg"]),
    ],
)
def test_objects_are_cut_into_requests(cut: PayloadCutter, content: bytes, expected: list[bytes]) -> None:
    assert bodies(cut, content) == expected


def test_requests_record_which_records_they_contain() -> None:
    payloads = cutter("Line", limit_bytes=6).payloads(io.BytesIO(b"ab\n\ncd\nefghij\n"))
    assert [each.place for each in payloads] == ["records 1 to 2", "record 3"]


@pytest.mark.parametrize(
    ("cut", "content", "words"),
    [
        (cutter("None"), b"x" * 21, "it is larger than MaxPayloadInMB, 20 bytes"),
        (cutter("Line"), b"a\n" + b"x" * 21, "line 2 is larger than MaxPayloadInMB, 20 bytes"),
        (cutter("None", gzipped=True), b"plain", "it cannot be decompressed as CompressionType Gzip: Not a gzipped"),
        (
            cutter("Line", gzipped=True),
            gzip.compress(b"ab\n", mtime=0)[:-1],
            "it cannot be decompressed as CompressionType Gzip",
        ),
        (cutter("TFRecord"), tf_record(b"abc")[:-1], "it ends within TFRecord record 1"),
        (cutter("TFRecord"), b"no TFRecord at all", "the object is damaged or no TFRecord file"),
        (cutter("TFRecord"), tf_record(b"abc")[:-5] + b"X" + tf_record(b"abc")[-4:], "record 1: its checksum is wrong"),
        (cutter("TFRecord"), tf_record(b"a", b"x" * 21), "TFRecord record 2 is larger than MaxPayloadInMB"),
        (cutter("RecordIO"), b"no RecordIO", "RecordIO record 1 begins with 0x52206f6e"),
        (cutter("RecordIO"), record_io(b"abc")[:-1], "it ends within RecordIO record 1"),
    ],
)
def test_an_object_in_another_format_than_the_job_declares_is_refused_with_the_reason(
    cut: PayloadCutter, content: bytes, words: str
) -> None:
    with pytest.raises(BadObject) as caught:
        bodies(cut, content)
    assert words in str(caught.value)


def test_an_object_is_read_no_further_than_its_requests_are_taken() -> None:
    class Endless(io.RawIOBase):
        read_bytes = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = b"abcdefg\n" * (len(buffer) // 8)
            self.read_bytes += len(buffer)
            return len(buffer)

    endless = Endless()
    payloads = cutter("Line", limit_bytes=64 * 1024).payloads(io.BufferedReader(endless, 8192))  # type: ignore[arg-type]
    for _ in range(10):
        next(payloads)
    assert endless.read_bytes <= 11 * 64 * 1024


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("$", [1, 2], [1, 2]),
        ("$[1:]", [1, 2, 3], [2, 3]),
        ("$[0,-1]", ["a", "b", "c"], ["a", "c"]),
        ("$.a.b", {"a": {"b": 1}}, 1),
        ("$['a b']", {"a b": 1}, 1),
        ("$['a','b']", {"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}),
        ("$.rows[*].x", {"rows": [{"x": 1}, {"x": 2}]}, [1, 2]),
        ("$[5:]", [1], []),
    ],
)
def test_paths_select_as_data_processing_does(path: str, value: Any, expected: Any) -> None:
    assert Path(path).select(value) == expected


@pytest.mark.parametrize("path", ["a.b", "$..a", "$[?@.a>1]", "$[0", "$.a | $.b", ""])
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"JSONPath|offered|several"):
        Path(path)


def test_a_path_to_nothing_is_an_error() -> None:
    with pytest.raises(NothingSelected, match=r"there is nothing at '\$.a'"):
        Path("$.a").select({"b": 1})


@pytest.mark.parametrize(
    ("members", "records", "answer", "expected"),
    [
        (("text/csv", "$"), [b'1,"a,b"'], b"0.5\n", b'1,"a,b",0.5'),
        (("text/csv", "$[-1]"), [b"1", b"2"], b"0.5\n0.25\n", b"0.5\n0.25"),
        (("application/json", "$"), [b'{"a":1}'], b'{"p": [\n1]}', b'{"a":1,"SageMakerOutput":{"p":[1]}}'),
        (("application/json", "$"), [b"[1]"], b"2", b'{"SageMakerInput":[1],"SageMakerOutput":2}'),
        (("application/json", "$.SageMakerOutput"), [b"{}", b"{}"], b"1\n2", b"1\n2"),
    ],
)
def test_results_are_joined_to_their_records(
    members: tuple[str, str], records: list[bytes], answer: bytes, expected: bytes
) -> None:
    kind, path = members
    processing = Processing(content_type=kind, joins=True, output_filter=Path(path))
    assert processing.output_of(records, answer, kind) == expected


@pytest.mark.parametrize(
    ("records", "answer", "kind", "words"),
    [
        ([b"1", b"2"], b'{"predictions": [1, 2]}', "application/json", "JoinSource needs one format of both"),
        ([b"1", b"2"], b"3\n", "text/csv", "a line of the answer for each of the 2 records of a request"),
        ([b"1"], b"3\n4\n", "text/csv", "a line of the answer for each of the 1 records of a request"),
        ([b"1"], b"\x00", "image/png", "the answer's content type is 'image/png'"),
        ([b"1"], b"\xff", "text/csv", "it is not CSV"),
    ],
)
def test_results_that_cannot_be_joined_are_refused(records: list[bytes], answer: bytes, kind: str, words: str) -> None:
    with pytest.raises(ProcessingFault) as caught:
        Processing(content_type="text/csv", joins=True).output_of(records, answer, kind)
    assert words in str(caught.value)


def test_answers_are_filtered_by_document_or_by_line() -> None:
    processing = Processing(output_filter=Path("$.predictions[0]"))
    assert processing.output_of((), b'{\n"predictions": [[1, 2]]\n}', "application/json; charset=utf-8") == b"[1,2]"
    assert processing.output_of((), b'{"predictions": [1]}\n{"predictions": [2]}\n', "application/jsonlines") == b"1\n2"
