"""Tags of resources, by ARN. Tags are stored and removed in the same commit as their resource."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidemill.core.clock import Clock
from tidemill.errors import ValidationException
from tidemill.store.records.base import Record, RecordStore, Transaction

_KIND = "tags"
_LIMIT = 50


def check_tags(tags: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Check the tags of one request.

    Args:
        tags: ``{"Key": ..., "Value": ...}`` each.

    Returns:
        Values by key.

    Raises:
        ValidationException: A key occurs twice, or there are more than 50.
    """
    found: dict[str, str] = {}
    for tag in tags:
        if tag["Key"] in found:
            raise ValidationException(
                f"Value {tag['Key']!r} at 'tags' is not allowed: the key occurs twice; give each key once"
            )
        found[tag["Key"]] = tag["Value"]
    _check_count(found)
    return found


def insert_tags(transaction: Transaction, arn: str, tags: Mapping[str, str], *, at_ms: int) -> None:
    """Store the tags of a resource that the same transaction inserts. An older resource has taken its tags with it.

    Args:
        tags: Values by key; checked by `check_tags` before.
        at_ms: The current time, in milliseconds since the epoch.
    """
    if tags:
        transaction.insert(Record(kind=_KIND, name=arn, created_ms=at_ms, modified_ms=at_ms, document=dict(tags)))


def delete_tags(transaction: Transaction, arn: str) -> None:
    """Remove all tags of a resource that the same transaction deletes.

    Args:
        transaction: The transaction that deletes the resource.
        arn: ARN of the resource.
    """
    transaction.delete(_KIND, arn)


class Tags:
    """Reads and changes the tags of resources that exist."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def of(self, arn: str) -> dict[str, str]:
        """Return the tags of a resource; empty without tags.

        Args:
            arn: ARN of the resource.
        """
        record = self._records.get(_KIND, arn)
        return dict(record.document) if record else {}

    def of_named(self, kind: str, name: str) -> dict[str, str]:
        """Return the tags of a resource by its own ARN: the region of the service may have changed since its creation.

        Args:
            kind: Kind of the resource, as in its ARN.
        """
        record = self._records.get(kind, name)
        return self.of(record.document["arn"]) if record is not None and "arn" in record.document else {}

    async def add(self, arn: str, tags: Sequence[Mapping[str, str]]) -> dict[str, str]:
        """Add or replace tags.

        Args:
            arn: The resource.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Returns:
            All tags of the resource.

        Raises:
            ValidationException: A key occurs twice, the resource would have more than 50 tags, or does not exist.
        """
        new = check_tags(tags)
        at_ms = self._clock.now_ms()

        def add(transaction: Transaction) -> dict[str, str]:
            _check_exists(transaction, arn)
            record = transaction.get(_KIND, arn)
            merged = {**(record.document if record else {}), **new}
            _check_count(merged)
            if record is None:
                insert_tags(transaction, arn, merged, at_ms=at_ms)
            else:
                transaction.update(_KIND, arn, lambda old: replace(old, document=merged))
            return merged

        return await self._records.change(add, grows=True)

    async def remove(self, arn: str, keys: Iterable[str]) -> None:
        """Remove tags by key; other keys are ignored.

        Raises:
            ValidationException: The resource does not exist.
        """
        removed = set(keys)

        def remove(transaction: Transaction) -> None:
            _check_exists(transaction, arn)
            transaction.update(_KIND, arn, lambda old: replace(old, document=_without(old.document, removed)))

        await self._records.change(remove)


def _check_count(tags: Mapping[str, str]) -> None:
    if len(tags) > _LIMIT:
        raise ValidationException(
            f"Value {len(tags)} at 'tags' is not allowed: a resource has at most {_LIMIT} tags; remove some first"
        )


def _check_exists(transaction: Transaction, arn: str) -> None:
    """Check inside the transaction: tags added after a deletion would end up on the next resource of that name."""
    kind, _, name = arn.rpartition(":")[2].partition("/")
    record = transaction.get(kind, name)
    if record is None or record.document["arn"] != arn:
        raise ValidationException(f"Could not find the resource {arn!r}; give the ARN of one that exists")


def _without(tags: Mapping[str, str], keys: set[str]) -> dict[str, str]:
    return {key: value for key, value in tags.items() if key not in keys}
