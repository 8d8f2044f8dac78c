"""The object store by direct calls: what is visible when, whose file is kept, and the effect of damage."""

import asyncio
import hashlib
import shutil
import unittest.mock
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, update

from tidemill.core.clock import SystemClock
from tidemill.errors import AwsError, ServiceUnavailable, StateCorrupt
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.backup import backup
from tidemill.store.database.sqlite.database import ReservedSpace, SqliteDatabase
from tidemill.store.objects import index, unnamed
from tidemill.store.objects.disk_place import Swept
from tidemill.store.objects.errors import InvalidArgument, InvalidPart, NoSuchBucket, NoSuchKey, ObjectDamaged
from tidemill.store.objects.index import DamagedObject, ObjectAttributes, ObjectInfo
from tidemill.store.objects.schema import objects as object_table
from tidemill.store.objects.schema import parts as part_table
from tidemill.store.objects.schema import uploads as upload_table
from tidemill.store.objects.store import ObjectStore
from tidemill.store.objects.trash import Trash
from tidemill.store.objects.uploads import NamedPart, Uploads

BUCKET = "bucket"


@contextmanager
def opened(root: Path, **settings: Any) -> Iterator[ObjectStore]:
    """Yield a store on ``root``; a test that uses it in an event loop closes it there."""
    with SqliteDatabase.open(root / "tidemill.db", metadata=metadata) as database:
        yield ObjectStore(database, root / "objects", clock=SystemClock(), **settings)


def with_store(root: Path, work: Callable[[ObjectStore], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        with opened(root, **settings) as store:
            await store.ensure_bucket(BUCKET)
            try:
                return await work(store)
            finally:
                await store.close()

    return asyncio.run(run())


def files(root: Path) -> list[Path]:
    return [path for name in ("content", "tmp") for path in (root / "objects" / name).rglob("*") if path.is_file()]


def digests(data: bytes) -> dict[str, Any]:
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data).hexdigest(),
        "size_bytes": len(data),
    }


def test_objects_survive_a_restart(tmp_path: Path) -> None:
    async def write(store: ObjectStore) -> Any:
        attributes = ObjectAttributes(content_type="text/x", metadata={"a": "1"}, tags={"t": "2"})
        return await store.put_bytes(BUCKET, "key", b"data", attributes=attributes)

    async def read(store: ObjectStore) -> Any:
        info = store.head(BUCKET, "key")
        assert info is not None
        return info, await store.read_bytes(info), store.file_of(info).read_bytes()

    info = with_store(tmp_path, write)
    assert with_store(tmp_path, read) == (info, b"data", b"data")
    assert (info.etag, info.sha256) == (digests(b"data")["md5"], digests(b"data")["sha256"])


def test_a_key_never_becomes_a_path(tmp_path: Path) -> None:
    keys = ["../../escape", "/etc/passwd", "a", "a/b", "a//b", "..", "x\ny"]

    async def work(store: ObjectStore) -> None:
        for key in keys:
            await store.put_bytes(BUCKET, key, key.encode())
        assert [info.key for info in store.list_all(BUCKET, "")] == sorted(keys, key=str.encode)
        for info in store.list_all(BUCKET, ""):
            assert store.file_of(info).is_relative_to(tmp_path / "objects/content")
            assert await store.read_bytes(info) == info.key.encode()

    with_store(tmp_path, work)
    assert len(files(tmp_path)) == len(keys)
    assert not (tmp_path.parent / "escape").exists()


@pytest.mark.parametrize("key", ["", "a\0b", "\x1b[31m", "\ud800"])
def test_a_key_that_no_listing_could_show_is_refused(tmp_path: Path, key: str) -> None:
    async def work(store: ObjectStore) -> None:
        with pytest.raises(InvalidArgument, match="cannot be a key"):
            await store.put_bytes(BUCKET, key, b"")

    with_store(tmp_path, work)


def test_a_body_that_fails_leaves_nothing(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * 700_000
        raise AwsError("the checksum does not match", code="BadDigest", status=400)

    async def work(store: ObjectStore) -> None:
        with pytest.raises(AwsError, match="checksum"):
            async with store.contents.disk.receive(broken()):
                pytest.fail("half a body must not be handed on")
        assert files(tmp_path) == []

    with_store(tmp_path, work)


def test_a_cancelled_put_leaves_nothing(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        started = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"x" * 1_500_000
            started.set()
            await asyncio.Event().wait()

        async def put() -> None:
            async with store.contents.disk.receive(endless()):
                pytest.fail("the body never ends")

        task = asyncio.create_task(put())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert files(tmp_path) == []

    with_store(tmp_path, work)


def test_a_put_whose_client_goes_away_during_the_commit_is_whole_or_absent(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        for turn in range(20):
            task = asyncio.create_task(store.put_bytes(BUCKET, f"k{turn}", b"data"))
            for _ in range(turn):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.contents.drain()
        for info in store.list_all(BUCKET, ""):
            assert await store.read_bytes(info) == b"data"
        assert len(files(tmp_path)) == len(list(store.list_all(BUCKET, "")))

    with_store(tmp_path, work)


def test_replaced_and_deleted_content_is_removed(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        for data in (b"1", b"2", b"3"):
            await store.put_bytes(BUCKET, "a", data)
        await store.put_bytes(BUCKET, "b", b"4")
        await store.delete(BUCKET, ["b", "missing"])

    with_store(tmp_path, work)
    assert [path.read_bytes() for path in files(tmp_path)] == [b"3"]


def test_replaced_content_stays_for_replies_that_still_read_it(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        old = await store.put_bytes(BUCKET, "a", b"old")
        await store.put_bytes(BUCKET, "a", b"new")
        assert await store.sweep() == Swept(0)
        assert store.file_of(old).read_bytes() == b"old"

    with_store(tmp_path, work, grace_s=3600)


def test_copies_share_one_file_until_the_last_is_deleted(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        source = await store.put_bytes(BUCKET, "a", b"shared")
        copied = await store.copy(source, BUCKET, "b", attributes=ObjectAttributes(metadata={"x": "1"}))
        assert store.file_of(copied) == store.file_of(source)
        await store.delete(BUCKET, ["a"])
        assert await store.read_bytes(copied) == b"shared"
        with pytest.raises(NoSuchKey):
            await store.copy(source, BUCKET, "c", attributes=ObjectAttributes())
        await store.delete(BUCKET, ["b"])

    with_store(tmp_path, work, grace_s=0)
    assert files(tmp_path) == []


def test_a_file_is_adopted_while_the_disk_is_too_full_for_anything_new(tmp_path: Path) -> None:
    async def run() -> None:
        reserved = ReservedSpace(tmp_path / "ballast", size_bytes=1 << 20)
        with SqliteDatabase.open(tmp_path / "tidemill.db", metadata=metadata, reserved=reserved) as database:
            store = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
            await store.ensure_bucket(BUCKET)
            reserved.release()
            with pytest.raises(ServiceUnavailable, match="full"):
                await store.put_bytes(BUCKET, "key", b"data")
            (tmp_path / "model.tar.gz").write_bytes(b"model")
            await store.adopt(BUCKET, "out/model.tar.gz", tmp_path / "model.tar.gz", **digests(b"model"))
            assert store.head(BUCKET, "out/model.tar.gz")
            await store.close()

    asyncio.run(run())


def test_a_file_is_adopted_once_however_often_that_is_asked(tmp_path: Path) -> None:
    file, data = tmp_path / "model.tar.gz", b"archive" * 1000
    file.write_bytes(data)

    async def work(store: ObjectStore) -> None:
        for _ in range(3):
            info = await store.adopt(BUCKET, "out/model.tar.gz", file, **digests(data))
            assert not file.exists()
        assert info.content_type == "application/x-gzip"
        assert await store.read_bytes(info) == data
        file.write_bytes(b"other")
        with pytest.raises(ValueError, match="not the file announced"):
            await store.adopt(BUCKET, "out/model.tar.gz", file, **digests(data + b"!"))
        assert file.read_bytes() == b"other"
        with pytest.raises(FileNotFoundError):
            await store.adopt(BUCKET, "new", tmp_path / "missing", **digests(b""))

    with_store(tmp_path, work)
    assert len(files(tmp_path)) == 1


def test_content_files_are_read_only(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        info = await store.put_bytes(BUCKET, "a", b"1")
        file = tmp_path / "f"
        file.write_bytes(b"2")
        adopted = await store.adopt(BUCKET, "b", file, **digests(b"2"))
        assert [store.file_of(each).stat().st_mode & 0o777 for each in (info, adopted)] == [0o400, 0o400]

    with_store(tmp_path, work)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_bytes_are_never_returned(tmp_path: Path, damage: str) -> None:
    async def work(store: ObjectStore) -> None:
        info = await store.put_bytes(BUCKET, "a", b"0123456789" * 1000)
        sound = await store.put_bytes(BUCKET, "b", b"sound")
        path = store.file_of(info)
        data = bytearray(path.read_bytes())
        data[5000] ^= 1
        path.chmod(0o600)
        if damage == "remove":
            path.unlink()
        else:
            path.write_bytes(data if damage == "flip" else data[:-1])
        with pytest.raises(ObjectDamaged, match="Put the object again") as raised:
            await store.read_bytes(info)
        assert (raised.value.code, raised.value.status) == ("InternalError", 500)
        with pytest.raises(ObjectDamaged):
            store.check_file(info)
        assert (tmp_path / "objects/quarantine" / info.content_id).exists() == (damage != "remove")
        assert await store.read_bytes(sound) == b"sound"
        again = await store.put_bytes(BUCKET, "a", b"mended")
        assert await store.read_bytes(again) == b"mended"

    with_store(tmp_path, work)


def test_a_damaged_row_is_not_read_but_can_be_deleted(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        await store.put_bytes(BUCKET, "a", b"1")
        await store.database.write(lambda c: c.execute(update(object_table).values(size_bytes=2)))
        with pytest.raises(StateCorrupt, match="fails its checksum"):
            store.head(BUCKET, "a")
        await store.delete(BUCKET, ["a"])
        assert store.head(BUCKET, "a") is None

    with_store(tmp_path, work)


async def damage(store: ObjectStore, table: Table, key: str, **values: Any) -> None:
    await store.database.write(lambda c: c.execute(update(table).where(table.c.key == key.encode()).values(values)))


@pytest.mark.parametrize("values", [{"size_bytes": 7}, {"document": "{"}, {"etag": "\x01"}, {"modified_ms": -1}])
@pytest.mark.parametrize("delimiter", ["", "/"])
def test_a_damaged_row_hides_no_other_object_of_a_listing(
    tmp_path: Path, values: dict[str, Any], delimiter: str
) -> None:
    async def work(store: ObjectStore) -> None:
        for key in ("a", "b", "c", "d/e"):
            await store.put_bytes(BUCKET, key, key.encode())
        await damage(store, object_table, "b", **values)
        found: list[ObjectInfo | DamagedObject] = []
        prefixes: list[str] = []
        start: bytes | None = b""
        while start is not None:
            page = await store.page(BUCKET, prefix="", delimiter=delimiter, start=start, limit=1)
            found += page.objects
            prefixes += page.prefixes
            start = page.next_start
        assert [each.key for each in found] + prefixes == ["a", "b", "c", "d/" if delimiter else "d/e"]
        damaged = [each for each in found if isinstance(each, DamagedObject)]
        assert [each.key for each in damaged] == ["b"]
        assert damaged[0].size_bytes == values.get("size_bytes", 1)
        assert damaged[0].modified_ms >= 0
        # What reads objects for a job must not miss one.
        for reader in (store.list_all, store.list_in_batches):
            with pytest.raises(StateCorrupt, match="s3://bucket/b fails its checksum"):
                list(reader(BUCKET, ""))
        await store.put_bytes(BUCKET, "b", b"again")
        assert [each.key for each in store.list_all(BUCKET, "")] == ["a", "b", "c", "d/e"]

    with_store(tmp_path, work)


def test_a_damaged_key_that_is_out_of_order_ends_a_listing_nevertheless(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        info = await store.put_bytes(BUCKET, "0", b"")
        rows = [replace(info, key=f"k{index:05}").to_row() for index in range(999)]
        await store.database.write(lambda c: c.execute(object_table.insert(), rows) and None)
        real = index.scan

        def scan(*arguments: Any, **options: Any) -> Iterator[Any]:
            for key, each in real(*arguments, **options):
                yield (b"\xff\xfe" if key == b"k00500" else b"!" if key == b"k00998" else key), each

        with unittest.mock.patch.object(index, "scan", scan):
            page = await store.page(BUCKET, prefix="", delimiter="", start=b"", limit=5000)
            assert len(page.objects) == len(list(store.list_all(BUCKET, ""))) == 1000

    with_store(tmp_path, work)


def test_a_damaged_row_is_replaced_by_the_archive_of_a_job(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        await store.put_bytes(BUCKET, "model.tar.gz", b"old")
        await damage(store, object_table, "model.tar.gz", size_bytes=9)
        (tmp_path / "archive").write_bytes(b"new")
        await store.adopt(BUCKET, "model.tar.gz", tmp_path / "archive", **digests(b"new"))
        assert await store.read_bytes(store.require(BUCKET, "model.tar.gz")) == b"new"

    with_store(tmp_path, work)


def test_a_damaged_upload_is_listed_and_can_be_aborted(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        uploads = Uploads(store)
        begun = [await uploads.begin(BUCKET, key, attributes=ObjectAttributes()) for key in ("a", "b", "c")]
        await damage(store, upload_table, "b", document="{")
        page = await uploads.page(BUCKET, prefix="", delimiter="", after=("", ""), limit=10)
        assert [(each.key, each.upload_id, each.is_damaged) for each in page.uploads] == [
            (each.key, each.upload_id, each.key == "b") for each in begun
        ]
        for each in begun:
            await uploads.abort(BUCKET, each.key, each.upload_id)
        await store.delete_bucket(BUCKET)
        await store.ensure_bucket(BUCKET)

    with_store(tmp_path, work)


def test_a_damaged_part_counts_as_not_uploaded(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        uploads = Uploads(store)
        upload = await uploads.begin(BUCKET, "a", attributes=ObjectAttributes())

        async def put(number: int, data: bytes) -> NamedPart:
            async def body() -> AsyncIterator[bytes]:
                yield data

            async with store.contents.disk.receive(body()) as content:
                part = await uploads.put_part(upload, number, content, checksums={})
            return NamedPart(part_number=number, etag=part.etag, checksums={})

        named = [await put(1, b"x" * (5 << 20)), await put(2, b"y"), await put(3, b"z")]
        where = part_table.c.part_number == 2
        await store.database.write(lambda c: c.execute(update(part_table).where(where).values(size_bytes=3)))
        assert [part.part_number for part in uploads.parts(upload, limit=2)] == [1, 3]
        with pytest.raises(InvalidPart, match="part 2 cannot be used: it was not uploaded, or its description is dam"):
            await uploads.complete(upload, named[:2], describe=lambda _: ObjectAttributes())
        await put(2, b"y")
        await uploads.complete(upload, named[:2], describe=lambda _: ObjectAttributes())
        assert store.require(BUCKET, "a").size_bytes == (5 << 20) + 1

    with_store(tmp_path, work)


def test_leftovers_of_a_crash_are_swept(tmp_path: Path) -> None:
    async def put(store: ObjectStore) -> None:
        await store.put_bytes(BUCKET, "a", b"1")

    async def sweep(store: ObjectStore) -> tuple[int, Swept]:
        return len(list((tmp_path / "objects/tmp").iterdir())), await store.sweep()

    with_store(tmp_path, put)
    (tmp_path / "objects/tmp/half").write_bytes(b"half")
    (tmp_path / "objects/content/ab/abandoned").write_bytes(b"orphan")
    left, swept = with_store(tmp_path, sweep)
    assert (left, swept.removed, swept.set_aside, swept.size_bytes) == (0, 0, 1, 6)
    assert (swept.folder / "abandoned").read_bytes() == b"orphan"
    assert [path.read_bytes() for path in files(tmp_path)] == [b"1"]


def test_content_whose_removal_was_committed_goes_at_once_and_leaves_no_record(tmp_path: Path) -> None:
    async def crash(store: ObjectStore) -> None:
        for key in ("replaced", "deleted", "kept"):
            await store.put_bytes(BUCKET, key, key.encode())
        await store.put_bytes(BUCKET, "replaced", b"new")
        await store.delete(BUCKET, ["deleted"])
        # A crash before the grace time ends: the files stay.
        for content_id in list(store.contents.disk._retired):
            store.contents.disk._retired.pop(content_id).cancel()

    async def sweep(store: ObjectStore) -> Swept:
        return await store.sweep()

    with_store(tmp_path, crash)
    assert len(files(tmp_path)) == 4
    assert with_store(tmp_path, sweep) == Swept(2)
    assert sorted(path.read_bytes() for path in files(tmp_path)) == [b"kept", b"new"]
    with opened(tmp_path) as store:
        assert store.database.read(unnamed.released_on_disk) == set()


def test_an_older_database_sets_later_contents_aside_and_the_newer_one_takes_them_back(tmp_path: Path) -> None:
    database, newer, older = (tmp_path / name for name in ("tidemill.db", "newer.db", "older.db"))

    async def put(store: ObjectStore) -> None:
        await store.put_bytes(BUCKET, "before", b"before")
        shutil.copy(backup(store.database, tmp_path / "backups"), older)
        await store.put_bytes(BUCKET, "after", b"after")
        shutil.copy(backup(store.database, tmp_path / "backups"), newer)

    async def sweep(store: ObjectStore) -> Swept:
        with pytest.raises(NoSuchKey):
            store.require(BUCKET, "after")
        return await store.sweep()

    async def read(store: ObjectStore) -> tuple[int, bytes, Swept]:
        taken_back = store.take_back()
        return taken_back, await store.read_bytes(store.require(BUCKET, "after")), await store.sweep()

    with_store(tmp_path, put)
    replace_database(database, older)
    swept = with_store(tmp_path, sweep)
    assert (swept.removed, swept.set_aside) == (0, 1)
    assert [path.read_bytes() for path in swept.folder.iterdir()] == [b"after"]
    replace_database(database, newer)
    assert with_store(tmp_path, read) == (1, b"after", Swept(0))
    assert list((tmp_path / "objects/trash").iterdir()) == []


def replace_database(database: Path, copy: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, database)


def test_the_trash_is_kept_for_a_day_and_as_long_as_an_older_backup(tmp_path: Path) -> None:
    clock, day_ms = Clock(1_700_000_000_000), 24 * 3600 * 1000
    trash = Trash(tmp_path / "trash", clock=clock)
    moved_ms = clock.ms
    (trash.folder() / "content").touch()
    clock.ms += day_ms
    assert trash.remove_old() == 0
    clock.ms += 1
    for backup_ms in (moved_ms, moved_ms - day_ms):
        assert trash.remove_old(needed_since_ms=backup_ms) == 0
    assert trash.remove_old(needed_since_ms=moved_ms + 1) == 1
    assert list((tmp_path / "trash").iterdir()) == []


class Clock(SystemClock):
    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


def test_a_sweep_spares_what_is_being_put(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        async def body() -> AsyncIterator[bytes]:
            yield b"data"

        async with store.contents.disk.receive(body()) as content:
            assert await store.sweep() == Swept(0)
            info = await store.contents.publish(BUCKET, "a", content, attributes=ObjectAttributes())
        assert await store.read_bytes(info) == b"data"

    with_store(tmp_path, work)


def test_a_full_disk_refuses_puts_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(store: ObjectStore) -> None:
        import os

        real = os.statvfs(tmp_path)
        fields = list(real)
        for name, value in (("f_bavail", real.f_blocks // 200), ("f_favail", 999)):
            altered = list(fields)
            altered[{"f_bavail": 4, "f_favail": 7}[name]] = value
            monkeypatch.setattr(os, "statvfs", lambda path, altered=altered: os.statvfs_result(altered))
            with pytest.raises(ServiceUnavailable, match=r"99 % full|free inodes") as raised:
                await store.put_bytes(BUCKET, "a", b"1")
            assert raised.value.status == 503
        monkeypatch.undo()
        with pytest.raises(ServiceUnavailable, match="were announced"):
            async with store.contents.disk.receive(_nothing(), size_bytes=1 << 62):
                pytest.fail("it cannot fit")
        await store.put_bytes(BUCKET, "a", b"1")

    with_store(tmp_path, work)


def test_buckets_are_made_once_and_removed_when_empty(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        assert await store.create_bucket("other")
        assert not await store.create_bucket("other")
        assert [name for name, _ in store.buckets()] == [BUCKET, "other"]
        await store.put_bytes("other", "a", b"")
        with pytest.raises(AwsError, match="holds objects"):
            await store.delete_bucket("other")
        await store.delete("other", ["a"])
        await store.delete_bucket("other")
        assert not store.bucket_exists("other")
        for call in (store.delete_bucket("other"), store.put_bytes("other", "a", b""), store.delete("other", ["a"])):
            with pytest.raises(NoSuchBucket):
                await call
        with pytest.raises(NoSuchBucket):
            list(store.list_all("other", ""))

    with_store(tmp_path, work)
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["..", "A_b", "ab", "endpoints", "a" * 64, "-ab", "a..b", "abc\n", "bücher"])
def test_a_bad_bucket_name_is_refused(tmp_path: Path, name: str) -> None:
    async def work(store: ObjectStore) -> None:
        with pytest.raises(AwsError) as raised:
            await store.create_bucket(name)
        assert (raised.value.code, raised.value.status) == ("InvalidBucketName", 400)

    with_store(tmp_path, work)


def test_a_long_listing_streams_by_pages(tmp_path: Path) -> None:
    async def work(store: ObjectStore) -> None:
        info = await store.put_bytes(BUCKET, "p/0", b"")
        rows = [replace(info, key=f"p/{index:05}").to_row() for index in range(1, 2501)]
        await store.database.write(lambda c: c.execute(object_table.insert(), rows) and None)
        await store.put_bytes(BUCKET, "q", b"")
        keys = [info.key for info in store.list_all(BUCKET, "p/")]
        assert (len(keys), keys) == (2501, sorted(keys))
        page = await store.page(BUCKET, prefix="", delimiter="/", start=b"", limit=10)
        assert (page.prefixes, [info.key for info in page.objects], page.next_start) == (("p/",), ["q"], None)

    with_store(tmp_path, work)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
