"""Log groups that clients create or configure. A group that only jobs write to needs no record."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.plan import ENDPOINT_LOG_GROUP, TRANSFORM_LOG_GROUP
from tidemill.control.resources import ENDPOINT, PROCESSING_JOB, TRAINING_JOB, TRANSFORM_JOB
from tidemill.control.search.pages import walk
from tidemill.core.clock import Clock
from tidemill.core.processing import ProcessingJob
from tidemill.core.training import TrainingJob
from tidemill.errors import StateCorrupt
from tidemill.store.records.base import Query, Record, RecordStore, Summary, Transaction

_KIND = "log-group"
_DAY_MS = 24 * 3600 * 1000
_JOB_GROUPS = {
    TrainingJob.log_group: TRAINING_JOB,
    ProcessingJob.log_group: PROCESSING_JOB,
    TRANSFORM_LOG_GROUP: TRANSFORM_JOB,
}


def owner_of(group: str, stream: str) -> tuple[str, str] | None:
    """Return kind and name of the job or endpoint that a stream belongs to by its name, whether or not these exist.

    None for a stream that clients may write. In the groups of jobs that is a stream without a slash: the streams of a
    job are looked up by the prefix ``JOB/``, so no other stream can pass for one of them.

    Args:
        group: Name of the group.
    """
    if "/" not in stream:
        return None
    if group.startswith(ENDPOINT_LOG_GROUP):
        return ENDPOINT, group.removeprefix(ENDPOINT_LOG_GROUP)
    kind = _JOB_GROUPS.get(group)
    return None if kind is None else (kind, stream.partition("/")[0])


class GroupRecords:
    """The records of log groups: creation time, ``retention_days``, ``tags`` and ``key``."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def get(self, name: str) -> Mapping[str, Any] | None:
        """Return the document of a group; None without a record, and an empty one of a damaged record.

        Args:
            name: Name of the group.
        """
        try:
            record = self._records.get(_KIND, name)
        except StateCorrupt:
            return {}
        return None if record is None else record.document

    async def all(self) -> dict[str, Summary]:
        """Return all records by the group's name. Their summaries have ``retention_days`` and ``key``."""
        query = Query(sort_by="name", descending=False)
        return {record.name: record async for record in walk(self._records, _KIND, query)}

    async def create(self, name: str, *, tags: Mapping[str, str], key: str | None) -> bool:
        """Store a group. Returns False, and changes nothing, if there is a record of that name.

        Args:
            tags: Values by key.
            key: The KMS key that the request names, which is shown and has no effect.
        """

        def insert(transaction: Transaction) -> bool:
            if transaction.get(_KIND, name) is not None:
                return False
            transaction.insert(self._new(name, {"tags": dict(tags), "key": key}))
            return True

        return await self._records.change(insert, grows=True)

    async def change(self, name: str, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        """Change the document of a group; a group without a record gets one.

        Args:
            change: Gets the document and returns the new one.
        """

        def work(transaction: Transaction) -> None:
            if transaction.get(_KIND, name) is None:
                transaction.insert(self._new(name, change({})))
            else:
                transaction.update(_KIND, name, lambda record: _with(record, change(record.document)))

        await self._records.change(work, grows=True)

    async def delete(self, name: str) -> None:
        """Delete the record of a group, if there is one.

        Args:
            name: Name of the group.
        """
        await self._records.delete(_KIND, name)

    def shown_from_ms(self, name: str) -> int:
        """Return since when events of a group are kept, in milliseconds since the epoch; 0 without a retention policy.

        Args:
            name: Name of the group.
        """
        days = (self.get(name) or {}).get("retention_days")
        return 0 if days is None else max(0, self._clock.now_ms() - days * _DAY_MS)

    def is_running(self, owner: tuple[str, str]) -> bool:
        """Return whether a job still runs, or an endpoint exists, so that its streams have to stay.

        Args:
            owner: Its kind and name, as in `owner_of`.
        """
        kind, name = owner
        record = self._records.get(kind, name)
        return record is not None and (kind == ENDPOINT or record.status not in ("Completed", "Failed", "Stopped"))

    def _new(self, name: str, document: dict[str, Any]) -> Record:
        now_ms = self._clock.now_ms()
        return _with(Record(kind=_KIND, name=name, created_ms=now_ms, modified_ms=now_ms, document={}), document)


def _with(record: Record, document: dict[str, Any]) -> Record:
    shown = {name: document.get(name) for name in ("retention_days", "key")}
    return replace(record, document=document, summary=shown)
