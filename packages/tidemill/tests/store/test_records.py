"""Records: a read returns what was stored or fails; all pages together are the sorted list."""

import asyncio
import itertools
import random
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert

from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store.database.base import Database
from tidemill.store.database.postgresql.database import PostgresqlDatabase
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.backup import backup
from tidemill.store.database.sqlite.database import ReservedSpace, SqliteDatabase
from tidemill.store.records import listing as listing_module
from tidemill.store.records import store as records_module
from tidemill.store.records.base import Query, Record, RecordExists, Summary
from tidemill.store.records.listing import Listing
from tidemill.store.records.store import SqlRecordStore

KIND = "training-job"
STATUSES = ("Completed", "Failed", "InProgress")
SORTS = {
    "name": lambda record: (record.name,),
    "created": lambda record: (record.created_ms, record.name),
    "modified": lambda record: (record.modified_ms, record.name),
    "status": lambda record: (record.status, record.created_ms, record.name),
}


class FrozenClock:
    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return 0.0


def record(name: str, *, kind: str = KIND, status: str = "InProgress", at_ms: int = 1000, **document) -> Record:
    return Record(
        kind=kind,
        name=name,
        status=status,
        created_ms=at_ms,
        modified_ms=at_ms,
        summary={"arn": f"arn:{name}"},
        document=document,
    )


def summary_of(full: Record) -> Summary:
    members = {each.name: getattr(full, each.name) for each in fields(Summary)}
    return Summary(**members)


def fill(database: Database, many: list[Record]) -> None:
    """Store records in one transaction."""
    rows = [records_module._to_row(each) for each in many]
    if rows:
        database.write_sync(lambda c: c.execute(insert(records), rows) and None)


@pytest.fixture(scope="module")
def postgresql_url(postgresql: Any) -> str:
    return postgresql.empty_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
            yield database
        return
    with PostgresqlDatabase.open(request.getfixturevalue("postgresql_url"), metadata=metadata) as database:
        database.write_sync(lambda connection: connection.execute(delete(records)) and None)
        yield database


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def store(database, clock) -> SqlRecordStore:
    return SqlRecordStore(database, clock=clock)


def test_a_record_comes_back_as_it_was_stored(store):
    stored = record("digits", text="ü \u2028 \U0001f600 \x00", nested={"a": [1, 2.5, None, True]}, empty="")
    asyncio.run(store.insert(stored))
    assert store.get(KIND, "digits") == stored
    assert store.get(KIND, "Digits") is None
    assert store.get("model", "digits") is None


def test_a_taken_name_is_refused_and_the_first_record_stays(store):
    asyncio.run(store.insert(record("digits", first=True)))
    with pytest.raises(RecordExists, match="training-job 'digits' exists already"):
        asyncio.run(store.insert(record("digits", first=False)))
    asyncio.run(store.insert(record("digits", kind="model")))
    assert store.get(KIND, "digits").document == {"first": True}


def test_one_of_many_creators_of_a_name_wins(store):
    async def run():
        return await asyncio.gather(
            *(store.insert(record("digits", by=number)) for number in range(20)), return_exceptions=True
        )

    results = asyncio.run(run())
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, RecordExists) for result in results) == 19


def test_an_update_moves_the_modification_time_forward_even_if_the_clock_does_not(store, clock):
    async def run():
        await store.insert(record("digits", at_ms=1000))
        clock.ms = 500
        first = await store.update(KIND, "digits", lambda r: replace(r, status="Completed"))
        second = await store.update(KIND, "digits", lambda r: replace(r, document={"n": 2}))
        clock.ms = 5000
        third = await store.update(KIND, "digits", lambda r: r)
        return first, second, third

    first, second, third = asyncio.run(run())
    assert [r.modified_ms for r in (first, second, third)] == [1001, 1002, 5000]
    assert third.created_ms == 1000
    assert third.status == "Completed"
    assert store.get(KIND, "digits") == third


def test_concurrent_updates_are_all_applied(store):
    async def run():
        await store.insert(record("digits", n=0))
        await asyncio.gather(
            *(
                store.update(KIND, "digits", lambda r: replace(r, document={"n": r.document["n"] + 1}))
                for _ in range(50)
            )
        )

    asyncio.run(run())
    assert store.get(KIND, "digits").document == {"n": 50}


def test_a_change_of_several_records_is_stored_as_a_whole(store):
    async def run():
        await store.insert(record("old", n=1))

        def work(transaction):
            transaction.insert(record("new", n=2))
            transaction.update(KIND, "old", lambda r: replace(r, status="Completed"))
            transaction.insert(record("new", kind="tags"))
            assert transaction.get(KIND, "new").document == {"n": 2}, "it sees its own writes"
            assert transaction.get(KIND, "old").status == "Completed"
            return transaction.delete("tags", "new")

        return await store.change(work)

    assert asyncio.run(run()) == record("new", kind="tags")
    assert store.get(KIND, "new") == record("new", n=2)
    assert store.get(KIND, "old").status == "Completed"
    assert store.get("tags", "new") is None


def test_a_generation_lasts_as_long_as_nothing_of_its_kind_changes(store):
    async def run():
        seen = [store.generation(KIND)]
        await store.insert(record("a"))
        seen.append(store.generation(KIND))
        await store.insert(record("a", kind="tags"))
        assert store.generation(KIND) == seen[-1], "another kind"
        await store.update(KIND, "a", lambda old: None)
        assert store.generation(KIND) == seen[-1], "nothing was written"
        await store.update(KIND, "a", lambda old: replace(old, status="Completed"))
        seen.append(store.generation(KIND))
        await store.delete(KIND, "a")
        seen.append(store.generation(KIND))
        return seen

    seen = asyncio.run(run())
    assert None not in seen
    assert len(set(seen)) == len(seen)


def test_the_generation_of_a_name_changes_with_its_record_and_hardly_with_those_of_others(store):
    async def run():
        await store.insert(record("a"))
        before = store.generation(KIND, "a")
        others = [f"other-{number}" for number in range(20)]
        for other in others:
            await store.insert(record(other))
        same = [name for name in others if store.generation(KIND, name) == before]
        await store.insert(record("a", kind="tags"))
        assert len(same) > 15, "each name was written once"
        assert store.generation(KIND, "a") <= before + 3
        before = store.generation(KIND, "a")
        await store.delete(KIND, "a")
        assert store.generation(KIND, "a") > before

    asyncio.run(run())


def test_there_is_no_generation_while_a_change_may_be_yet_to_come(store):
    begun, goes_on = threading.Event(), threading.Event()

    def work(transaction):
        transaction.insert(record("slow"))
        begun.set()
        goes_on.wait(60)

    async def run():
        first = store.generation(KIND)
        change = asyncio.ensure_future(store.change(work))
        await asyncio.to_thread(begun.wait, 60)
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)
        goes_on.set()
        # Committed or not, the cancelled change invalidates what was read before it.
        await store.insert(record("next"))
        return first, store.generation(KIND)

    first, last = asyncio.run(run())
    assert last is not None
    assert last > first


@pytest.mark.parametrize("refusal", [ValueError, RecordExists])
def test_a_change_that_is_refused_leaves_nothing_and_its_neighbors_alone(refusal, store):
    async def run():
        await store.insert(record("taken", first=True))

        def refused(transaction):
            transaction.insert(record("new"))
            transaction.delete(KIND, "taken")
            transaction.insert(record("taken", first=False))
            if refusal is RecordExists:
                transaction.insert(record("new"))
            raise ValueError("at most one")

        return await asyncio.gather(
            store.insert(record("before")),
            store.change(refused),
            store.change(lambda transaction: transaction.insert(record("after"))),
            return_exceptions=True,
        )

    before, refused, after = asyncio.run(run())
    assert (before, after) == (None, None)
    assert isinstance(refused, refusal)
    assert store.get(KIND, "new") is None
    assert store.get(KIND, "taken").document == {"first": True}
    assert store.get(KIND, "before")
    assert store.get(KIND, "after")


def test_a_limit_that_is_checked_inside_a_change_holds_for_many_at_once(store):
    def one_more(number):
        def work(transaction):
            counter = transaction.get("counter", "n")
            if counter.document["n"] >= 7:
                raise ValueError("at most 7")
            transaction.insert(record(f"r{number}"))
            transaction.update("counter", "n", lambda r: replace(r, document={"n": r.document["n"] + 1}))

        return work

    async def run():
        await store.insert(record("n", kind="counter", n=0))
        return await asyncio.gather(*(store.change(one_more(n)) for n in range(40)), return_exceptions=True)

    results = asyncio.run(run())
    assert sum(result is None for result in results) == 7
    assert sum(isinstance(result, ValueError) for result in results) == 33
    assert sum(store.get(KIND, f"r{n}") is not None for n in range(40)) == 7


def test_an_update_that_returns_none_keeps_the_record(store):
    asyncio.run(store.insert(record("digits")))
    assert asyncio.run(store.update(KIND, "digits", lambda r: None)) == record("digits")
    assert store.get(KIND, "digits") == record("digits")


def test_an_update_of_a_missing_record_returns_none(store):
    assert asyncio.run(store.update(KIND, "nothing", lambda r: pytest.fail("called"))) is None


def test_an_update_that_raises_or_renames_leaves_the_record(store):
    asyncio.run(store.insert(record("digits")))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(store.update(KIND, "digits", lambda r: 1 / 0))
    with pytest.raises(ValueError, match="cannot rename training-job 'digits' to training-job 'other'"):
        asyncio.run(store.update(KIND, "digits", lambda r: replace(r, name="other")))
    assert store.get(KIND, "digits") == record("digits")


def test_a_document_that_is_no_json_is_refused(store):
    with pytest.raises(ValueError, match="JSON compliant"):
        asyncio.run(store.insert(record("digits", loss=float("nan"))))
    assert store.get(KIND, "digits") is None


def test_a_deleted_record_is_returned_and_removed(store):
    asyncio.run(store.insert(record("digits", n=1)))
    assert asyncio.run(store.delete(KIND, "digits")) == record("digits", n=1)
    assert asyncio.run(store.delete(KIND, "digits")) is None
    assert store.get(KIND, "digits") is None


def test_a_full_disk_refuses_inserts_but_not_updates_and_deletes(tmp_path, clock):
    reserved = ReservedSpace(tmp_path / "ballast", size_bytes=1 << 20, clock=clock)
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata, reserved=reserved) as database:
        store = SqlRecordStore(database, clock=clock)
        asyncio.run(store.insert(record("digits")))
        reserved.release()
        with pytest.raises(ServiceUnavailable, match="full"):
            asyncio.run(store.insert(record("more")))
        assert asyncio.run(store.update(KIND, "digits", lambda r: replace(r, status="Stopping"))).status == "Stopping"
        assert asyncio.run(store.delete(KIND, "digits")) is not None


# Checksums


COLUMNS = {
    "status": "Completed",
    "created_ms": 7,
    "modified_ms": 7,
    "document": '{"n":2}',
    "checksum": b"12345678",
    "summary": '{"arn":"arn:other"}',
    "summary_checksum": b"12345678",
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_column_is_found_and_named(database, store, column):
    asyncio.run(store.insert(record("digits", n=1)))
    value = COLUMNS[column]
    database.write_sync(lambda c: c.execute(records.update().values({column: value})) and None)
    with pytest.raises(StateCorrupt, match="training-job 'digits' fails its checksum"):
        store.get(KIND, "digits")
    with pytest.raises(StateCorrupt, match="'digits'"):
        asyncio.run(store.update(KIND, "digits", lambda r: r))


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("query", [Query(sort_by="name", descending=False), Query(name_contains="i")])
def test_a_damaged_record_hides_no_other_is_marked_and_can_be_deleted(database, store, column, query):
    for name in ("digits", "irises", "mice"):
        asyncio.run(store.insert(record(name, n=1)))
    values = {column: COLUMNS[column]}
    database.write_sync(lambda c: c.execute(records.update().where(records.c.name == "irises").values(values)) and None)
    page = asyncio.run(store.list(KIND, query))
    assert sorted(each.name for each in page.records) == ["digits", "mice"]
    assert [(each.name, each.is_damaged) for each in page.damaged] == [("irises", True)]
    if column not in ("document", "checksum"):  # a list reads neither
        found = asyncio.run(store.summaries(KIND, query))
        marks = {each.name: each.is_damaged for each in found.records}
        assert marks == {"digits": False, "irises": True, "mice": False}
        assert found.damaged == ()
    deleted = asyncio.run(store.delete(KIND, "irises"))
    assert (deleted.name, deleted.is_damaged, deleted.document) == ("irises", True, {})
    assert asyncio.run(store.list(KIND, query)).damaged == ()


@pytest.mark.parametrize("values", [{"created_ms": b"x"}, {"status": b"\xff"}, {"summary": "[]"}, {"summary": None}])
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)  # whose columns have no fixed type
def test_a_value_of_another_type_does_not_end_a_list(database, store, values):
    for name in ("digits", "mice"):
        asyncio.run(store.insert(record(name, n=1)))
    database.write_sync(lambda c: c.execute(records.update().where(records.c.name == "mice").values(values)) and None)
    found = asyncio.run(store.summaries(KIND, Query(sort_by="name", descending=False))).records
    assert [(each.name, each.is_damaged, each.summary) for each in found[1:]] == [("mice", True, found[1].summary)]
    assert isinstance(found[1].created_ms, int)
    assert isinstance(found[1].summary, dict)


@pytest.mark.parametrize("query", [Query(), Query(name_contains="dig")])
def test_summaries_read_no_document(database, store, query):
    asyncio.run(store.insert(record("digits", n=1)))
    database.write_sync(lambda c: c.execute(records.update().values(document="damaged")) and None)
    assert asyncio.run(store.summaries(KIND, query)).records == (summary_of(record("digits")),)


def test_an_update_replaces_the_summary(store):
    asyncio.run(store.insert(record("digits")))
    changed = asyncio.run(store.update(KIND, "digits", lambda now: replace(now, status="Failed", summary={"arn": "b"})))
    assert store.get(KIND, "digits") == changed
    assert changed.summary == {"arn": "b"}
    assert asyncio.run(store.summaries(KIND, Query())).records == (summary_of(changed),)


def test_every_flipped_byte_of_a_document_is_found(tmp_path, clock):
    path = tmp_path / "state.db"
    text = "needle-" + "x" * 40
    with SqliteDatabase.open(path, metadata=metadata) as database:
        asyncio.run(SqlRecordStore(database, clock=clock).insert(record("digits", text=text)))
    data = path.read_bytes()
    at = data.index(text.encode())
    chance = random.Random(1)
    for offset in range(at, at + len(text)):
        flipped = bytearray(data)
        flipped[offset] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with (
            SqliteDatabase.open(path, metadata=metadata) as database,
            pytest.raises(StateCorrupt, match="training-job 'digits' fails its checksum"),
        ):
            SqlRecordStore(database, clock=clock).get(KIND, "digits")


def test_no_flipped_byte_results_in_a_wrong_record(tmp_path, clock):
    path = tmp_path / "state.db"
    expected = {f"job-{number}": record(f"job-{number}", n=number, text="y" * 300) for number in range(40)}
    with SqliteDatabase.open(path, metadata=metadata) as database:
        SqlRecordStore(database, clock=clock)
        fill(database, list(expected.values()))
    data = path.read_bytes()
    chance = random.Random(2)
    found = 0
    for _ in range(150):
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        path.write_bytes(flipped)
        try:
            with SqliteDatabase.open(path, metadata=metadata) as database:
                store = SqlRecordStore(database, clock=clock)
                for name, wanted in expected.items():
                    try:
                        assert store.get(KIND, name) in (wanted, None)
                    except StateCorrupt:
                        found += 1
        except ConfigurationError:
            found += 1
    assert found > 20


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_row_that_only_an_index_contains_is_detected(database, store):
    asyncio.run(store.insert(record("digits")))
    listing = Listing(KIND, Query(name_contains="d"))
    names, _ = database.read(lambda c: listing.names(c, None, scan_max_rows=10))
    assert names == ["digits"]
    found = database.read(lambda c: records_module._by_names(c, KIND, ["digits", "ghost"], records_module._RECORD))
    assert [(each.name, each.is_damaged) for each in found] == [("digits", False), ("ghost", True)]


# Pages


def read_all(store: SqlRecordStore, query: Query) -> list[Record]:
    async def run() -> list[Record]:
        found: list[Record] = []
        after = None
        while True:
            page = await store.list(KIND, replace(query, after=after))
            summaries = await store.summaries(KIND, replace(query, after=after))
            assert summaries.records == tuple(summary_of(each) for each in page.records)
            assert summaries.next_token == page.next_token
            assert len(page.records) <= query.limit
            found.extend(page.records)
            after = page.next_token
            if after is None:
                return found

    return asyncio.run(run())


def expected_of(many: list[Record], query: Query) -> list[Record]:
    def wanted(each: Record) -> bool:
        return (
            each.kind == KIND
            and (not query.statuses or each.status in query.statuses)
            and query.name_contains in each.name
            and re.search(query.name_pattern, each.name) is not None
            and (query.created_after_ms is None or each.created_ms >= query.created_after_ms)
            and (query.created_before_ms is None or each.created_ms <= query.created_before_ms)
            and (query.modified_after_ms is None or each.modified_ms >= query.modified_after_ms)
            and (query.modified_before_ms is None or each.modified_ms <= query.modified_before_ms)
        )

    return sorted(filter(wanted, many), key=SORTS[query.sort_by], reverse=query.descending)


bounds = st.none() | st.integers(0, 12)
queries = st.builds(
    Query,
    sort_by=st.sampled_from(list(SORTS)),
    descending=st.booleans(),
    statuses=st.lists(st.sampled_from(STATUSES), max_size=2, unique=True).map(tuple),
    name_contains=st.sampled_from(["", "", "a", "ab", "é", "%", "_"]),
    name_pattern=st.sampled_from(["", "", "^a", "^[^_]*$"]),
    created_after_ms=bounds,
    created_before_ms=bounds,
    modified_after_ms=bounds,
    modified_before_ms=bounds,
    limit=st.integers(1, 7),
)
stored = st.lists(
    st.builds(
        Record,
        kind=st.sampled_from([KIND, KIND, KIND, "model"]),
        name=st.text("abAé%_\U0001f600", min_size=1, max_size=4),
        status=st.sampled_from(STATUSES),
        created_ms=st.integers(0, 12),
        modified_ms=st.integers(0, 12),
        document=st.just({}),
    ),
    max_size=25,
    unique_by=lambda each: (each.kind, each.name),
)

slow_is_fine = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@slow_is_fine
@given(many=stored, query=queries)
def test_pages_join_to_the_sorted_list_of_what_matches(database, clock, many, query):
    database.write_sync(lambda c: c.execute(delete(records)) and None)
    fill(database, many)
    # A limit that pages reach repeatedly.
    store = SqlRecordStore(database, clock=clock, scan_max_rows=4)
    assert read_all(store, query) == expected_of(many, query)


@slow_is_fine
@given(many=stored, late=stored, query=queries)
def test_rows_that_come_while_paging_neither_hide_nor_repeat_others(database, clock, many, late, query):
    database.write_sync(lambda c: c.execute(delete(records)) and None)
    taken = {(each.kind, each.name) for each in many}
    late = [each for each in late if (each.kind, each.name) not in taken]
    fill(database, many)
    store = SqlRecordStore(database, clock=clock, scan_max_rows=4)

    async def run() -> list[Record]:
        found: list[Record] = []
        token, coming = None, list(late)
        while True:
            page = await store.list(KIND, replace(query, after=token))
            found.extend(page.records)
            if page.next_token is None:
                return found
            token = page.next_token
            if coming:
                await store.insert(coming.pop())

    found = asyncio.run(run())
    assert found == sorted(found, key=SORTS[query.sort_by], reverse=query.descending)
    assert len({each.name for each in found}) == len(found)
    assert [each for each in found if each in many] == expected_of(many, query)


def test_a_filter_looks_at_a_bounded_number_of_rows_a_page(database, clock):
    fill(database, [record(f"job-{number:03}") for number in range(30)] + [record("special")])
    store = SqlRecordStore(database, clock=clock, scan_max_rows=10)
    query = Query(sort_by="name", descending=False, name_contains="special")
    pages = [asyncio.run(store.list(KIND, query))]
    while pages[-1].next_token is not None:
        pages.append(asyncio.run(store.list(KIND, replace(query, after=pages[-1].next_token))))
    assert [len(page.records) for page in pages] == [0, 0, 0, 1]


def test_a_page_of_exactly_what_is_there_has_no_next_one(database, store):
    fill(database, [record(f"job-{number}") for number in range(3)])
    assert asyncio.run(store.list(KIND, Query(limit=3))).next_token is None
    assert asyncio.run(store.list(KIND, Query(limit=2))).next_token is not None
    assert asyncio.run(store.list("model", Query())).records == ()


def test_a_large_page_is_read_in_a_thread(database, store):
    fill(database, [record(f"job-{number:03}") for number in range(300)])
    assert len(asyncio.run(store.list(KIND, Query(limit=250))).records) == 250


def test_tokens_belong_to_their_query(database, store):
    fill(database, [record(f"job-{number}") for number in range(5)])
    query = Query(limit=2, statuses=("InProgress",))
    token = asyncio.run(store.list(KIND, query)).next_token
    assert asyncio.run(store.list(KIND, replace(query, after=token, limit=3))).records
    others = [
        replace(query, descending=False),
        replace(query, sort_by="name"),
        replace(query, statuses=()),
        replace(query, name_contains="job"),
        replace(query, created_after_ms=0),
    ]
    for other in others:
        with pytest.raises(ValueError, match="not a page token of this listing"):
            asyncio.run(store.list(KIND, replace(other, after=token)))
    with pytest.raises(ValueError, match="not a page token"):
        asyncio.run(store.list("model", replace(query, after=token)))


def test_tokens_survive_a_restart_and_are_not_those_of_another_store(tmp_path, clock):
    tokens = []
    for name in ("a.db", "b.db", "a.db"):
        with SqliteDatabase.open(tmp_path / name, metadata=metadata) as database:
            store = SqlRecordStore(database, clock=clock)
            if not tokens or name == "b.db":
                fill(database, [record(f"job-{number}") for number in range(5)])
            if name == "b.db":
                with pytest.raises(ValueError, match="not a page token"):
                    asyncio.run(store.list(KIND, Query(limit=2, after=tokens[0])))
            elif tokens:
                assert asyncio.run(store.list(KIND, Query(limit=2, after=tokens[0]))).records
            tokens.append(asyncio.run(store.list(KIND, Query(limit=2))).next_token)


@pytest.mark.parametrize("mangle", [str.lower, str.swapcase, lambda t: t[:-1], lambda t: t + "A", lambda t: "é" + t])
def test_a_mangled_token_is_refused(database, store, mangle):
    fill(database, [record(f"job-{number}") for number in range(5)])
    token = asyncio.run(store.list(KIND, Query(limit=2))).next_token
    for bad in (mangle(token), "", "x", "=", "a" * 9000):
        with pytest.raises(ValueError, match="not a page token"):
            asyncio.run(store.list(KIND, Query(limit=2, after=bad)))


def test_a_limit_below_one_is_refused(store):
    with pytest.raises(ValueError, match="limit of a page is 0"):
        asyncio.run(store.list(KIND, Query(limit=0)))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_listing_sorts_or_walks_the_whole_table(database):
    plans = []
    shapes = itertools.product(SORTS, (True, False), ((), ("A",), ("A", "B")), (None, 5), (None, 5), ("", "x"))
    for sort_by, descending, statuses, created, modified, contains in shapes:
        query = Query(
            sort_by=sort_by,
            descending=descending,
            statuses=statuses,
            created_after_ms=created,
            modified_before_ms=modified,
            name_contains=contains,
        )
        listing = Listing(KIND, query)
        key = tuple("b" if column in ("name", "status") else 1 for column in listing._sort_key)
        forms = [
            (listing_module._EXAMINED,)
            if listing.filtered
            else (records_module._SUMMARY.columns, records_module._RECORD.columns)
        ]
        for after, columns in itertools.product((None, key), *forms):
            statement = listing._statement(after, columns)
            text = str(statement.compile(database._reader, compile_kwargs={"literal_binds": False}))
            arguments = [1] * text.count("?")
            plan = database.read(
                lambda c, text=text, arguments=arguments: c.exec_driver_sql(
                    f"EXPLAIN QUERY PLAN {text}", tuple(arguments)
                ).all()
            )
            plans.append(" ".join(row[3] for row in plan))
    assert all("TEMP B-TREE" not in plan and plan.startswith("SEARCH") for plan in plans)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_backup_of_records_reads_the_same(database, store, tmp_path, clock):
    asyncio.run(store.insert(record("digits", n=1)))
    copy = backup(database, tmp_path / "backups")
    shutil.copy(copy, tmp_path / "again.db")
    with SqliteDatabase.open(tmp_path / "again.db", metadata=metadata) as again:
        assert SqlRecordStore(again, clock=clock).get(KIND, "digits") == record("digits", n=1)


def test_listeners_hear_of_each_committed_change_also_if_its_caller_has_left(store):
    heard, begun, goes_on = [], threading.Event(), threading.Event()

    def slow(transaction):
        transaction.insert(record("slow"))
        begun.set()
        goes_on.wait(60)

    def failing(transaction):
        transaction.insert(record("failing"))
        raise ValueError("no")

    async def run():
        store.when_changed(lambda changed: heard.append(set(changed)))
        await store.insert(record("a"))
        await store.update(KIND, "a", lambda old: None)
        await store.update(KIND, "a", lambda old: replace(old, status="Completed"))
        with pytest.raises(ValueError, match="no"):
            await store.change(failing)
        await store.delete(KIND, "a")
        await asyncio.sleep(0)  # listeners hear of it after its caller
        assert heard == [{(KIND, "a")}] * 3
        change = asyncio.ensure_future(store.change(slow))
        await asyncio.to_thread(begun.wait, 60)
        change.cancel()
        with pytest.raises(asyncio.CancelledError):
            await change
        assert len(heard) == 3, "it is not committed yet"
        told = asyncio.Event()
        store.when_changed(lambda changed: told.set())
        goes_on.set()
        await asyncio.wait_for(told.wait(), 60)
        assert heard[3:] == [{(KIND, "slow")}]
        assert store.get(KIND, "slow") is not None

    asyncio.run(run())
