"""Rules of buckets: what is read, and to which bucket they belong."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tidemill.control.bucket_rules import BucketRules, DefaultEncryption
from tidemill.control.kms_keys import KmsKeys
from tidemill.core.clock import SystemClock
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore

POLICY = '{"Statement": {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::bkt/*"}}'


class Clock(SystemClock):
    ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Stage:
    def __init__(self, root: Path, database: SqliteDatabase) -> None:
        self.clock = Clock()
        self.database = database
        self.objects = ObjectStore(database, root / "objects", clock=self.clock)
        self.rules = self.restarted()
        asyncio.run(self.objects.ensure_bucket("bkt"))

    def restarted(self) -> BucketRules:
        """Return the rules as a restarted service finds them."""
        records = SqlRecordStore(self.database, clock=self.clock)
        keys = KmsKeys(records, region="us-west-2", clock=self.clock)
        return BucketRules(records, self.objects, keys, clock=self.clock)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        stage = Stage(tmp_path, database)
        yield stage
        asyncio.run(stage.objects.close())


def test_rules_that_did_not_change_cost_no_read_of_the_database(stage: Stage) -> None:
    def reads() -> int:
        with (
            patch.object(SqliteDatabase, "read", autospec=True, side_effect=SqliteDatabase.read) as read,
            patch.object(SqliteDatabase, "row", autospec=True, side_effect=SqliteDatabase.row) as row,
        ):
            stage.rules.policy_of("bkt")
            stage.rules.encryption_of("bkt")
        return read.call_count + row.call_count

    assert reads() > 0
    assert reads() == 0
    asyncio.run(stage.rules.set_policy("bkt", POLICY))
    assert stage.rules.policy_of("bkt") is not None
    assert reads() == 0
    asyncio.run(stage.rules.set_policy("bkt", ""))
    assert stage.rules.policy_of("bkt") is None


def test_rules_outlive_a_restart_but_not_their_bucket(stage: Stage) -> None:
    default = DefaultEncryption(algorithm="aws:kms", key="alias/team", bucket_key=True)
    asyncio.run(stage.rules.set_policy("bkt", POLICY))
    asyncio.run(stage.rules.set_encryption("bkt", default))
    again = stage.restarted()
    assert (again.policy_text("bkt"), again.encryption_of("bkt")) == (POLICY, default)
    # The service was killed between the removal of the bucket and that of its rules.
    asyncio.run(stage.objects.delete_bucket("bkt"))
    stage.clock.ms += 1
    asyncio.run(stage.objects.ensure_bucket("bkt"))
    again = stage.restarted()
    assert (again.policy_of("bkt"), again.encryption_of("bkt")) == (None, None)
