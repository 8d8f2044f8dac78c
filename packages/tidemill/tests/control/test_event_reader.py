"""The reader of event files, on records that these tests encode, also damaged ones and in archives."""

import io
import json
import random
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.scalars import event_reader
from tidemill.control.scalars.event_reader import KEPT_POINTS, read_archive, read_file


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def part(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def crc32c(data: bytes) -> int:
    """CRC-32C by its definition, bit by bit, masked as in records."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(content: bytes) -> bytes:
    head = struct.pack("<Q", len(content))
    return head + struct.pack("<I", crc32c(head)) + content + struct.pack("<I", crc32c(content))


def event(step: int, *values: bytes, time_s: float = 100.0) -> bytes:
    head = varint(1 << 3 | 1) + struct.pack("<d", time_s) + varint(2 << 3) + varint(step)
    return record(head + part(5, b"".join(part(1, value) for value in values)))


def simple(tag: str, value: float) -> bytes:
    return part(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def tensor(tag: str, content: bytes, *, plugin: str = "scalars") -> bytes:
    metadata = part(9, part(1, part(1, plugin.encode()))) if plugin else b""
    return part(1, tag.encode()) + metadata + part(8, content)


def read(data: bytes, offset: int = 0) -> dict[str, Any]:
    return read_file(io.BytesIO(data), offset=offset)


def values(data: bytes) -> dict[str, list[float]]:
    found = read(data)
    assert found["damage"] == ""
    return {tag: points["values"] for tag, points in found["tags"].items()}


BEGIN = record(varint(1 << 3 | 1) + struct.pack("<d", 1.0) + part(3, b"brain.Event:2"))
DTYPE, SHAPE = varint(1 << 3), 2


def test_scalars_of_both_versions_are_read_with_steps_and_times() -> None:
    data = BEGIN + event(3, simple("acc", 0.5), simple("loss", 2.0), time_s=7.5) + event(-1, simple("acc", 0.25))
    found = read(data)
    assert found["tags"]["acc"] == {
        "steps": [3, -1],
        "times": [7.5, 100.0],
        "values": [0.5, 0.25],
        "count": 2,
        "not_finite": 0,
    }
    assert found["tags"]["loss"]["values"] == [2.0]
    assert (found["offset"], found["complete"]) == (len(data), True)


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (DTYPE + varint(1) + part(4, struct.pack("<f", 1.5)), 1.5),
        (DTYPE + varint(2) + part(4, struct.pack("<d", 1.25)), 1.25),
        (DTYPE + varint(3) + part(7, varint(-3)), -3.0),
        (DTYPE + varint(9) + varint(10 << 3) + varint(-9), -9.0),
        (DTYPE + varint(19) + part(4, struct.pack("<e", 0.5)), 0.5),
        (DTYPE + varint(10) + part(4, b"\x01"), 1.0),
        (DTYPE + varint(1) + varint(5 << 3 | 5) + struct.pack("<f", 4.0), 4.0),
        (DTYPE + varint(1) + part(5, struct.pack("<f", 4.0)), 4.0),
        (DTYPE + varint(1), 0.0),
        (DTYPE + varint(1) + part(SHAPE, part(2, varint(1 << 3) + varint(1))) + part(4, struct.pack("<f", 8.0)), 8.0),
    ],
)
def test_a_tensor_with_one_number_is_a_scalar(content: bytes, value: float) -> None:
    assert values(event(0, tensor("x", content))) == {"x": [value]}


@pytest.mark.parametrize(
    "written",
    [
        tensor("x", DTYPE + varint(1) + part(4, struct.pack("<2f", 1, 2))),
        tensor("x", DTYPE + varint(1) + part(SHAPE, part(2, varint(1 << 3) + varint(2))) + part(4, bytes(8))),
        tensor("x", DTYPE + varint(7) + part(8, b"text")),
        tensor("x", DTYPE + varint(1) + part(4, bytes(4)), plugin="histograms"),
        part(1, b"x") + part(4, b"an image"),
    ],
)
def test_what_is_no_scalar_is_left_out(written: bytes) -> None:
    assert values(event(0, written) + event(1, simple("y", 1.0))) == {"y": [1.0]}


def test_later_tensors_of_a_tag_belong_to_the_plugin_of_the_first() -> None:
    number = DTYPE + varint(1) + part(4, struct.pack("<f", 1.0))
    data = event(0, tensor("h", number, plugin="hparams")) + event(1, tensor("h", number, plugin=""))
    data += event(0, tensor("s", number)) + event(1, tensor("s", number, plugin=""))
    assert values(data) == {"s": [1.0, 1.0]}


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    data = b"".join(event(step, simple("x", float(text))) for step, text in enumerate(("1", "nan", "inf", "2")))
    points = read(data)["tags"]["x"]
    assert (points["values"], points["count"], points["not_finite"]) == ([1.0, 2.0], 4, 2)
    json.dumps(read(data), allow_nan=False)


def test_a_growing_file_is_read_on_from_the_last_complete_record() -> None:
    first, second = BEGIN + event(0, simple("x", 1.0)), event(1, simple("x", 2.0))
    for cut in range(len(second)):
        found = read(first + second[:cut])
        assert (found["offset"], found["damage"], found["complete"]) == (len(first), "", True), cut
    rest = read(first + second, offset=len(first))
    assert rest["tags"]["x"]["values"] == [2.0] and rest["offset"] == len(first + second)


def test_damage_ends_a_file_behind_what_is_sound_and_names_its_place() -> None:
    first, second = event(0, simple("x", 1.0)), event(1, simple("x", 2.0))
    for place, text in ((0, "its length has another checksum"), (8, "its length has another checksum")):
        damaged = bytearray(first + second)
        damaged[len(first) + place] ^= 1
        found = read(bytes(damaged))
        assert found["tags"]["x"]["values"] == [1.0]
        assert text in found["damage"] and f"byte {len(first)}" in found["damage"]
    found = read(first + record(b"\xff" * 20) + second)
    assert "it is no event" in found["damage"] and found["offset"] == len(first)


def test_random_bytes_raise_nothing() -> None:
    chance = random.Random(7)
    sound = event(0, simple("x", 1.0), tensor("t", DTYPE + varint(1) + part(4, struct.pack("<f", 1.0))))
    for _ in range(3000):
        content = bytearray(sound[12:-4])
        for _ in range(chance.randrange(1, 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        json.dumps(read(record(bytes(content)) + chance.randbytes(30)), allow_nan=False)
        read(chance.randbytes(200))


def test_many_points_are_thinned_and_peaks_and_the_last_value_stay() -> None:
    peak = 12_345
    data = b"".join(event(n, simple("x", 1000.0 if n == peak else n % 7)) for n in range(20_000))
    points = read(data)["tags"]["x"]
    assert KEPT_POINTS <= len(points["values"]) < 2 * KEPT_POINTS
    assert points["count"] == 20_000
    assert peak in points["steps"] and points["steps"][-1] == 19_999
    assert points["steps"] == sorted(points["steps"])
    many_tags = b"".join(event(0, simple(f"tag-{number}", 1.0)) for number in range(700))
    assert len(read(many_tags)["tags"]) == 500


def archive(files: dict[str, bytes], form: str = "w:gz") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=form) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def test_event_files_in_an_archive_are_read_without_unpacking_it() -> None:
    events = BEGIN + event(0, simple("x", 1.0))
    data = archive({"./train/events.out.tfevents.1": events, "weights": bytes(100), "a.tfevents.2": events[:-3]})
    found = read_archive(io.BytesIO(data))
    assert [each["name"] for each in found["files"]] == ["train/events.out.tfevents.1", "a.tfevents.2"]
    assert found["files"][0]["tags"]["x"]["values"] == [1.0]
    assert found["files"][1]["tags"] == {}
    assert (found["damage"], found["complete"]) == ("", True)
    assert "damaged" in read_archive(io.BytesIO(data[: len(data) // 2]))["damage"]
    assert "damaged" in read_archive(io.BytesIO(b"no archive"))["damage"]


def run(task: dict[str, Any], data: Path) -> dict[str, Any]:
    command = [sys.executable, "-I", "-S", event_reader.__file__, json.dumps(task)]
    with data.open("rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_program_ends_at_its_limit_of_cpu_time_and_goes_on_later(tmp_path: Path) -> None:
    file = tmp_path / "events"
    one = event(0, simple("x", 1.0))
    file.write_bytes(one * 100_000)
    first = run({"cpu_s": 0.2, "archive": False, "offset": 0}, file)
    assert first["complete"] is False
    assert 0 < first["offset"] < file.stat().st_size and first["offset"] % len(one) == 0
    assert first["tags"]["x"]["count"] == first["offset"] // len(one)
    rest = run({"cpu_s": 60, "archive": False, "offset": file.stat().st_size - 10 * len(one)}, file)
    assert rest["complete"] is True and rest["tags"]["x"]["count"] == 10
    packed = tmp_path / "packed"
    packed.write_bytes(archive({"hole": bytes(60 << 20), "events.tfevents": one}, "w:gz"))
    ended = run({"cpu_s": 0.05, "archive": True, "offset": 0}, packed)
    assert ended["complete"] is False and ended["files"] == []
