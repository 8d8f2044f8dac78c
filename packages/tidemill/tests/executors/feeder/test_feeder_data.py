"""Objects on their way through the feeder, including those whose content is not as announced."""

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from isal import isal_zlib

from tidemill.instance.spec import InlineText
from tidemill.shim.feeder import inflate as inflating
from tidemill.shim.feeder.faults import ObjectFault
from tidemill.shim.feeder.inflate import inflate


@pytest.fixture(params=[isal_zlib, zlib], ids=["isal", "zlib"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tests that request it with either library."""
    monkeypatch.setattr(inflating, "codec", request.param)


def test_isal_unpacks_where_it_is_installed() -> None:
    assert inflating.codec is isal_zlib


def test_a_missing_object_ends_the_epoch_after_the_objects_before_it(stage: Any) -> None:
    first, gone, last = (stage.object(name, name.encode() * 10) for name in ("first", "gone", "last"))
    Path(gone.file).unlink()
    with stage.feeding(first, gone, last) as feeder:
        for epoch in range(2):
            assert stage.read(epoch) == b"first" * 10
            assert stage.outcome(epoch)["state"] == "error"
            assert stage.outcome(epoch)["objects"] == 1
            assert stage.outcome(epoch)["bytes"] == 50
            assert "s3://bucket/gone was deleted or replaced" in stage.outcome(epoch)["error"]
    assert str(feeder.failure).startswith("ClientError: channel 'train', epoch 0: s3://bucket/gone was deleted")
    assert any("s3://bucket/gone" in line for line in stage.lines)


def test_an_object_of_another_length_is_damage_in_the_store(stage: Any) -> None:
    damaged = stage.object("a", b"12345")
    Path(damaged.file).write_bytes(b"1234")
    with stage.feeding(damaged) as feeder:
        assert stage.read() == b""
    assert "InternalServerError" in str(feeder.failure)
    assert "s3://bucket/a is damaged in the object store: 4 bytes of 5" in str(feeder.failure)


@pytest.mark.parametrize(
    ("packed", "unpacked"),
    [
        (gzip.compress(b"one"), b"one"),
        (gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two"), b"onetwo"),
        (gzip.compress(b"one") + bytes(700), b"one"),
        (b"", b""),
        (gzip.compress(bytes(5_000_000)), bytes(5_000_000)),
        (b"".join(gzip.compress(b"%d" % n) for n in range(3000)), b"".join(b"%d" % n for n in range(3000))),
    ],
    ids=["one member", "several members", "padded", "empty", "long", "many members"],
)
@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
@pytest.mark.usefixtures("codec")
def test_gzip_is_unpacked(stage: Any, packed: bytes, unpacked: bytes, wrapper: str) -> None:
    with stage.feeding(stage.object("a.gz", packed), compression="Gzip", record_wrapper=wrapper):
        assert stage.read() == (stage.record(unpacked) if wrapper == "RecordIO" else unpacked)
        assert stage.outcome()["state"] == "ok"


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        (gzip.compress(b"whole", mtime=0)[:-1], "truncated"),
        (gzip.compress(b"whole", mtime=0)[:5], "truncated"),
        (gzip.compress(b"one", mtime=0) + gzip.compress(b"two", mtime=0)[:-3], "truncated"),
        (b"plain text", "not gzip"),
        (gzip.compress(b"one", mtime=0) + b"rubbish", "not gzip"),
        (gzip.compress(b"whole", mtime=0)[:-8] + bytes(8), "damaged"),
    ],
)
@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
@pytest.mark.usefixtures("codec")
def test_gzip_that_is_broken_is_an_error(stage: Any, packed: bytes, text: str, wrapper: str) -> None:
    with stage.feeding(stage.object("a.gz", packed), compression="Gzip", record_wrapper=wrapper) as feeder:
        stage.read()
        assert stage.outcome()["state"] == "error"
        assert "s3://bucket/a.gz" in stage.outcome()["error"]
        assert text in stage.outcome()["error"]
    assert str(feeder.failure).startswith("ClientError: ")


@pytest.mark.usefixtures("codec")
def test_truncated_gzip_of_any_length_is_never_accepted_as_complete(stage: Any) -> None:
    packed = gzip.compress(os.urandom(100)) + gzip.compress(b"x" * 1000)
    boundary = len(gzip.compress(b"x" * 1000))
    file = stage.path / "cut"
    for length in range(1, len(packed)):
        file.write_bytes(packed[:length])
        with file.open("rb", buffering=0) as cut:
            if length == len(packed) - boundary:
                assert len(b"".join(inflate(cut, uri="u"))) == 100
            else:
                with pytest.raises(ObjectFault):
                    list(inflate(cut, uri="u"))


@pytest.mark.usefixtures("codec")
def test_a_bomb_is_unpacked_in_small_pieces(stage: Any) -> None:
    file = stage.path / "bomb"
    file.write_bytes(gzip.compress(bytes(64_000_000), 9))
    with file.open("rb", buffering=0) as bomb:
        sizes = [len(piece) for piece in inflate(bomb, uri="u")]
    assert sum(sizes) == 64_000_000
    assert max(sizes) <= 1 << 20


def test_each_object_and_each_text_becomes_a_record(stage: Any) -> None:
    contents = [b"", b"1", b"1234", os.urandom(100_001)]
    objects = [stage.object(str(index), data) for index, data in enumerate(contents)]
    with stage.feeding(*objects, InlineText(text="caf\u00e9"), record_wrapper="RecordIO"):
        assert stage.read() == b"".join(stage.record(data) for data in [*contents, "caf\u00e9".encode()])


def test_text_is_streamed_bare_without_the_wrapper(stage: Any) -> None:
    with stage.feeding(InlineText(text="7"), stage.object("a", b"bytes"), InlineText(text="8")):
        assert stage.read() == b"7bytes8"


def test_an_object_longer_than_a_record_can_say_becomes_parts(stage: Any) -> None:
    feeder = stage.feeder(stage.object("a", b"0123456789ab" + b"cde"), record_wrapper="RecordIO")
    feed = feeder._feeds[0]
    feed.writer = type(feed.writer)(gzip=False, record_io=True, spool=stage.path, part_bytes=4)
    with feeder.running() as start:
        start()
        parts = [(b"0123", 1), (b"4567", 2), (b"89ab", 2), (b"cde", 3)]
        assert stage.read() == b"".join(stage.record(data, flag=flag) for data, flag in parts)


@pytest.mark.usefixtures("codec")
def test_a_long_packed_object_is_wrapped_by_way_of_the_disk(stage: Any) -> None:
    content = os.urandom(1000) * 10_000
    with stage.feeding(stage.object("a", gzip.compress(content, 1)), compression="Gzip", record_wrapper="RecordIO"):
        assert stage.read() == stage.record(content)
    assert sorted(path.name for path in stage.directory.path.iterdir()) == ["channels", "ml"]
