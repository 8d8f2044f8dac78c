"""The outbox of webhooks and its deliveries, without a network."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tidemill.control.webhooks.deliveries import Deliveries
from tidemill.control.webhooks.outbox import NOTICE, Notice, Outbox
from tidemill.control.webhooks.posting import NotDelivered
from tidemill.core.webhooks import DELIVERY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Webhook, check_webhook_names
from tidemill.errors import ServiceUnavailable
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.base import Query, Record, Transaction
from tidemill.store.records.store import SqlRecordStore

SECRET = "0123456789abcdef"


class Clock:
    now = 1_700_000_000_000
    ahead_ms = 0

    def now_ms(self) -> int:
        return self.now + self.ahead_ms

    def monotonic_s(self) -> float:
        return self.now / 1000


@dataclass
class Receiver:
    """A receiver that refuses what its function names, and keeps what it accepts."""

    refuses: Any = lambda event: False
    got: list[tuple[str, Mapping[str, Any], Mapping[str, str]]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        event = json.loads(body)
        timestamp = headers[TIMESTAMP_HEADER]
        expected = hmac.new(SECRET.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
        assert headers[SIGNATURE_HEADER] == f"sha256={expected}"
        self.attempts.append(headers[DELIVERY_HEADER])
        refusal = self.refuses(event)
        if refusal == "dead":
            raise NotDelivered("connection refused")
        if refusal:
            return 503
        self.got.append((url, event, headers))
        return 204

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(event["name"], event["status"]) for _, event, _ in self.got]


class Rig:
    def __init__(self, database: SqliteDatabase, **webhooks: Webhook) -> None:
        self.clock, self.receiver, self.outbox = Clock(), Receiver(), Outbox(webhooks)
        self.records = SqlRecordStore(database, clock=self.clock, also=self.outbox.note if webhooks else None)
        self.deliveries = Deliveries(
            self.records,
            webhooks,
            self.outbox,
            self.event,
            clock=self.clock,
            post=self.receiver.post,
            pause_s=lambda tries: 0.001,
        )

    @staticmethod
    def event(notice: Notice, record: Record, previous: str) -> Mapping[str, Any]:
        return {"id": notice.key, "name": record.name, "status": record.status, "previous": previous}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.records.when_changed(self.deliveries.note)
        await self.deliveries.start()
        try:
            yield
        finally:
            await self.deliveries.close()

    async def insert(self, name: str, status: str = "InProgress", kind: str = "training-job") -> None:
        await self.records.insert(
            Record(
                kind=kind,
                name=name,
                status=status,
                created_ms=1,
                modified_ms=self.clock.now,
                summary={"secondary_status": "Starting"},
                document={},
            )
        )

    async def change(self, name: str, status: str, secondary: str = "Starting") -> None:
        def changed(record: Record) -> Record:
            return replace(record, status=status, summary={"secondary_status": secondary})

        await self.records.update("training-job", name, changed)

    async def pending(self) -> list[str]:
        return [each.name for each in (await self.records.summaries(NOTICE, Query(sort_by="name", limit=500))).records]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.002)


@pytest.fixture
def database(tmp_path: Path):
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        yield database


def webhook(**members: Any) -> Webhook:
    return Webhook(url="https://receiver.example/hook", secret=SecretStr(SECRET), **members)


def test_each_change_of_a_state_arrives_once_and_others_do_not(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook(), failures=webhook(events=("*:Failed",)))
        async with rig.running():
            await rig.insert("a")
            await rig.change("a", "InProgress", "Training")
            await rig.change("a", "InProgress", "Training")  # the document changes, the state does not
            await rig.change("a", "Failed", "Failed")
            await rig.insert("m", kind="model")
            await rig.until(lambda: len(rig.receiver.got) == 4)
            assert rig.receiver.changes.count(("a", "Failed")) == 2
            assert sorted(rig.receiver.changes) == [("a", "Failed")] * 2 + [("a", "InProgress")] * 2
            await rig.until(lambda: not rig.deliveries._tasks)
            assert await rig.pending() == []

    asyncio.run(run())


def test_a_change_that_is_not_committed_is_not_sent(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook())

        def work(transaction: Transaction) -> None:
            transaction.update("training-job", "a", lambda record: replace(record, status="Failed"))
            raise ValueError("refused")

        await rig.insert("a")
        with pytest.raises(ValueError, match="refused"):
            await rig.records.change(work)
        assert len(await rig.pending()) == 1

    asyncio.run(run())


def test_changes_of_a_resource_arrive_in_order_while_a_failing_one_holds_up_no_other(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook())
        stuck = True
        rig.receiver.refuses = lambda event: "dead" if stuck and event["name"] == "a" else False
        async with rig.running():
            for name in ("a", "b"):
                await rig.insert(name)
                for status in ("Stopping", "Stopped"):
                    await rig.change(name, status)
            await rig.until(lambda: len(rig.receiver.changes) == 3 and len(rig.receiver.attempts) > 10)
            assert rig.receiver.changes == [("b", "InProgress"), ("b", "Stopping"), ("b", "Stopped")]
            await rig.until(lambda: rig.deliveries.states["all"].pending == 3)
            await rig.until(lambda: rig.deliveries.states["all"].failure == "connection refused")
            stuck = False
            await rig.until(lambda: len(rig.receiver.changes) == 6)
            assert rig.receiver.changes[3:] == [("a", "InProgress"), ("a", "Stopping"), ("a", "Stopped")]
        # Every attempt of a change had the same id.
        assert len(set(rig.receiver.attempts)) == 6

    asyncio.run(run())


def test_what_was_not_accepted_is_delivered_by_the_next_service_in_order_by_the_same_ids(
    database: SqliteDatabase,
) -> None:
    async def run() -> None:
        first = Rig(database, all=webhook(), gone=webhook())
        first.receiver.refuses = lambda event: True
        async with first.running():
            await first.insert("a")
            await first.change("a", "Stopped")
            await first.until(lambda: len(set(first.receiver.attempts)) == 2)
        second = Rig(database, all=webhook())
        async with second.running():
            await second.change("a", "Completed")  # an earlier change must arrive first
            await second.until(lambda: len(second.receiver.got) == 3)
            assert second.receiver.changes == [("a", "InProgress"), ("a", "Stopped"), ("a", "Completed")]
            await second.until(lambda: not second.deliveries._tasks)
        assert {each for each in first.receiver.attempts if each.startswith("all/")} <= set(second.receiver.attempts)
        assert await second.pending() == []  # those of the webhook that is gone were removed

    asyncio.run(run())


def test_a_notice_is_dropped_when_it_is_too_old(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook(retry_s=60))
        rig.receiver.refuses = lambda event: event["status"] == "InProgress"
        async with rig.running():
            await rig.insert("a")
            await rig.change("a", "Stopped")
            await rig.until(lambda: len(rig.receiver.attempts) > 3)
            assert rig.receiver.got == []
            rig.clock.now += 61_000
            await rig.until(lambda: rig.receiver.changes == [("a", "Stopped")])
            assert rig.deliveries.states["all"].results["dropped"] == 1

    asyncio.run(run())


def test_a_notice_that_is_heard_of_late_is_delivered_by_the_same_service(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook())
        rig.receiver.refuses = lambda event: "dead" if event["status"] in dead else False
        dead = ["Stopping"]
        await rig.insert("a")
        await rig.change("a", "Stopping")
        late, first = sorted(await rig.pending())
        rig.deliveries.note([(NOTICE, first)])
        await rig.until(lambda: rig.receiver.attempts)
        rig.deliveries.note([(NOTICE, late)])  # the request that made the change was cancelled
        dead.clear()
        await rig.until(lambda: not rig.deliveries._tasks)
        assert sorted(rig.receiver.changes) == [("a", "InProgress"), ("a", "Stopping")]
        assert await rig.pending() == []

    asyncio.run(run())


def test_a_store_that_fails_for_a_moment_holds_up_no_later_notice(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook())
        monkeypatch.setattr("tidemill.control.webhooks.deliveries._STORE_PAUSE_S", 0.001)
        get, failures = rig.records.get, [ServiceUnavailable("the database cannot be read"), OSError(5, "I/O error")]

        def failing(kind: str, name: str) -> Record | None:
            if failures:
                raise failures.pop()
            return get(kind, name)

        async with rig.running():
            monkeypatch.setattr(rig.records, "get", failing)
            await rig.insert("a")
            await rig.change("a", "Stopped")
            await rig.until(lambda: len(rig.receiver.got) == 2)
            assert rig.receiver.changes == [("a", "InProgress"), ("a", "Stopped")]

    asyncio.run(run())


def test_a_damaged_notice_is_dropped_and_holds_up_no_later_one(database: SqliteDatabase) -> None:
    async def run() -> None:
        first = Rig(database, all=webhook())
        await first.insert("a")
        damaged = records.update().where(records.c.kind == NOTICE).values(document="{}")
        await database.write(lambda connection: connection.execute(damaged))
        second = Rig(database, all=webhook())
        async with second.running():
            await second.change("a", "Stopped")
            await second.until(lambda: second.receiver.changes == [("a", "Stopped")])
            assert second.deliveries.states["all"].results["dropped"] == 1
            await second.until(lambda: not second.deliveries._tasks)
            assert await second.pending() == []

    asyncio.run(run())


def test_a_change_whose_commit_was_not_confirmed_is_delivered_by_the_same_service(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(name: str) -> None:
        if name == "store.commit.after":
            raise OSError(5, "Input/output error")

    async def run() -> None:
        rig = Rig(database, all=webhook())
        async with rig.running():
            with monkeypatch.context() as context, pytest.raises(ServiceUnavailable):
                context.setattr("tidemill.core.faults.point", lost)
                await rig.insert("a")
            await rig.until(lambda: rig.receiver.changes == [("a", "InProgress")])

    asyncio.run(run())


def test_a_listener_that_fails_fails_neither_the_change_nor_what_others_hear(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig, heard = Rig(database), []

        def failing(changed: Any) -> None:
            raise RuntimeError("a defect")

        rig.records.when_changed(failing)
        rig.records.when_changed(heard.extend)
        await rig.insert("a")
        await rig.until(lambda: heard == [("training-job", "a")])

    asyncio.run(run())


def test_a_receiver_that_does_not_answer_leaves_no_more_than_the_most_pending_notices(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook())
        monkeypatch.setattr("tidemill.control.webhooks.deliveries.PENDING_MAX", 5)
        monkeypatch.setattr(rig.deliveries, "_pause_s", lambda tries: 3600)
        rig.receiver.refuses = lambda event: "dead"
        for number in range(100):
            await rig.insert(f"job-{number}")
        async with rig.running():
            await rig.until(lambda: rig.deliveries.states["all"].pending == len(rig.deliveries._tasks) == 5)
            assert len(await rig.pending()) == 5
            assert rig.deliveries.states["all"].results["dropped"] == 95
            assert len(rig.receiver.attempts) < 20

    asyncio.run(run())


def test_a_clock_that_jumps_ahead_drops_no_notice_at_once(database: SqliteDatabase) -> None:
    async def run() -> None:
        rig = Rig(database, all=webhook())
        rig.receiver.refuses = lambda event: len(rig.receiver.attempts) < 10
        async with rig.running():
            await rig.insert("a")
            rig.clock.ahead_ms = 400 * 86_400_000
            await rig.until(lambda: rig.receiver.changes == [("a", "InProgress")])
            assert rig.deliveries.states["all"].results["dropped"] == 0

    asyncio.run(run())


def test_a_clock_that_was_set_back_does_not_change_the_order(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        first = Rig(database, all=webhook())
        await first.insert("a")
        monkeypatch.setattr("time.time_ns", lambda: 1_000_000)
        second = Rig(database, all=webhook())
        async with second.running():
            await second.change("a", "Stopped")
            await second.until(lambda: len(second.receiver.got) == 2)
        assert second.receiver.changes == [("a", "InProgress"), ("a", "Stopped")]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"url": "ftp://host/"}, "'ftp://host/'"),
        ({"url": "https:///path"}, "'https:///path'"),
        ({"url": "https://user:secret@host/"}, "'host/'"),
        ({"url": "https://host/a b"}, "percent-encoded"),
        ({"url": "https://host/\r\nx: y"}, "percent-encoded"),
        ({"secret": SecretStr("short")}, "5 characters"),
        ({"events": ("Failed",)}, "'Failed'"),
        ({"events": ("jobs:Failed",)}, "'jobs:Failed'"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused(members: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        Webhook(**{"url": "https://host/", "secret": SecretStr(SECRET), **members})
    assert "user:secret" not in str(caught.value)
    assert SECRET not in repr(webhook())
    with pytest.raises(ValueError, match="'a/b'"):
        check_webhook_names({"a/b": webhook()})
