"""Temporary keys: they have the rights of their job, end with it, and are read from rows of earlier versions."""

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.credentials import Credentials, end_keys
from tidemill.control.jobs import TRAINING
from tidemill.control.server_keys import ServerKeys, ServerVariables
from tidemill.core.clock import SystemClock
from tidemill.core.job_scope import JobScope
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.base import Record
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.signing.credentials import Credential

JOB_ID = "0123456789abcdef0123456789abcdef"
KEY_ID = "ASIAAERUKZ4JVPG66AJD"
SCOPE = JobScope(name="digits", output_path="bkt/out", output="bkt/out/digits", model_dir="bkt/models/m")


def job(job_id: str = JOB_ID, name: str = "digits") -> TrainingJob:
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::000000000000:role/path/Limited",
        "OutputDataConfig": {"S3OutputPath": "s3://bkt/out"},
        "HyperParameters": {"model_dir": '"s3://bkt/models/m"'},
    }
    made = TrainingJob(name=name, arn="arn", job_id=job_id, request=request, created_ms=1, log_streams=("s",))
    return made.enter(SecondaryStatus.STARTING, at_ms=1, message="")


class SetClock:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Stage:
    def __init__(self, database: Database) -> None:
        self.records = SqlRecordStore(database, clock=SystemClock())
        self.user = Credential("AKIA", "s", unrestricted=True)
        self.clock = SetClock()
        self.credentials = Credentials(self.user, self.records, clock=self.clock)

    def store_earlier(self, *, session: str = "digits") -> None:
        """Store keys as versions before role policies did: without role and scope."""
        arn = f"arn:aws:sts::000000000000:assumed-role/Limited/{session}"
        document = {
            "access_key_id": KEY_ID,
            "secret_access_key": "secret",
            "session_token": "token",
            "expires_ms": 4_102_444_800_000,
            "arn": arn,
        }
        record = Record(kind="credential", name=KEY_ID, created_ms=1, modified_ms=1, document=document)
        asyncio.run(self.records.insert(record))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        yield Stage(database)


def test_keys_carry_the_role_and_the_scope_of_their_job(stage: Stage) -> None:
    keys = asyncio.run(stage.credentials.issue(job(), lifetime_s=60))
    found = stage.credentials.lookup(keys.access_key_id)
    assert found is not None
    assert keys.access_key_id == KEY_ID
    assert (found.role, found.scope, found.unrestricted) == ("Limited", SCOPE, False)
    assert found.arn == "arn:aws:sts::000000000000:assumed-role/Limited/digits"
    assert (found.secret_access_key, found.session_token) == (keys.secret_access_key, keys.session_token)


def test_a_launch_that_is_repeated_keeps_its_keys_and_the_next_attempt_gets_others(stage: Stage) -> None:
    first, again = (asyncio.run(stage.credentials.issue(job(), lifetime_s=60)) for _ in range(2))
    assert again == first
    later = asyncio.run(stage.credentials.issue(replace(job(), attempt=2), lifetime_s=60))
    assert later.access_key_id == first.access_key_id
    assert later.secret_access_key != first.secret_access_key
    found = stage.credentials.lookup(KEY_ID)
    assert found is not None
    assert found.session_token == later.session_token


def test_keys_of_a_server_are_renewed_when_half_of_their_time_is_over_or_all_of_it(stage: Stage) -> None:
    scope = JobScope.of_endpoint("digits")
    keys = asyncio.run(stage.credentials.issue_to_server(JOB_ID, role="Limited", scope=scope, lifetime_s=100))

    def left_s_after(passed_s: int) -> float:
        stage.clock.ms += passed_s * 1000
        asyncio.run(stage.credentials.renew(JOB_ID, lifetime_s=100))
        found = stage.credentials.lookup(KEY_ID)
        assert found is not None
        assert found.expires_ms is not None
        assert (found.secret_access_key, found.scope) == (keys.secret_access_key, scope)
        return (found.expires_ms - stage.clock.ms) / 1000

    assert [left_s_after(passed_s) for passed_s in (40, 9, 1, 1000)] == [60, 51, 100, 100]
    asyncio.run(stage.records.change(lambda transaction: end_keys(transaction, JOB_ID)))
    asyncio.run(stage.credentials.renew(JOB_ID, lifetime_s=100))
    assert stage.credentials.lookup(KEY_ID) is None


@pytest.mark.parametrize("name", ["digits", "a-1"])
def test_an_endpoint_has_another_session_than_the_training_job_of_its_name(stage: Stage, name: str) -> None:
    scope = JobScope.of_endpoint(name)
    asyncio.run(stage.credentials.issue_to_server(JOB_ID, role="Limited", scope=scope, lifetime_s=100))
    found = stage.credentials.lookup(KEY_ID)
    assert found is not None
    assert found.arn == f"arn:aws:sts::000000000000:assumed-role/Limited/endpoint.{name}"


def test_servers_without_a_role_or_with_keys_of_their_own_get_none(stage: Stage) -> None:
    keys = ServerKeys(stage.credentials, service_variables={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    scope, role = JobScope.of_endpoint("digits"), "arn:aws:iam::000000000000:role/R"

    def issued(model: dict[str, str], environment: dict[str, str]) -> ServerVariables:
        return asyncio.run(keys.issue(JOB_ID, model=model, environment=environment, scope=scope))

    without_role = issued({}, {})
    assert without_role.server == {}
    assert issued({"ExecutionRoleArn": role}, {"AWS_ACCESS_KEY_ID": "of the user"}) == without_role
    assert without_role.agent["AWS_ENDPOINT_URL"] == "http://127.0.0.1:1"
    assert without_role.agent["AWS_ACCESS_KEY_ID"] == KEY_ID
    found = issued({"ExecutionRoleArn": role}, {"MODE": "fast"})
    assert found.server == found.agent == without_role.agent


def test_ended_keys_are_unknown(stage: Stage) -> None:
    asyncio.run(stage.credentials.issue(job(), lifetime_s=60))
    asyncio.run(stage.records.change(lambda transaction: end_keys(transaction, JOB_ID)))
    assert stage.credentials.lookup(KEY_ID) is None


def test_keys_are_read_once_whatever_keys_other_jobs_get_and_anew_when_they_are_replaced_or_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = asyncio.run(stage.credentials.issue(job(), lifetime_s=60))
    assert stage.credentials.lookup(keys.access_key_id) is not None
    reads = []
    get = stage.records.get
    monkeypatch.setattr(stage.records, "get", lambda kind, name: reads.append(name) or get(kind, name))

    async def issue_to_others() -> None:
        for number in range(20):
            await stage.credentials.issue(job(f"{number:032x}", f"job-{number}"), lifetime_s=60)
            assert stage.credentials.lookup(KEY_ID) is not None

    asyncio.run(issue_to_others())
    assert len(reads) < 5, "the record of one key is hardly ever counted with that of another"
    again = asyncio.run(stage.credentials.issue(job(), lifetime_s=60))
    found = stage.credentials.lookup(KEY_ID)
    assert found is not None
    assert found.secret_access_key == again.secret_access_key
    asyncio.run(stage.records.change(lambda transaction: end_keys(transaction, JOB_ID)))
    assert stage.credentials.lookup(KEY_ID) is None


def test_keys_of_ended_jobs_are_not_kept_in_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.credentials._PRUNE_MIN", 4)
    stage.credentials = Credentials(stage.user, stage.records, clock=SystemClock())

    async def run_jobs() -> None:
        for number in range(50):
            one = job(f"{number:032x}", f"job-{number}")
            keys = await stage.credentials.issue(one, lifetime_s=60)
            assert stage.credentials.lookup(keys.access_key_id) is not None
            await stage.records.change(lambda transaction, one=one: end_keys(transaction, one.job_id))

    before = len([each for each in gc.get_objects() if isinstance(each, Credential)])
    asyncio.run(run_jobs())
    gc.collect()
    assert len([each for each in gc.get_objects() if isinstance(each, Credential)]) - before < 8


def test_the_users_own_keys_are_not_restricted(stage: Stage) -> None:
    assert stage.credentials.lookup("AKIA") is stage.user


def test_keys_of_an_earlier_version_get_what_their_job_would_get_today(stage: Stage) -> None:
    stage.store_earlier()
    asyncio.run(stage.records.insert(TRAINING.write(job())))
    found = stage.credentials.lookup(KEY_ID)
    assert found is not None
    assert (found.role, found.scope, found.unrestricted) == ("Limited", SCOPE, False)
    assert (found.secret_access_key, found.session_token) == ("secret", "token")


@pytest.mark.parametrize("present", [job(name="other"), job("ff" * 16), None], ids=["other name", "other id", "none"])
def test_keys_of_an_earlier_version_without_their_job_get_no_scope(stage: Stage, present: TrainingJob | None) -> None:
    stage.store_earlier()
    if present is not None:
        asyncio.run(stage.records.insert(TRAINING.write(present)))
    found = stage.credentials.lookup(KEY_ID)
    assert found is not None
    assert (found.scope, found.unrestricted) == (None, False)
