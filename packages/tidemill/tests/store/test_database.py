"""The writer thread: what is grouped, what is rolled back, what happens when the disk or the file is bad."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, insert, select
from sqlalchemy.exc import IntegrityError

from tidemill.core import faults
from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store.backup import Backups, backup
from tidemill.store.ballast import Ballast
from tidemill.store.database import Database
from tidemill.store.schema import SCHEMA_VERSION

METADATA = MetaData()
THINGS = Table("things", METADATA, Column("name", Text, primary_key=True), Column("size", Integer))
NAMES = select(THINGS.c.name).order_by(THINGS.c.name)


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.s = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.s


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "state.db", metadata=METADATA) as database:
        yield database


def adding(name: str):
    return lambda connection: connection.execute(insert(THINGS).values(name=name, size=1)) and None


def removing(name: str):
    return lambda connection: connection.execute(THINGS.delete().where(THINGS.c.name == name)).rowcount


def names(database: Database) -> list[str]:
    return database.read(lambda connection: list(connection.execute(NAMES).scalars()))


def arm(monkeypatch: pytest.MonkeyPatch, entries: str) -> None:
    monkeypatch.setattr(faults, "_armed", faults._parse(entries))


def holding(held: threading.Event, go: threading.Event):
    """A work that keeps the writer busy."""

    def hold(connection: Connection) -> None:
        held.set()
        assert go.wait(30)

    return hold


async def together(database: Database, *works):
    """Queue works while the writer is held, so that they form one group; their results or errors."""
    held, go = threading.Event(), threading.Event()
    first = asyncio.ensure_future(database.write(holding(held, go)))
    await asyncio.to_thread(held.wait, 30)
    rest = [asyncio.ensure_future(database.write(work, grows=grows)) for work, grows in works]
    await asyncio.sleep(0)  # every task has queued its work
    go.set()
    await first
    return await asyncio.gather(*rest, return_exceptions=True)


def test_what_is_written_can_be_read(database):
    asyncio.run(database.write(adding("a")))
    database.write_sync(adding("b"))
    assert names(database) == ["a", "b"]
    assert asyncio.run(database.read_in_thread(lambda c: len(c.execute(NAMES).all()))) == 2


def test_a_write_returns_what_its_work_returns(database):
    database.write_sync(adding("a"))
    assert database.write_sync(removing("a")) == 1


def test_works_that_wait_share_one_commit(database, monkeypatch):
    commits = []
    monkeypatch.setattr(faults, "point", lambda name: commits.append(name) if name == "store.commit.before" else None)
    asyncio.run(together(database, *((adding(f"n{i:03}"), False) for i in range(200))))
    assert len(commits) == 2  # the one that held the writer, and all the others
    assert len(names(database)) == 200


def test_a_failing_work_loses_its_own_changes_only(database):
    def half(connection: Connection) -> None:
        adding("half")(connection)
        raise ValueError("changed my mind")

    database.write_sync(adding("taken"))
    results = asyncio.run(
        together(database, (adding("a"), False), (half, False), (adding("taken"), False), (adding("b"), False))
    )
    assert results[0] is None
    assert results[3] is None
    assert isinstance(results[1], ValueError)
    assert isinstance(results[2], IntegrityError)
    assert names(database) == ["a", "b", "taken"]


def test_works_of_several_event_loops_and_threads_are_answered(database):
    def client(number: int) -> None:
        async def many() -> None:
            await asyncio.gather(*(database.write(adding(f"{number}-{i}")) for i in range(20)))

        asyncio.run(many())
        database.write_sync(adding(f"{number}-plain"))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names(database)) == 4 * 21


def test_a_cancelled_caller_does_not_disturb_its_group(database):
    async def run() -> None:
        held, go = threading.Event(), threading.Event()
        first = asyncio.ensure_future(database.write(holding(held, go)))
        await asyncio.to_thread(held.wait, 30)
        tasks = [asyncio.ensure_future(database.write(adding(name))) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        go.set()
        await asyncio.gather(first, tasks[0], tasks[2])

    asyncio.run(run())
    assert {"a", "c"} <= set(names(database))


def test_a_work_that_commits_by_itself_is_refused_and_the_writer_lives(database):
    with pytest.raises(ServiceUnavailable):
        database.write_sync(lambda connection: connection.commit())
    database.write_sync(adding("after"))
    assert names(database) == ["after"]


def test_a_defect_in_the_commit_reaches_the_callers_and_the_writer_lives(database, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(database, "_attempt", lambda group: (_ for _ in ()).throw(RuntimeError("defect")))
        with pytest.raises(RuntimeError, match="defect"):
            database.write_sync(adding("a"))
    database.write_sync(adding("b"))
    assert names(database) == ["b"]


def test_readers_cannot_write(database):
    with pytest.raises(Exception, match="readonly"):
        database.read(adding("a"))
    assert names(database) == []


def test_a_read_inside_a_read_is_allowed(database):
    database.write_sync(adding("a"))
    assert database.read(lambda connection: names(database)) == ["a"]


def test_a_read_sees_one_moment(database):
    database.write_sync(adding("a"))

    def twice(connection: Connection) -> tuple[list[str], list[str]]:
        before = list(connection.execute(NAMES).scalars())
        database.write_sync(adding("b"))
        return before, list(connection.execute(NAMES).scalars())

    assert database.read(twice) == (["a"], ["a"])
    assert names(database) == ["a", "b"]


def test_closing_commits_what_is_queued(tmp_path):
    database = Database.open(tmp_path / "state.db", metadata=METADATA)
    held, go = threading.Event(), threading.Event()
    writers = [threading.Thread(target=database.write_sync, args=(holding(held, go),))]
    writers[0].start()
    assert held.wait(30)
    writers += [threading.Thread(target=database.write_sync, args=(adding(f"n{i}"),)) for i in range(5)]
    for writer in writers[1:]:
        writer.start()
    while database._queue.qsize() < 5:
        threading.Event().wait(0.001)
    go.set()
    database.close()
    database.close()
    for writer in writers:
        writer.join()
    with pytest.raises(ServiceUnavailable, match="closed"):
        database.write_sync(adding("late"))
    with pytest.raises(ServiceUnavailable, match="closed"):
        names(database)
    with Database.open(tmp_path / "state.db", metadata=METADATA) as again:
        assert len(names(again)) == 5


def test_secrets_stay(tmp_path):
    with Database.open(tmp_path / "state.db", metadata=METADATA) as database:
        secret = database.secret("tokens")
        assert database.secret("tokens") == secret
        assert database.secret("other") != secret
        assert len(secret) == 64
    with Database.open(tmp_path / "state.db", metadata=METADATA) as database:
        assert database.secret("tokens") == secret


def test_the_file_is_private_and_durable(database):
    assert database.path.stat().st_mode & 0o777 == 0o600
    pragmas = database.write_sync(
        lambda c: [c.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
    )
    assert pragmas == ["wal", 2]


# A failing disk


def test_a_failed_commit_refuses_the_whole_group_and_the_next_one_works(database, monkeypatch):
    arm(monkeypatch, "store.commit.before:eio:1:1")
    with pytest.raises(ServiceUnavailable, match="fault injected") as caught:
        database.write_sync(adding("lost"))
    assert caught.value.status == 503
    database.write_sync(adding("kept"))
    assert names(database) == ["kept"]


def test_a_lost_reply_is_an_error_although_the_rows_are_there(database, monkeypatch):
    arm(monkeypatch, "store.commit.after:eio:1:1")
    with pytest.raises(ServiceUnavailable):
        database.write_sync(adding("there"))
    assert names(database) == ["there"]


def test_a_full_disk_refuses_creates_and_lets_deletes_go_on_until_there_is_room(tmp_path, monkeypatch):
    clock = FakeClock()
    ballast = Ballast(tmp_path / "ballast", size_bytes=1 << 20, clock=clock)
    with Database.open(tmp_path / "state.db", metadata=METADATA, ballast=ballast) as database:
        assert ballast.path.stat().st_size == 1 << 20
        database.write_sync(adding("old"), grows=True)
        arm(monkeypatch, "store.commit.before:enospc:1:1")
        created, deleted = asyncio.run(together(database, (adding("new"), True), (removing("old"), False)))[:2]
        # The fault hit the commit of whoever came first; from then on only deletes pass.
        assert not ballast.path.exists()
        assert isinstance(created, ServiceUnavailable)
        assert "full" in str(created)
        assert deleted == 1
        with pytest.raises(ServiceUnavailable, match="full"):
            database.write_sync(adding("new"), grows=True)
        clock.s += 60
        database.write_sync(adding("new"), grows=True)
        assert ballast.path.exists()
        assert names(database) == ["new"]


def test_the_ballast_is_not_laid_where_it_would_fill_the_disk(tmp_path):
    ballast = Ballast(tmp_path / "ballast", size_bytes=1 << 60)
    assert not ballast.lay()
    assert not ballast.held
    assert not ballast.path.exists()


FULL_DISK = """
import os
import sys
from pathlib import Path
from sqlalchemy import insert, text
from tidemill.errors import ServiceUnavailable
from tidemill.store.ballast import Ballast
from tidemill.store.database import Database
from tidemill.store.schema import meta, metadata

root = Path(sys.argv[1])
ballast = Ballast(root / "ballast", size_bytes=int(sys.argv[2]))
with Database.open(root / "state.db", metadata=metadata, ballast=ballast) as database:
    count = 0
    try:
        while True:
            row = dict(key=f"k{count:06}", value="x" * (int(sys.argv[2]) // 80))
            database.write_sync(lambda c: c.execute(insert(meta), row) and None, grows=True)
            count += 1
    except ServiceUnavailable as error:
        assert error.status == 503, error
    assert count > 20, count
    assert ballast.held, "new rows are refused before the room for deletes is touched"
    with (root / "filler").open("wb") as filler:
        disk = os.statvfs(root)
        if disk.f_bavail:
            os.posix_fallocate(filler.fileno(), 0, disk.f_bavail * disk.f_frsize)
    present = database.read(lambda c: c.execute(text("select count(*) from meta where key like 'k%'")).scalar())
    assert present == count, (present, count)
    for number in range(count):
        key = f"k{number:06}"
        assert database.write_sync(lambda c: c.execute(meta.delete().where(meta.c.key == key)).rowcount) == 1
    assert not ballast.held, "the deletes needed it"
    assert database.read(lambda c: c.exec_driver_sql("PRAGMA integrity_check").scalar()) == "ok"
print("survived", count)
"""


def test_a_really_full_disk_loses_nothing_and_can_be_emptied(tmp_path):
    command = 'mount -t tmpfs -o size=64m tmpfs "$0"; exec "$@"'
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-ec", command]
    if subprocess.run([*mount, tmp_path, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs in a namespace of its own")
    done = subprocess.run(
        [*mount, tmp_path, sys.executable, "-W", "error", "-c", FULL_DISK, tmp_path, str(24 << 20)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "survived" in done.stdout


# A bad file


def filled(path: Path, rows: int = 200) -> None:
    with Database.open(path, metadata=METADATA) as database:
        database.write_sync(
            lambda c: c.execute(insert(THINGS), [{"name": f"{i:05}" * 20, "size": i} for i in range(rows)]) and None
        )


def test_a_file_of_a_newer_release_is_refused_by_both_versions(tmp_path):
    path = tmp_path / "state.db"
    filled(path)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    raw.close()
    with pytest.raises(ConfigurationError, match=f"version 99; this release knows version {SCHEMA_VERSION}"):
        Database.open(path, metadata=METADATA)


def test_tables_that_are_missing_are_made(tmp_path):
    filled(tmp_path / "state.db", rows=1)
    wider = MetaData()
    Table("things", wider, Column("name", Text, primary_key=True), Column("size", Integer))
    extra = Table("extra", wider, Column("name", Text, primary_key=True))
    with Database.open(tmp_path / "state.db", metadata=wider) as database:
        assert database.read(lambda c: c.execute(select(extra)).all()) == []
        assert len(names(database)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"not a database" + data[14:], id="header"),
        pytest.param(lambda data: data[: len(data) // 2], id="torn"),
        pytest.param(lambda data: data[:4096] + bytes(4096) + data[8192:], id="zeroed page"),
    ],
)
def test_a_damaged_file_is_refused_and_its_backup_put_back_as_the_message_says(tmp_path, damage):
    path = tmp_path / "state.db"
    filled(path)
    with Database.open(path, metadata=METADATA) as database:
        copy = backup(database, tmp_path / "backups")
        expected = names(database)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigurationError, match="is damaged") as caught:
        Database.open(path, metadata=METADATA)
    assert str(path) in str(caught.value)
    assert f"cp {copy} {path}" in str(caught.value)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(copy, path)
    with Database.open(path, metadata=METADATA) as database:
        assert names(database) == expected


def test_a_missing_directory_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot open the database"):
        Database.open(tmp_path / "none" / "state.db", metadata=METADATA)


def test_damage_that_shows_later_is_state_corrupt_and_names_the_backups(tmp_path):
    path = tmp_path / "state.db"
    filled(path, rows=2000)
    with Database.open(path, metadata=METADATA) as database:
        data = bytearray(path.read_bytes())
        data[4096 * 4 :] = b"\xff" * (len(data) - 4096 * 4)
        path.write_bytes(data)
        with pytest.raises(StateCorrupt, match="backups"):
            database.read(lambda c: c.execute(select(THINGS)).all())


# Backups


def test_backups_are_whole_files_and_the_oldest_go(database, tmp_path):
    clock, directory = FakeClock(), tmp_path / "backups"
    made = []
    for number in range(5):
        database.write_sync(adding(f"n{number}"))
        clock.ms += 3_600_000
        made.append(backup(database, directory, keep=3, clock=clock))
    assert sorted(directory.iterdir()) == made[2:]
    with Database.open(made[3], metadata=METADATA) as copy:
        assert names(copy) == ["n0", "n1", "n2", "n3"]


def test_a_backup_under_way_does_not_stop_writers(database, tmp_path):
    async def run() -> Path:
        making = asyncio.ensure_future(Backups(database, tmp_path / "backups").make())
        for number in range(50):
            await database.write(adding(f"n{number}"))
        return await making

    with Database.open(asyncio.run(run()), metadata=METADATA) as copy:
        assert set(names(copy)) <= set(names(database))


def test_the_next_backup_is_due_an_hour_after_the_last(database, tmp_path):
    clock = FakeClock()
    backups = Backups(database, tmp_path / "backups", clock=clock)
    assert backups.wait_s() == 0
    made = asyncio.run(backups.make())
    clock.ms = int(made.stat().st_mtime * 1000) + 600_000
    assert backups.wait_s() == pytest.approx(3000, abs=1)
    clock.ms += 3_600_000
    assert backups.wait_s() == 0


# Kill -9


def test_no_acknowledged_row_is_lost_by_kill_9_during_commits(tmp_path):
    program = Path(__file__).with_name("kill_during_commits.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", program, tmp_path, "20"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    acknowledged = int(done.stdout.split()[-1])
    assert acknowledged > 200
