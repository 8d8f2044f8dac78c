"""PostgreSQL as a `Database`: the contract, the effect of a broken connection, and that only one service writes."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from database_contract import TABLES, DatabaseContract, adding, names
from postgresql_server import PostgresqlServer
from sqlalchemy import Connection, inspect

from polling import poll
from tidemill.core import faults
from tidemill.core.clock import SystemClock
from tidemill.errors import ConfigurationError, ServiceUnavailable
from tidemill.store.database.postgresql.database import PostgresqlDatabase
from tidemill.store.database.postgresql.succession import Succession
from tidemill.store.database.revisions import HEAD
from tidemill.store.database.schema import leases, metadata, records, starts
from tidemill.store.records.base import Record
from tidemill.store.records.store import SqlRecordStore


@pytest.fixture
def server(postgresql: PostgresqlServer) -> PostgresqlServer:
    return postgresql


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    return server.empty_database()


@pytest.fixture
def database(url: str) -> Iterator[PostgresqlDatabase]:
    with PostgresqlDatabase.open(url, metadata=TABLES) as database:
        yield database


class TestPostgresqlDatabase(DatabaseContract):
    @pytest.fixture
    def open_database(self, url: str) -> Callable[[], PostgresqlDatabase]:
        return lambda: PostgresqlDatabase.open(url, metadata=TABLES)


def test_works_go_on_after_all_connections_were_ended(database, server):
    database.write_sync(adding("a"))
    assert names(database) == ["a"]
    server.disconnect_all()
    assert names(database) == ["a"], "an idle connection that broke is replaced"
    database.write_sync(adding("b"))
    assert names(database) == ["a", "b"]


def test_a_connection_that_breaks_before_the_commit_costs_nothing(database, server):
    attempts = []

    def work(connection: Connection) -> str:
        attempts.append(1)
        adding("a")(connection)
        if len(attempts) == 1:
            server.disconnect_all()
        return "done"

    assert database.write_sync(work) == "done"
    assert len(attempts) == 2
    assert names(database) == ["a"]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(database, monkeypatch):
    """The server has committed, but the connection breaks before its answer arrives."""
    attempts = []

    def work(connection: Connection) -> None:
        attempts.append(1)
        adding("a")(connection)

    raw = database._connection.connection.dbapi_connection
    commit = type(raw).commit
    lost = []

    def commit_and_break(self) -> None:
        commit(self)
        if not lost:
            lost.append(1)
            self.pgconn.finish()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(type(raw), "commit", commit_and_break)
        database.write_sync(work)
    assert lost == [1]
    assert attempts == [1]
    assert names(database) == ["a"]


def test_an_acknowledged_write_survives_the_loss_of_the_server(url, server):
    written: list[str] = []
    stop = threading.Event()
    with PostgresqlDatabase.open(url, metadata=TABLES) as database:

        def writing() -> None:
            number = 0
            while not stop.is_set():
                name = f"n{number:05}"
                with contextlib.suppress(ServiceUnavailable):
                    database.write_sync(adding(name))
                    written.append(name)
                number += 1

        thread = threading.Thread(target=writing)
        thread.start()
        try:
            _grows(written)
            server.kill()
            server.start()
            _grows(written)
        finally:
            stop.set()
            thread.join()
        assert set(written) <= set(names(database))


def test_a_write_that_the_server_lost_is_made_again_although_others_reuse_its_transaction_id(
    url, server, database, monkeypatch
):
    """A crash of PostgreSQL loses a transaction that is in memory only, and later transactions get its id."""
    passes = []

    def crash(point: str) -> None:
        if point == "store.commit.before" and not passes:
            passes.append(point)
            server.kill()
            server.start()
            with psycopg.connect(url, autocommit=True) as other:
                other.execute("CREATE TABLE others (number int)")
                for number in range(20):
                    other.execute("INSERT INTO others VALUES (%s)", (number,))

    monkeypatch.setattr(faults, "point", crash)
    database.write_sync(adding("a"))
    assert passes
    assert names(database) == ["a"]


def _grows(written: list[str]) -> None:
    enough = len(written) + 20
    poll(lambda: len(written) >= enough)


def test_an_unavailable_server_is_an_error_until_it_is_back(url, server):
    with PostgresqlDatabase.open(url, metadata=TABLES) as database:
        database.write_sync(adding("a"))
        server.kill()
        try:
            with pytest.raises(ServiceUnavailable, match=r"could not commit: .*[Cc]onnection"):
                database.write_sync(adding("b"))
            with pytest.raises(ServiceUnavailable, match="cannot be used now"):
                names(database)
        finally:
            server.start()
        database.write_sync(adding("c"))
        assert {"a", "c"} <= set(names(database))


def test_a_database_of_an_older_revision_is_migrated_to_the_tables_of_a_new_one(url):
    tables = [records.name, starts.name, leases.name]
    model = Record(kind="model", name="m", created_ms=5, modified_ms=5, summary={"arn": "m"}, document={"arn": "m"})

    def layout(connection: Connection) -> list[Any]:
        found = inspect(connection)
        columns = [column for table in tables for column in found.get_columns(table)]
        described = [(each["name"], str(each["type"]), each["nullable"], each["default"]) for each in columns]
        return [*described, *(found.get_pk_constraint(table) for table in tables)]

    with PostgresqlDatabase.open(url, metadata=metadata) as database:
        new = database.read(layout)
        asyncio.run(SqlRecordStore(database, clock=SystemClock()).insert(model))
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("ALTER TABLE records DROP COLUMN summary, DROP COLUMN summary_checksum")
        raw.execute("DROP TABLE starts, leases")
        raw.execute("UPDATE alembic_version SET version_num = '0002'")
    with PostgresqlDatabase.open(url, metadata=metadata) as database:
        assert database.read(layout) == new
        assert SqlRecordStore(database, clock=SystemClock()).get("model", "m") == model
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]


def test_one_service_uses_a_database(url, database):
    with pytest.raises(ConfigurationError, match="/postgres is in use by another service"):
        PostgresqlDatabase.open(url, metadata=TABLES, lock_wait_s=0.3)
    database.close()
    with PostgresqlDatabase.open(url, metadata=TABLES, lock_wait_s=60) as second:
        second.write_sync(adding("a"))


def test_a_service_that_lost_its_database_to_another_writes_no_more(url, server, monkeypatch):
    superseded = threading.Event()
    database = PostgresqlDatabase.open(url, metadata=TABLES, superseded=superseded.set)
    database.write_sync(adding("a"))
    assert database.lead.is_certain()
    monkeypatch.setattr("tidemill.store.database.postgresql.database.LOCK_WAIT_S", 0.3)

    def take_over() -> None:
        second.append(PostgresqlDatabase.open(url, metadata=TABLES, lock_wait_s=30))

    second: list[PostgresqlDatabase] = []
    thread = threading.Thread(target=take_over)
    thread.start()
    server.disconnect_writers()
    thread.join()
    with second[0]:
        with pytest.raises(ServiceUnavailable, match="another service has taken the database over"):
            asyncio.run(database.write(adding("b")))
        assert superseded.wait(60)
        assert not database.lead.is_certain()
        second[0].write_sync(adding("c"))
        assert names(second[0]) == ["a", "c"]
        assert second[0].lead.term == database.lead.term + 1
    # The other service has ended, too, but the data in this one's memory is outdated all the same.
    with pytest.raises(ServiceUnavailable, match="another service has taken the database over"):
        asyncio.run(database.write(adding("d")))
    database.close()


def test_a_successor_waits_for_a_leader_that_lives_and_clears_one_that_does_not(url, server):
    now_s = 0.0
    succession = Succession(url, patience_s=6.0, monotonic_s=lambda: now_s)
    assert succession.is_vacant(), "nobody has led yet"
    with PostgresqlDatabase.open(url, metadata=TABLES) as database:
        database.lead.publish(local_url="http://127.0.0.1:1", relay=("127.0.0.1", 1))
        while succession.lead is None or succession.lead.relay is None:
            assert not succession.is_vacant()
        for _ in range(3):  # three renewals, each at the time limit by the successor's clock
            seen = succession.lead
            while succession.lead == seen:
                assert not succession.is_vacant()
            now_s += 5.9
    assert succession.is_vacant(), "it has ended in order"
    assert succession.lead is not None and succession.lead.ended
    database = PostgresqlDatabase.open(url, metadata=TABLES)
    database.lead._keep = database.lead._renew = lambda *_args, **_keywords: None  # it hangs, but holds the lock
    assert not succession.is_vacant()
    seen = None
    while seen != succession.lead:
        seen = succession.lead
        assert not succession.is_vacant()
    assert not succession.is_vacant(leader_has_ended=True), "something holds the lock, whatever has ended"
    now_s += 6.1
    assert succession.is_vacant()
    succession.clear()
    with PostgresqlDatabase.open(url, metadata=TABLES) as second:
        assert second.lead.term == 3
        second.lead._renew = lambda *_args, **_keywords: None
        server.disconnect_writers()
        assert not succession.is_vacant()
        assert succession.is_vacant(leader_has_ended=True)
    database.close()


def test_the_successor_counts_from_the_moment_when_the_database_is_back(url, server):
    now_s = 0.0
    succession = Succession(url, patience_s=6.0, monotonic_s=lambda: now_s)
    with PostgresqlDatabase.open(url, metadata=TABLES):
        assert not succession.is_vacant()
        server.kill()
        now_s += 100
        assert not succession.is_vacant()
        server.start()
        assert not succession.is_vacant()


def test_times_are_those_of_the_database(url):
    class Slow(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() - 3_600_000

    with PostgresqlDatabase.open(url, metadata=TABLES, clock=Slow()) as database:
        assert abs(database.clock.now_ms() - SystemClock().now_ms()) < 60_000


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://user:secret@host/db", r"mysql://user:\*\*\*@host/db is not one of PostgreSQL"),
        ("postgresql://user:secret@host", "is not one of PostgreSQL; expected postgresql://USER"),
        ("not a url", "cannot be read"),
        ("postgresql://user:secret@127.0.0.1:1/db", r"cannot connect to the database postgresql.*127\.0\.0\.1:1/db"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as refused:
        PostgresqlDatabase.open(url, metadata=TABLES)
    assert "secret" not in str(refused.value)


def test_the_fault_after_a_commit_loses_the_answer_and_not_the_rows(database, monkeypatch):
    monkeypatch.setattr(faults, "_armed", faults._parse("store.commit.after:eio"))
    with pytest.raises(ServiceUnavailable):
        database.write_sync(adding("a"))
    monkeypatch.undo()
    assert names(database) == ["a"]


@pytest.mark.parametrize("rounds", [10, pytest.param(1000, marks=pytest.mark.matrix)])
def test_no_acknowledged_row_is_lost_by_kill_9_during_commits(url: str, rounds: int) -> None:
    program = Path(__file__).with_name("kill_during_commits.py")
    command = [sys.executable, "-W", "error", program, url, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 20 * rounds
