"""Copies of contents in another S3: downloaded once for all jobs of the machine, and always verified."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import ObjectFile
from tidemill.instance.transfers import Transfers
from tidemill.shim.failures import ClientFailure, InternalFailure
from tidemill.shim.local_copies import place_copy
from tidemill.shim.objects import Placer, copy_object, link_object
from tidemill.store.objects.errors import ContentMissing
from tidemill.store.objects.remote_bucket import RemoteBucket

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def source(remote: Any, tmp_path: Path) -> ObjectFile:
    """An object with its content in another S3, before its copy exists."""
    remote.put("content", CONTENT)
    (tmp_path / "copies").mkdir()
    return ObjectFile(
        uri="s3://data/key",
        name="key",
        file=str(tmp_path / "copies/copy"),
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        origin_uri=f"s3://{remote.bucket}/content",
        origin_remote=remote.bucket,
    )


def place(remote: Any, source: ObjectFile, target: Path, place_object: Placer = link_object) -> None:
    with Transfers(RemoteStores(remote.remotes)) as transfers:
        place_copy(source, target, place="/place", transfers=transfers, check=lambda: None, place_object=place_object)


def test_concurrent_requests_download_a_content_once(remote: Any, source: ObjectFile, tmp_path: Path) -> None:
    targets = [tmp_path / f"target-{number}" for number in range(6)]
    with ThreadPoolExecutor(len(targets)) as pool:
        list(pool.map(lambda target: place(remote, source, target), targets))
    # All are links of one file: who had fetched it again would have put another one in its place.
    assert {target.stat().st_ino for target in targets} == {Path(source.file).stat().st_ino}
    assert targets[0].read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["copy"]


def test_a_copy_is_used_while_the_other_s3_is_away(remote: Any, source: ObjectFile, tmp_path: Path) -> None:
    place(remote, source, tmp_path / "first")
    os.utime(source.file, (0, 0))
    remote.wire.close()
    place(remote, source, tmp_path / "second", copy_object)
    assert (tmp_path / "second").read_bytes() == CONTENT
    assert Path(source.file).stat().st_mtime > 0  # used: it is not the next that goes


def test_a_truncated_damaged_or_missing_copy_is_downloaded_again(
    remote: Any, source: ObjectFile, tmp_path: Path
) -> None:
    Path(source.file).write_bytes(CONTENT[:-1])
    place(remote, source, tmp_path / "cut")
    Path(source.file).unlink()
    Path(source.file).write_bytes(bytes(len(CONTENT)))
    place(remote, source, tmp_path / "damaged", copy_object)
    removals = [Path(source.file).unlink]

    def remove_once(*arguments: Any, **options: Any) -> None:
        while removals:
            removals.pop()()
        link_object(*arguments, **options)

    place(remote, source, tmp_path / "gone", remove_once)
    for name in ("cut", "damaged", "gone"):
        assert (tmp_path / name).read_bytes() == CONTENT, name


def test_a_download_continues_where_its_connection_broke(remote: Any, source: ObjectFile, tmp_path: Path) -> None:
    remote.wire.cut_after = 1_000_000
    place(remote, source, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == CONTENT


def test_content_that_is_not_what_was_put_is_never_placed(remote: Any, source: ObjectFile, tmp_path: Path) -> None:
    remote.put("content", bytes(len(CONTENT)))
    with pytest.raises(InternalFailure, match=r"s3://data/key is damaged: what s3://.*/content has does not match"):
        place(remote, source, tmp_path / "target")
    remote.s3.delete_object(Bucket=remote.bucket, Key="content")
    with pytest.raises(ClientFailure, match=r"s3://data/key: s3://.*/content cannot be read .* HTTP 404 NoSuchKey"):
        place(remote, source, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    assert not Path(source.file).exists()


def test_the_service_reads_on_where_a_connection_broke(remote: Any) -> None:
    remote.put("content", CONTENT)
    remote.wire.cut_after = 500_000
    bucket = RemoteBucket(remote.bucket, remote.remotes[remote.bucket], pattern=remote.bucket)
    found = bucket.read("content", whole_bytes=len(CONTENT), offset=10, size_bytes=len(CONTENT) - 20)
    assert b"".join(found) == CONTENT[10:-10]
    # What follows a break must be of the same object.
    pieces = bucket.read("content", whole_bytes=len(CONTENT))
    next(pieces)
    remote.put("content", bytes(len(CONTENT)))
    with pytest.raises(ContentMissing, match="it was removed or replaced there: HTTP 412"):
        list(pieces)
