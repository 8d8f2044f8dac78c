"""The contract of every `Database`: the tests that an implementation inherits, and the works that they run."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    bindparam,
    func,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError

from tidemill.errors import ServiceUnavailable
from tidemill.store.database.base import ConstantStatement, Database, stored_secret
from tidemill.store.database.pooled import execute
from tidemill.store.database.schema import TEXT

TABLES = MetaData()
THINGS = Table(
    "things",
    TABLES,
    Column("name", TEXT, primary_key=True),
    Column("size", BigInteger),
    Column("content", LargeBinary),
)
BY_NAME = ConstantStatement(select(THINGS).where(THINGS.c.name == bindparam("wanted")))
ADD = ConstantStatement(insert(THINGS))
NAMES = select(THINGS.c.name).order_by(THINGS.c.name)


def adding(name: str) -> Callable[[Connection], None]:
    return lambda connection: connection.execute(insert(THINGS).values(name=name, size=1)) and None


def removing(name: str) -> Callable[[Connection], int]:
    return lambda connection: connection.execute(THINGS.delete().where(THINGS.c.name == name)).rowcount


def names(database: Database) -> list[str]:
    return database.read(lambda connection: list(connection.execute(NAMES).scalars()))


def fill(database: Database, rows: list[dict[str, Any]]) -> None:
    database.write_sync(lambda connection: connection.execute(insert(THINGS), rows) and None)


class Holder:
    """A work that holds its transaction open until `go` is set."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.go = threading.Event()

    def __call__(self, connection: Connection) -> None:
        self.held.set()
        assert self.go.wait(30)


@contextlib.asynccontextmanager
async def writer_held(database: Database) -> AsyncIterator[None]:
    """Keep a transaction open until the block ends."""
    holder = Holder()
    holding = asyncio.ensure_future(database.write(holder))
    await asyncio.to_thread(holder.held.wait, 30)
    try:
        yield
    finally:
        holder.go.set()
        await holding


async def together(database: Database, *calls: Coroutine[Any, Any, Any]) -> list[Any]:
    """Begin all calls while another work holds its transaction; return their results or errors."""
    async with writer_held(database):
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)  # every task has submitted its work
    return await asyncio.gather(*tasks, return_exceptions=True)


class DatabaseContract:
    """The tests. A subclass provides the fixture `open_database`."""

    @pytest.fixture
    def open_database(self) -> Callable[[], Database]:
        """Return a function that opens the same database, with `TABLES`, each time it is called."""
        raise NotImplementedError

    @pytest.fixture
    def database(self, open_database: Callable[[], Database]) -> Iterator[Database]:
        with contextlib.closing(open_database()) as database:
            yield database

    # Works and their results

    def test_rows_that_were_written_can_be_read(self, database):
        asyncio.run(database.write(adding("a")))
        database.write_sync(adding("b"))
        assert names(database) == ["a", "b"]
        assert asyncio.run(database.read_in_thread(lambda c: len(c.execute(NAMES).all()))) == 2

    def test_a_row_that_was_committed_is_found_by_its_key(self, database):
        for name in ("a", "b"):
            values = {"name": name, "size": 2**40, "content": b"\0" + name.encode()}
            database.write_sync(lambda c, values=values: c.execute(insert(THINGS), values) and None)
            assert tuple(database.row(BY_NAME, {"wanted": name})) == tuple(values.values())
        database.write_sync(removing("a"))
        assert database.row(BY_NAME, {"wanted": "a"}) is None

    def test_a_constant_statement_runs_in_a_work_as_any_other(self, database):
        values = {"name": "a", "size": 2**40, "content": b"\0a"}

        def work(connection: Connection) -> Any:
            assert not execute(connection, ADD, values)
            return execute(connection, BY_NAME, {"wanted": "a"})

        assert [tuple(row) for row in database.write_sync(work)] == [tuple(values.values())]
        with pytest.raises(IntegrityError):
            database.write_sync(lambda connection: execute(connection, ADD, values) and None)
        assert names(database) == ["a"]

    def test_a_row_is_read_without_waiting_for_a_writer(self, database):
        async def work() -> Any:
            async with writer_held(database):
                return database.row(BY_NAME, {"wanted": "a"})

        database.write_sync(adding("a"))
        assert tuple(asyncio.run(work())) == ("a", 1, None)

    def test_a_write_returns_the_result_of_its_work(self, database):
        database.write_sync(adding("a"))
        assert database.write_sync(removing("a")) == 1
        assert asyncio.run(database.write(removing("a"))) == 0

    def test_a_work_reads_its_own_writes(self, database):
        def work(connection: Connection) -> list[str]:
            adding("a")(connection)
            return list(connection.execute(NAMES).scalars())

        assert database.write_sync(work) == ["a"]

    def test_a_failing_work_loses_its_own_changes_only(self, database):
        def half(connection: Connection) -> None:
            adding("half")(connection)
            raise ValueError("changed my mind")

        database.write_sync(adding("taken"))
        works = (adding("a"), half, adding("taken"), adding("b"))
        results = asyncio.run(together(database, *(database.write(work) for work in works)))
        assert results[0] is None
        assert isinstance(results[1], ValueError)
        assert isinstance(results[2], IntegrityError)
        assert results[3] is None
        assert names(database) == ["a", "b", "taken"]

    def test_works_run_one_after_another(self, database):
        def increment(connection: Connection) -> None:
            size = connection.execute(select(THINGS.c.size)).scalar_one()
            connection.execute(update(THINGS).values(size=size + 1))

        async def run() -> None:
            await asyncio.gather(*(database.write(increment) for _ in range(100)))

        database.write_sync(adding("a"))
        asyncio.run(run())
        assert database.read(lambda c: c.execute(select(THINGS.c.size)).scalar_one()) == 101

    def test_works_of_several_event_loops_and_threads_are_answered(self, database):
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

    def test_a_cancelled_caller_does_not_disturb_the_others(self, database):
        async def run() -> None:
            async with writer_held(database):
                tasks = [asyncio.ensure_future(database.write(adding(name))) for name in "abc"]
                await asyncio.sleep(0)
                tasks[1].cancel()
            await asyncio.gather(tasks[0], tasks[2])

        asyncio.run(run())
        assert {"a", "c"} <= set(names(database))

    # Reading

    def test_a_read_cannot_write(self, database):
        with pytest.raises((DBAPIError, ServiceUnavailable), match=r"read-?only"):
            database.read(adding("a"))
        assert names(database) == []

    def test_a_read_inside_a_read_is_allowed(self, database):
        database.write_sync(adding("a"))
        assert database.read(lambda connection: names(database)) == ["a"]

    def test_a_read_sees_one_moment_and_does_not_hold_up_a_writer(self, database):
        database.write_sync(adding("a"))

        def twice(connection: Connection) -> tuple[list[str], list[str]]:
            before = list(connection.execute(NAMES).scalars())
            database.write_sync(adding("b"))
            return before, list(connection.execute(NAMES).scalars())

        assert database.read(twice) == (["a"], ["a"])
        assert names(database) == ["a", "b"]

    def test_a_read_does_not_wait_for_a_writer(self, database):
        database.write_sync(adding("a"))
        holder = Holder()
        writing = threading.Thread(target=database.write_sync, args=(holder,))
        writing.start()
        assert holder.held.wait(30)
        assert names(database) == ["a"]
        holder.go.set()
        writing.join()

    def test_a_failed_read_leaves_the_next_one_unharmed(self, database):
        database.write_sync(adding("a"))
        missing = Table("missing", MetaData(), Column("name", TEXT))
        with pytest.raises(DBAPIError, match="missing"):
            database.read(lambda connection: connection.execute(select(missing)).all())
        assert names(database) == ["a"]

    # What statements may rely on

    def test_names_sort_and_compare_by_code_point(self, database):
        unordered = ["a", "B", "\u00e4", "A", "a b", "a-b", "aa", "\U0001f600", "\uffee", "_", "1"]
        fill(database, [{"name": name} for name in unordered])
        assert names(database) == sorted(unordered)
        above = database.read(lambda c: list(c.execute(NAMES.where(THINGS.c.name > "B")).scalars()))
        assert above == [name for name in sorted(unordered) if name > "B"]

    def test_bytes_sort_as_bytes(self, database):
        contents = [b"", b"\0", b"a", b"a\0", b"ab", b"\xc3\xa4", b"\xff", b"B"]
        fill(database, [{"name": f"{number}", "content": content} for number, content in enumerate(contents)])
        query = select(THINGS.c.content).order_by(THINGS.c.content)
        assert database.read(lambda c: list(c.execute(query).scalars())) == sorted(contents)

    def test_values_come_back_as_they_were_stored(self, database):
        row = {"name": "\u00fc \u2028 \U0001f600", "size": 2**62, "content": bytes(range(256))}
        fill(database, [row, {"name": "empty", "size": None, "content": None}])
        stored = database.read(lambda c: [dict(found) for found in c.execute(select(THINGS)).mappings()])
        assert row in stored
        assert {"name": "empty", "size": None, "content": None} in stored

    def test_rows_compare_by_several_columns(self, database):
        rows = [(1, "a"), (1, "b"), (2, "a"), (3, "c")]
        fill(database, [{"name": f"{size}{name}", "size": size} for size, name in rows])
        after = NAMES.where(tuple_(THINGS.c.size, THINGS.c.name) > tuple_(1, "1a"))
        assert database.read(lambda c: list(c.execute(after).scalars())) == ["1b", "2a", "3c"]

    def test_a_statement_accepts_a_thousand_names(self, database):
        many = [f"{number:04}" for number in range(1000)]
        fill(database, [{"name": name} for name in many])
        assert database.read(lambda c: list(c.execute(NAMES.where(THINGS.c.name.in_(many))).scalars())) == many

    # Secrets, closing and opening again

    def test_secrets_are_random_and_stay(self, open_database):
        with contextlib.closing(open_database()) as database:
            secret = stored_secret(database, "tokens")
            assert stored_secret(database, "tokens") == secret
            assert stored_secret(database, "other") != secret
            assert len(bytes.fromhex(secret)) == 32
        with contextlib.closing(open_database()) as database:
            assert stored_secret(database, "tokens") == secret

    def test_closing_commits_the_works_that_were_submitted_before(self, open_database):
        database = open_database()

        async def run() -> list[Any]:
            writes = (database.write(adding(f"n{number}")) for number in range(5))
            return await together(database, *writes, asyncio.to_thread(database.close))

        assert asyncio.run(run()) == [None] * 6
        with contextlib.closing(open_database()) as again:
            assert len(names(again)) == 5

    def test_a_closed_database_refuses_works_and_can_be_closed_again(self, open_database):
        database = open_database()
        database.close()
        database.close()
        for refused in (
            lambda: database.write_sync(adding("late")),
            lambda: asyncio.run(database.write(adding("late"))),
            lambda: names(database),
        ):
            with pytest.raises(ServiceUnavailable, match="closed"):
                refused()

    def test_opening_again_keeps_rows_and_makes_nothing_twice(self, open_database):
        for number in range(3):
            with contextlib.closing(open_database()) as database:
                database.write_sync(adding(f"n{number}"))
                count = database.read(lambda c: c.execute(select(func.count()).select_from(THINGS)).scalar())
                assert count == number + 1
