"""What was denied to the keys of a job: kept once for each place, across restarts, until the job ends."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tidemill.control.credentials import Credentials
from tidemill.control.denials import Denials, end_rights, with_denials
from tidemill.core.clock import SystemClock
from tidemill.core.job_scope import JobScope
from tidemill.core.policy import Permission
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.signing.credentials import Credential

JOB_ID = "0123456789abcdef0123456789abcdef"


class Stage:
    """A job with keys, and the denials of the service."""

    def __init__(self, database: SqliteDatabase) -> None:
        self.database = database
        self.records = records = SqlRecordStore(database, clock=SystemClock())
        self.denials = Denials(records, clock=SystemClock())
        credentials = Credentials(Credential("AKIA", "s"), records, clock=SystemClock())
        request = {"TrainingJobName": "digits", "RoleArn": "arn:aws:iam::000000000000:role/R"}
        job = TrainingJob(name="digits", arn="", job_id=JOB_ID, request=request, created_ms=1, log_streams=("s",))
        job = job.enter(SecondaryStatus.STARTING, at_ms=1, message="")
        keys = asyncio.run(credentials.issue(job, lifetime_s=60))
        found = credentials.lookup(keys.access_key_id)
        assert found is not None
        self.key = found

    def note(self, *keys: str, action: str = "s3:PutObject") -> None:
        denied = [Permission(action, f"arn:aws:s3:::b/{key}") for key in keys]
        asyncio.run(self.denials.note(self.key, denied))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        yield Stage(database)


def test_denials_of_an_action_below_one_prefix_count_once_even_after_a_restart(stage: Stage) -> None:
    stage.note("logs/a", "logs/b", "model/c")
    stage.note("logs/d")
    stage.denials = Denials(stage.records, clock=SystemClock())
    stage.note("logs/e")
    stage.note("logs/e", action="s3:DeleteObject")
    assert stage.denials.of(JOB_ID) == [
        "s3:PutObject on arn:aws:s3:::b/logs/a (role 'R')",
        "s3:PutObject on arn:aws:s3:::b/model/c (role 'R')",
        "s3:DeleteObject on arn:aws:s3:::b/logs/e (role 'R')",
    ]


def test_their_number_and_length_are_limited(stage: Stage) -> None:
    stage.note(*(f"{number}/{'x' * 900}" for number in range(1000)))
    stage.note("more/x")
    found = stage.denials.of(JOB_ID)
    assert len(found) == 20
    assert max(map(len, found)) < 400


def test_they_end_with_the_job(stage: Stage) -> None:
    stage.note("a/x")
    asyncio.run(stage.records.change(lambda transaction: end_rights(transaction, JOB_ID)))
    assert stage.denials.of(JOB_ID) == []
    stage.note("b/x")  # by a request that began before the end of the job
    assert stage.denials.of(JOB_ID) == []


def test_a_damaged_record_keeps_no_job_from_its_end_and_is_replaced(stage: Stage) -> None:
    stage.note("a/x")
    damage = text("UPDATE records SET document = '{}' WHERE kind = 'denials'")
    stage.database.write_sync(lambda connection: connection.execute(damage))
    assert stage.denials.of(JOB_ID) == []
    stage.note("b/x")
    assert stage.denials.of(JOB_ID) == ["s3:PutObject on arn:aws:s3:::b/b/x (role 'R')"]


def test_keys_of_endpoints_have_no_job_whose_log_could_name_them(stage: Stage) -> None:
    key = Credential(stage.key.access_key_id, "s", role="R", scope=JobScope.of_endpoint("digits"))
    asyncio.run(stage.denials.note(key, [Permission("s3:PutObject", "arn:aws:s3:::b/k")]))
    assert stage.denials.of(JOB_ID) == []


def test_a_reason_is_cut_and_what_was_denied_is_not() -> None:
    denied = [f"s3:PutObject on arn:aws:s3:::b/{number} (role 'R')" for number in range(5)]
    reason = with_denials("x" * 2000, denied, most=1024)
    assert len(reason) == 1024
    assert reason.endswith(f"xx...\nAccessDenied for the keys of this job: {'; '.join(denied[:3])} and 2 more")
    assert with_denials("failed", [], most=4) == "fail"
    assert with_denials("", denied, most=1024) == ""
