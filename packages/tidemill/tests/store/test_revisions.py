"""Revisions: databases of older releases are migrated with their data, those of newer releases refused."""

import asyncio
import contextlib
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select

from tidemill.control.jobs import TRAINING, TRANSFORM
from tidemill.control.resources import ENDPOINT_CONFIG, MODEL, endpoint_record, resource_record
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Endpoint, Resource
from tidemill.core.training import JobStatus, SecondaryStatus, TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.errors import ConfigurationError, StateCorrupt
from tidemill.store.database import revisions
from tidemill.store.database.base import stored_secret
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects import index as object_index
from tidemill.store.objects import upload_index
from tidemill.store.objects.schema import parts
from tidemill.store.records.base import Query, Record
from tidemill.store.records.store import SqlRecordStore, _to_row

VERSION_1 = Path(__file__).with_name("schema_version_1.sql")
RESOURCES = (MODEL, ENDPOINT_CONFIG)
MIGRATIONS = Path(revisions.__file__).with_name("migrations")

NEXT = '''
"""Another revision."""

from alembic import op
from sqlalchemy import Column, Text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("buckets", Column("region", Text))
'''


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """Return a database file written by the release before alembic."""
    path = tmp_path / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.executescript(VERSION_1.read_text())
    return path


@pytest.fixture
def later_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add revision 0005 to this release, and return the revision's file."""
    folder = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, folder)
    file = folder / "versions" / "r0005_next.py"
    file.write_text(NEXT)
    monkeypatch.setattr(revisions, "MIGRATIONS", str(folder))
    monkeypatch.setattr(revisions, "HEAD", "0005")
    return file


def run_sql(path: Path, statement: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as raw, raw:
        return raw.execute(statement).fetchall()


def layout(path: Path) -> dict[str, str]:
    """Return the definition of every table and index in a canonical spelling: added columns follow the constraints."""
    found = run_sql(path, "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {str(name): ", ".join(sorted(_parts(str(sql)))) for name, sql in found}


def _parts(definition: str) -> list[str]:
    """Split a definition at the commas between columns and constraints."""
    head, _, inside = " ".join(definition.split()).partition("(")
    inside, _, tail = inside.rpartition(")")
    parts = re.split(r",(?![^(]*\))", inside)
    return [f"{head.strip()} {tail.strip()}", *(part.strip() for part in parts)]


def revision_of(path: Path) -> list[tuple[object, ...]]:
    return run_sql(path, "SELECT version_num FROM alembic_version")


def opened(path: Path) -> SqliteDatabase:
    return SqliteDatabase.open(path, metadata=metadata)


def test_a_database_of_the_release_before_alembic_is_taken_over_with_its_data(version_1):
    for _ in range(2):
        with opened(version_1) as database:
            stored = SqlRecordStore(database, clock=SystemClock()).get("model", "digits")
            assert stored is not None
            assert stored.document == {"ModelName": "digits", "text": "\u00fc"}
            assert stored_secret(database, "page-tokens") == "5ec4e7" * 10 + "5ec4"
            assert database.read(object_index.buckets_by_name) == [("data", 1_700_000_000_000)]
            info = database.read(lambda c: object_index.get_object(c, "data", "train/\u00e4.csv"))
            assert info is not None
            assert info.metadata == {"by": "\u00fc"}
            upload = database.read(lambda c: upload_index.require_upload(c, "data", "big", "u1"))
            assert upload.initiated_ms == 1_700_000_000_000
            (part,) = database.read(lambda c: upload_index.list_parts(c, "u1"))
            assert part.content_id == "1" * 32
        assert revision_of(version_1) == [(revisions.HEAD,)]


def test_a_migrated_database_is_laid_out_as_a_new_one(version_1, tmp_path):
    new = tmp_path / "new.db"
    opened(new).close()
    opened(version_1).close()
    assert layout(version_1) == layout(new)
    mark = "SELECT key, value FROM meta WHERE key = 'schema_version'"
    assert run_sql(version_1, mark) == run_sql(new, mark) == [("schema_version", "2")]
    assert revision_of(version_1) == revision_of(new)


def test_migrations_alone_lay_out_an_empty_database_as_a_new_one(tmp_path):
    new, migrated = tmp_path / "new.db", tmp_path / "migrated.db"
    opened(new).close()
    run_sql(migrated, "CREATE TABLE meta (key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (key))")
    run_sql(migrated, "INSERT INTO meta VALUES ('schema_version', '1')")
    opened(migrated).close()
    assert {**layout(migrated), "meta": ""} == {**layout(new), "meta": ""}


def test_a_table_that_was_added_without_a_new_version_is_created(version_1):
    run_sql(version_1, "DROP TABLE parts")
    with opened(version_1) as database:
        assert database.read(lambda c: c.execute(select(parts)).all()) == []
        assert database.read(object_index.buckets_by_name)


def test_an_older_revision_is_migrated_and_keeps_its_rows(tmp_path, version_1, later_release, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(revisions, "HEAD", "0004")
        opened(tmp_path / "new.db").close()
    run_sql(tmp_path / "new.db", "INSERT INTO buckets VALUES ('data', 1700000000000)")
    for path in (tmp_path / "new.db", version_1):
        opened(path).close()
        assert run_sql(path, "SELECT name, created_ms, region FROM buckets") == [("data", 1700000000000, None)]
        assert revision_of(path) == [("0005",)]


def test_records_of_a_release_without_summaries_get_those_that_this_release_writes(tmp_path):
    job = TrainingJob(name="a", arn="arn:a", job_id="0a", request={}, created_ms=5, log_streams=("a/algo-1",))
    ended = job.enter(SecondaryStatus.STARTING, at_ms=6, message="").enter(SecondaryStatus.FAILED, at_ms=7, message="")
    transform = TransformJob(name="t", arn="arn:t", job_id="0b", request={}, model={}, created_ms=5, log_streams=())
    failed = transform.decide(JobStatus.FAILED, failure_reason="no memory").end(at_ms=9)
    stored = [
        TRAINING.write(job.enter(SecondaryStatus.STARTING, at_ms=6, message="")),
        TRAINING.write(replace(ended, name="b", arn="arn:b")),
        TRANSFORM.write(transform),
        TRANSFORM.write(replace(failed, name="u", arn="arn:u")),
        *(resource_record(kind, Resource(name="m", arn=f"arn:{kind}", request={}, created_ms=5)) for kind in RESOURCES),
        endpoint_record(Endpoint(name="e", arn="arn:e", endpoint_id="0e", created_ms=5)),
        *(Record(kind="tags", name=f"{n:04}", created_ms=5, modified_ms=5, document={"n": "1"}) for n in range(1500)),
    ]
    damaged = Record(kind=MODEL, name="damaged", created_ms=5, modified_ms=5, document={"arn": "arn:damaged"})
    path = tmp_path / "state.db"
    with opened(path) as database:
        rows = [_to_row(each) for each in (*stored, damaged)]
        database.write_sync(lambda connection: connection.execute(insert(records), rows) and None)
    for statement in (
        "ALTER TABLE records DROP COLUMN summary",
        "ALTER TABLE records DROP COLUMN summary_checksum",
        """UPDATE records SET document = '{"arn":"arn:forged"}' WHERE name = 'damaged'""",
        "UPDATE alembic_version SET version_num = '0003'",
    ):
        run_sql(path, statement)
    with opened(path) as database:
        store = SqlRecordStore(database, clock=SystemClock())
        for each in stored:
            found = store.get(each.kind, each.name)
            assert found is not None
            assert _to_row(found) == _to_row(each)
        with pytest.raises(StateCorrupt, match="model 'damaged' fails its checksum"):
            store.get(MODEL, "damaged")
        page = asyncio.run(store.summaries(MODEL, Query()))
        assert [each.name for each in page.records if each.is_damaged] == ["damaged"]
    assert revision_of(path) == [(revisions.HEAD,)]


def test_a_migration_that_fails_leaves_the_database_as_it_was(version_1, later_release):
    later_release.write_text(NEXT + '    op.add_column("missing", Column("region", Text))\n')
    before = layout(version_1)
    with pytest.raises(ConfigurationError, match=r"cannot open the database .* missing"):
        opened(version_1)
    assert layout(version_1) == before
    assert run_sql(version_1, "SELECT value FROM meta WHERE key = 'schema_version'") == [("1",)]
    later_release.write_text(NEXT)
    opened(version_1).close()
    assert revision_of(version_1) == [("0005",)]


def test_a_database_of_a_newer_release_is_refused(tmp_path, version_1):
    opened(tmp_path / "new.db").close()
    run_sql(tmp_path / "new.db", "UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(ConfigurationError, match=f"revision 0099; this release knows revisions up to {revisions.HEAD}"):
        opened(tmp_path / "new.db")
    run_sql(version_1, "UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(ConfigurationError, match=r"version 99; this release .*TIDEMILL_STATE_DIR"):
        opened(version_1)
    assert revision_of(tmp_path / "new.db") == [("0099",)]
    assert "alembic_version" not in layout(version_1)


def test_the_newest_revision_is_the_one_that_new_databases_get():
    config = Config()
    config.set_main_option("script_location", revisions.MIGRATIONS)
    assert ScriptDirectory.from_config(config).get_heads() == [revisions.HEAD]


def test_new_and_current_databases_open_without_alembic(tmp_path):
    program = """
import sys
from dataclasses import replace
from pathlib import Path
import tidemill.store.objects.schema
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.database import SqliteDatabase
for _ in range(2):
    SqliteDatabase.open(Path(sys.argv[1]) / "new.db", metadata=metadata).close()
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("alembic", "mako")))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
