"""Tags of resources, by ARN."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemill.core.clock import Clock
from tidemill.errors import ValidationException
from tidemill.store.base import Record, RecordExists, RecordStore

__all__ = ["Tags"]

_KIND = "tags"
_LIMIT = 50


class Tags:
    """Tags, kept beside the resources that they belong to."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def of(self, arn: str) -> dict[str, str]:
        """The tags of a resource; empty when it has none."""
        record = self._records.get(_KIND, arn)
        return dict(record.document) if record else {}

    async def add(self, arn: str, tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
        """Add or replace tags.

        Args:
            arn: The resource.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: There would be more than 50.
        """
        new = {tag["Key"]: tag["Value"] for tag in tags}
        merged = {**self.of(arn), **new}
        if len(merged) > _LIMIT:
            raise ValidationException(f"Value {len(merged)} at 'tags' is not allowed: at most {_LIMIT} tags a resource")
        now_ms = self._clock.now_ms()
        record = Record(kind=_KIND, name=arn, created_ms=now_ms, modified_ms=now_ms, document=merged)
        try:
            await self._records.insert(record)
        except RecordExists:
            await self._records.update(_KIND, arn, lambda old: replace(old, document={**old.document, **new}))
        return merged

    async def remove(self, arn: str, keys: Iterable[str]) -> None:
        """Remove tags by key; keys that are not there are passed over."""
        gone = set(keys)
        await self._records.update(
            _KIND, arn, lambda old: replace(old, document={k: v for k, v in old.document.items() if k not in gone})
        )

    async def forget(self, arn: str) -> None:
        """Remove all tags of a deleted resource."""
        await self._records.delete(_KIND, arn)
