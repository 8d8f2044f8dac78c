"""Sessions of browsers: how they begin, how long they live, and how many there are."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill.control.page_sessions import IDLE_S, SESSION_S, SESSIONS_MAX, TOKEN_S, PageSessions
from tidemill.core.clock import SystemClock
from tidemill.core.job_scope import JobScope
from tidemill.core.policy import Permission, Ruling
from tidemill.core.read_only import READ_ONLY
from tidemill.errors import AwsError
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.base import Query
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.signing.credentials import Credential

OWNER, JOB = "AKIAOWNER", "ASIAJOB"


class SetClock:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Keys:
    """The keys as which sessions act."""

    def __init__(self) -> None:
        scope = JobScope(name="j", output_path="b/o", output="b/o/j", model_dir="b/m")
        self.known = {OWNER: Credential(OWNER, "s", unrestricted=True), JOB: Credential(JOB, "s", "t", scope=scope)}

    def lookup(self, access_key_id: str) -> Credential | None:
        return self.known.get(access_key_id)


class Stage:
    def __init__(self, database: Database) -> None:
        self.records = SqlRecordStore(database, clock=SystemClock())
        self.clock, self.keys = SetClock(), Keys()
        self.sessions = PageSessions(self.records, self.keys, clock=self.clock)

    def begin(self) -> tuple[str, str]:
        token, _ = asyncio.run(self.sessions.create_token(OWNER, read_only=False))
        started = asyncio.run(self.sessions.start(token, over_tls=False))
        assert started is not None
        return started.cookie, started.secret

    def key_of(self, session: tuple[str, str]) -> Credential | None:
        return asyncio.run(self.sessions.credential(*session, over_tls=False))

    def stored(self, kind: str) -> int:
        return len(asyncio.run(self.records.summaries(kind, Query(limit=1000))).records)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        yield Stage(database)


def test_a_session_ends_when_it_was_not_used_and_a_week_after_its_begin(stage: Stage) -> None:
    idle, used = stage.begin(), stage.begin()
    begun_ms = stage.clock.ms
    while stage.clock.ms < begun_ms + (SESSION_S - IDLE_S // 2) * 1000:
        stage.clock.ms += IDLE_S * 500
        assert stage.key_of(used) is not None
    assert stage.key_of(idle) is None
    stage.clock.ms = begun_ms + SESSION_S * 1000
    assert stage.key_of(used) is None


def test_a_token_is_for_five_minutes_and_for_one_session(stage: Stage) -> None:
    late, _ = asyncio.run(stage.sessions.create_token(OWNER, read_only=False))
    stage.clock.ms += TOKEN_S * 1000
    assert asyncio.run(stage.sessions.start(late, over_tls=False)) is None
    token, expires_ms = asyncio.run(stage.sessions.create_token(OWNER, read_only=False))
    assert expires_ms == stage.clock.ms + TOKEN_S * 1000
    assert asyncio.run(stage.sessions.start(f"{token}x", over_tls=False)) is None
    assert asyncio.run(stage.sessions.start(token, over_tls=False)) is not None
    assert asyncio.run(stage.sessions.start(token, over_tls=False)) is None


def test_the_number_of_sessions_and_tokens_of_a_key_is_bounded(stage: Stage) -> None:
    first = stage.begin()
    for _ in range(SESSIONS_MAX + 3):
        stage.clock.ms += 1000
        last = stage.begin()
        asyncio.run(stage.sessions.create_token(OWNER, read_only=False))
    assert (stage.stored("page-session"), stage.stored("page-token")) == (SESSIONS_MAX, SESSIONS_MAX)
    assert stage.key_of(first) is None
    assert stage.key_of(last) is not None
    stage.clock.ms += (SESSION_S + 1) * 1000
    stage.begin()
    assert (stage.stored("page-session"), stage.stored("page-token")) == (1, 0), "what expired is removed"


def test_a_session_survives_a_restart_only_if_tls_shows_who_answers(stage: Stage) -> None:
    begun: dict[bool, tuple[str, str]] = {}
    for over_tls in (False, True):
        token, _ = asyncio.run(stage.sessions.create_token(OWNER, read_only=False))
        started = asyncio.run(stage.sessions.start(token, over_tls=over_tls))
        assert started is not None
        begun[over_tls] = started.cookie, started.secret
    restarted = PageSessions(stage.records, stage.keys, clock=stage.clock)

    def key_of(sessions: PageSessions, session: tuple[str, str], *, over_tls: bool) -> bool:
        return asyncio.run(sessions.credential(*session, over_tls=over_tls)) is not None

    assert [key_of(stage.sessions, begun[each], over_tls=each) for each in (False, True)] == [True, True]
    assert [key_of(stage.sessions, begun[each], over_tls=not each) for each in (False, True)] == [False, False]
    assert [key_of(restarted, begun[each], over_tls=each) for each in (False, True)] == [False, True]


def test_all_sessions_and_tokens_of_a_key_end_together(stage: Stage) -> None:
    sessions = [stage.begin(), stage.begin()]
    token, _ = asyncio.run(stage.sessions.create_token(OWNER, read_only=False))
    assert asyncio.run(stage.sessions.end_all("AKIAOTHER")) == 0
    assert [stage.key_of(each) is not None for each in sessions] == [True, True]
    assert asyncio.run(stage.sessions.end_all(OWNER)) == 2
    assert [stage.key_of(each) for each in sessions] == [None, None]
    assert asyncio.run(stage.sessions.start(token, over_tls=False)) is None


def test_a_session_ends_with_its_key(stage: Stage) -> None:
    session = stage.begin()
    stage.keys.known[OWNER] = Credential(OWNER, "s", "t", expires_ms=stage.clock.ms + 1, unrestricted=True)
    assert stage.key_of(session) is not None
    stage.clock.ms += 1
    assert stage.key_of(session) is None
    del stage.keys.known[OWNER]
    assert stage.key_of(session) is None


def test_the_key_of_a_job_opens_no_session(stage: Stage) -> None:
    with pytest.raises(AwsError, match="the key of a job or an endpoint opens none"):
        asyncio.run(stage.sessions.create_token(JOB, read_only=True))


def test_a_read_only_session_is_limited_by_a_policy(stage: Stage) -> None:
    token, _ = asyncio.run(stage.sessions.create_token(OWNER, read_only=True))
    started = asyncio.run(stage.sessions.start(token, over_tls=False))
    assert started is not None
    for credential in (started.credential, stage.key_of((started.cookie, started.secret))):
        assert credential is not None
        (limit,) = credential.limits
        assert limit.policy is READ_ONLY
        assert limit.alone, "no policy of a bucket adds to it"


def test_the_policy_of_read_only_sessions_has_no_verb_that_changes_something() -> None:
    from tidemill.core.policy_document import ACTIONS

    reads = ("Batch", "Describe", "Filter", "Get", "List", "Query", "Read", "Search", "Wait")
    queries = ("logs:StartQuery", "logs:StopQuery")
    allowed = {
        action
        for action in ACTIONS
        if READ_ONLY.rule(Permission(action, "arn:aws:s3:::b/k"), {}) is Ruling.ALLOWED and action not in queries
    }
    assert {action.partition(":")[2] for action in allowed if not action.partition(":")[2].startswith(reads)} == set()
    assert {"sagemaker:DescribeTrainingJob", "s3:GetObject", "sagemaker:Search", "logs:FilterLogEvents"} <= allowed
    assert not {action for action in allowed if action.startswith(("iam:", "sts:", "kms:"))}
    assert "sagemaker:BatchPutMetrics" not in allowed


def test_a_session_that_an_earlier_version_stored_without_its_process_is_over(stage: Stage) -> None:
    cookie, secret = stage.begin()
    [session] = asyncio.run(stage.records.list("page-session", Query())).records
    document = {name: value for name, value in session.document.items() if name != "run"}
    asyncio.run(stage.records.update("page-session", session.name, lambda record: replace(record, document=document)))
    assert asyncio.run(stage.sessions.credential(cookie, secret, over_tls=False)) is None
