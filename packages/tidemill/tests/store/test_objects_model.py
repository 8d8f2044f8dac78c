"""Put, copy, delete and list in any order, compared with a plain dictionary."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidemill.core.clock import SystemClock
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.index import ObjectAttributes
from tidemill.store.objects.store import ObjectStore

BUCKET = "bucket"
KEYS = st.one_of(
    st.text(alphabet="ab/", min_size=1, max_size=4),
    st.sampled_from(["ü/漢字", "😀", "a+b c", "%25", "../x", "\U0010ffff/a"]),
)


class StoreAgainstDict(RuleBasedStateMachine):
    """The store must show the same as a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.root = Path(self.directory.name)
        self.runner = asyncio.Runner()
        self.model: dict[str, bytes] = {}
        self.open()
        self.runner.run(self.store.ensure_bucket(BUCKET))

    def open(self) -> None:
        self.database = SqliteDatabase.open(self.root / "tidemill.db", metadata=metadata)
        self.store = ObjectStore(self.database, self.root / "objects", clock=SystemClock(), grace_s=0)

    def close(self) -> None:
        self.runner.run(self.store.close())
        self.database.close()

    @rule(key=KEYS, data=st.binary(max_size=20))
    def put(self, key: str, data: bytes) -> None:
        self.runner.run(self.store.put_bytes(BUCKET, key, data))
        self.model[key] = data

    @rule(source=KEYS, key=KEYS)
    def copy(self, source: str, key: str) -> None:
        info = self.store.head(BUCKET, source)
        assert (info is not None) == (source in self.model)
        if info is not None:
            self.runner.run(self.store.copy(info, BUCKET, key, attributes=ObjectAttributes()))
            self.model[key] = self.model[source]

    @rule(keys=st.lists(KEYS, max_size=3))
    def delete(self, keys: list[str]) -> None:
        self.runner.run(self.store.delete(BUCKET, keys))
        for key in keys:
            self.model.pop(key, None)

    @rule()
    def restart(self) -> None:
        self.close()
        self.open()
        swept = self.runner.run(self.store.sweep())
        assert (swept.removed, swept.set_aside) == (0, 0)
        files = [path for path in (self.root / "objects/content").rglob("*") if path.is_file()]
        assert len(files) == len({info.content_id for info in self.store.list_all(BUCKET, "")})

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        info = self.store.head(BUCKET, key)
        found = None if info is None else self.runner.run(self.store.read_bytes(info))
        assert found == self.model.get(key)

    @rule(
        prefix=st.text(alphabet="ab/", max_size=2), delimiter=st.sampled_from(["", "/", "ab"]), limit=st.integers(1, 4)
    )
    def list_by_pages(self, prefix: str, delimiter: str, limit: int) -> None:
        seen: list[str] = []
        start: bytes | None = b""
        while start is not None:
            page = self.runner.run(
                self.store.page(BUCKET, prefix=prefix, delimiter=delimiter, start=start, limit=limit)
            )
            names = [*(info.key for info in page.objects), *page.prefixes]
            assert 0 < len(names) <= limit or page.next_start is None
            seen += sorted(names, key=str.encode)
            start = page.next_start
        assert seen == self.expected(prefix, delimiter)

    @invariant()
    def all_keys_are_listed(self) -> None:
        assert [info.key for info in self.store.list_all(BUCKET, "")] == sorted(self.model, key=str.encode)

    def expected(self, prefix: str, delimiter: str) -> list[str]:
        names = set()
        for key in self.model:
            if key.startswith(prefix):
                end = key.find(delimiter, len(prefix)) if delimiter else -1
                names.add(key if end < 0 else key[: end + len(delimiter)])
        return sorted(names, key=str.encode)

    def teardown(self) -> None:
        self.close()
        self.runner.close()
        self.directory.cleanup()


StoreAgainstDict.TestCase.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoreAgainstDict = StoreAgainstDict.TestCase
