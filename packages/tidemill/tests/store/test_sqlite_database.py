"""SQLite as a `Database`: the contract, which commits are grouped, and the effects of a bad disk or file."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from database_contract import TABLES, THINGS, DatabaseContract, adding, fill, names, removing, together
from sqlalchemy import select

from tidemill.core import faults
from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store.database.base import ConstantStatement
from tidemill.store.database.sqlite.backup import Backups, backup
from tidemill.store.database.sqlite.database import ReservedSpace, SqliteDatabase


class FakeClock:
    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.s = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.s


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SqliteDatabase]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=TABLES) as database:
        yield database


def test_a_constant_in_a_statement_is_refused_and_not_left_out(database: SqliteDatabase) -> None:
    with pytest.raises(ValueError, match="must be parameters"):
        database.row(ConstantStatement(select(THINGS).limit(1)), {})


class TestSqliteDatabase(DatabaseContract):
    @pytest.fixture
    def open_database(self, tmp_path: Path) -> Callable[[], SqliteDatabase]:
        return lambda: SqliteDatabase.open(tmp_path / "state.db", metadata=TABLES)


def arm(monkeypatch: pytest.MonkeyPatch, entries: str) -> None:
    monkeypatch.setattr(faults, "_armed", faults._parse(entries))


def test_works_that_wait_share_one_commit(database, monkeypatch):
    commits = []
    monkeypatch.setattr(faults, "point", lambda name: commits.append(name) if name == "store.commit.before" else None)
    asyncio.run(together(database, *(database.write(adding(f"n{i:03}")) for i in range(200))))
    assert len(commits) == 2  # the one that held the writer, and one for all the others
    assert len(names(database)) == 200


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
    reserved = ReservedSpace(tmp_path / "ballast", size_bytes=1 << 20, clock=clock)
    with SqliteDatabase.open(tmp_path / "state.db", metadata=TABLES, reserved=reserved) as database:
        assert reserved.path.stat().st_size == 1 << 20
        database.write_sync(adding("old"), grows=True)
        arm(monkeypatch, "store.commit.before:enospc:1:1")
        calls = database.write(adding("new"), grows=True), database.write(removing("old"))
        created, deleted = asyncio.run(together(database, *calls))
        # The fault hit the first commit; from then on only deletes succeed.
        assert not reserved.path.exists()
        assert isinstance(created, ServiceUnavailable)
        assert "full" in str(created)
        assert deleted == 1
        with pytest.raises(ServiceUnavailable, match="full"):
            database.write_sync(adding("new"), grows=True)
        clock.s += 60
        database.write_sync(adding("new"), grows=True)
        assert reserved.path.exists()
        assert names(database) == ["new"]


def test_no_space_is_reserved_if_that_would_fill_the_disk(tmp_path):
    reserved = ReservedSpace(tmp_path / "ballast", size_bytes=1 << 60)
    assert not reserved.reserve()
    assert not reserved.held
    assert not reserved.path.exists()


@pytest.mark.parametrize(("free_mib", "reserved_mib"), [(24, 1.2), (1000, 50), (4000, 64), (19, 1), (1, 0)])
def test_a_twentieth_of_the_free_space_is_reserved_from_1_to_64_mib(tmp_path, monkeypatch, free_mib, reserved_mib):
    reserved = ReservedSpace(tmp_path / "ballast")
    monkeypatch.setattr(reserved, "_free_bytes", lambda: free_mib << 20)
    assert reserved.reserve() == bool(reserved_mib)
    assert reserved.path.exists() == bool(reserved_mib)
    if not reserved_mib:
        return
    assert reserved.path.stat().st_size == int(reserved_mib * 1024 * 1024)
    again = ReservedSpace(reserved.path)
    assert again.held
    assert again.size_bytes == reserved.size_bytes


def test_the_reserved_space_does_not_shrink_with_the_free_space(tmp_path, monkeypatch):
    reserved = ReservedSpace(tmp_path / "ballast", clock=FakeClock())
    free_bytes = 1000 << 20
    monkeypatch.setattr(reserved, "_free_bytes", lambda: free_bytes)
    assert reserved.reserve()
    assert reserved.release()
    free_bytes = 60 << 20
    assert not reserved.reserve()  # 50 MiB would leave too little
    free_bytes = 200 << 20
    assert reserved.reserve()
    assert reserved.size_bytes == 50 << 20


FULL_DISK = """
import os
import sys
from pathlib import Path
from sqlalchemy import insert, text
from tidemill.errors import ServiceUnavailable
from tidemill.store.database.sqlite.database import ReservedSpace
from tidemill.store.database.base import Database
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.database.schema import meta, metadata

root = Path(sys.argv[1])
reserved = ReservedSpace(root / "ballast", size_bytes=int(sys.argv[2]))
with SqliteDatabase.open(root / "state.db", metadata=metadata, reserved=reserved) as database:
    count = 0
    try:
        while True:
            row = dict(key=f"k{count:06}", value="x" * (int(sys.argv[2]) // 80))
            database.write_sync(lambda c: c.execute(insert(meta), row) and None, grows=True)
            count += 1
    except ServiceUnavailable as error:
        assert error.status == 503, error
    assert count > 20, count
    assert reserved.held, "new rows are refused before the room for deletes is touched"
    with (root / "filler").open("wb") as filler:
        disk = os.statvfs(root)
        if disk.f_bavail:
            os.posix_fallocate(filler.fileno(), 0, disk.f_bavail * disk.f_frsize)
    present = database.read(lambda c: c.execute(text("select count(*) from meta where key like 'k%'")).scalar())
    assert present == count, (present, count)
    for number in range(count):
        key = f"k{number:06}"
        assert database.write_sync(lambda c: c.execute(meta.delete().where(meta.c.key == key)).rowcount) == 1
    assert not reserved.held, "the deletes needed it"
    assert database.read(lambda c: c.exec_driver_sql("PRAGMA integrity_check").scalar()) == "ok"
print("survived", count)
"""


def test_a_really_full_disk_loses_nothing_and_can_be_emptied(tmp_path, need):
    need("unshare")
    command = 'mount -t tmpfs -o size=64m tmpfs "$0"; exec "$@"'
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-ec", command]
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
    with SqliteDatabase.open(path, metadata=TABLES) as database:
        fill(database, [{"name": f"{i:05}" * 20, "size": i} for i in range(rows)])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"not a database" + data[14:], id="header"),
        pytest.param(lambda data: data[: len(data) // 2], id="torn"),
        pytest.param(lambda data: data[:4096] + bytes(4096) + data[8192:], id="zeroed page"),
    ],
)
def test_a_damaged_file_is_refused_and_its_backup_is_restored_as_the_message_describes(tmp_path, damage):
    path = tmp_path / "state.db"
    filled(path)
    with SqliteDatabase.open(path, metadata=TABLES) as database:
        copy = backup(database, tmp_path / "backups")
        expected = names(database)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigurationError, match="is damaged") as caught:
        SqliteDatabase.open(path, metadata=TABLES)
    assert str(path) in str(caught.value)
    assert f"cp {copy} {path}" in str(caught.value)
    for name in ("state.db", "state.db-wal", "state.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(copy, path)
    with SqliteDatabase.open(path, metadata=TABLES) as database:
        assert names(database) == expected


def test_a_missing_directory_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot open the database"):
        SqliteDatabase.open(tmp_path / "none" / "state.db", metadata=TABLES)


def test_damage_that_shows_later_is_state_corrupt_and_names_the_backups(tmp_path):
    path = tmp_path / "state.db"
    filled(path, rows=2000)
    with SqliteDatabase.open(path, metadata=TABLES) as database:
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
    with SqliteDatabase.open(made[3], metadata=TABLES) as copy:
        assert names(copy) == ["n0", "n1", "n2", "n3"]


def test_a_backup_under_way_does_not_stop_writers(database, tmp_path):
    async def run() -> Path:
        making = asyncio.ensure_future(Backups(database, tmp_path / "backups").make())
        for number in range(50):
            await database.write(adding(f"n{number}"))
        return await making

    with SqliteDatabase.open(asyncio.run(run()), metadata=TABLES) as copy:
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
        [sys.executable, "-W", "error", program, tmp_path / "state.db", "20"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    acknowledged = int(done.stdout.split()[-1])
    assert acknowledged > 200
