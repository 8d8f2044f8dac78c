"""Resources with a name of their own, of one or several kinds: look up, insert and delete them, with their tags."""

from collections.abc import Callable, Mapping, Sequence

from tidemill.control.resources import TITLES
from tidemill.control.tags import check_tags, delete_tags, insert_tags
from tidemill.core.clock import Clock
from tidemill.core.names import sagemaker_arn
from tidemill.errors import AwsError, ResourceNotFound, ValidationException
from tidemill.store.records.base import Record, RecordStore, Transaction

GivenTags = Sequence[Mapping[str, str]]
"""``{"Key": ..., "Value": ...}`` each."""


class NamedResources:
    """The resources of the account, of one or several kinds. Subclasses say what is wrong in their own words.

    Args:
        records: Stores them, with their ARN in the summary.
    """

    def __init__(self, records: RecordStore, *, region: str, clock: Clock) -> None:
        self._records = records
        self._region = region
        self._clock = clock

    def record(self, kind: str, name: str) -> Record:
        """Return a stored record.

        Raises:
            AwsError: It does not exist; ResourceNotFound for most kinds.
        """
        record = self._records.get(kind, name)
        if record is None:
            raise self._missing(kind, name)
        return record

    def _missing(self, kind: str, name: str) -> AwsError:
        return missing(kind, name)

    def _taken(self, record: Record) -> AwsError:
        return taken(record)

    def _arn(self, kind: str, name: str) -> str:
        return sagemaker_arn(kind, name, region=self._region)

    def _put(self, transaction: Transaction, record: Record, tags: Mapping[str, str]) -> None:
        """Store a new record and its tags; raises the error for a name that is taken."""
        if transaction.get(record.kind, record.name) is not None:
            raise self._taken(record)
        transaction.insert(record)
        insert_tags(transaction, record.summary["arn"], tags, at_ms=record.created_ms)

    async def _insert(
        self, record: Record, tags: GivenTags, *, also: Callable[[Transaction], object] = lambda _: None
    ) -> None:
        """Store a new record and its tags, and make further changes in the same commit."""
        checked_tags = check_tags(tags)

        def insert(transaction: Transaction) -> None:
            self._put(transaction, record, checked_tags)
            also(transaction)

        await self._records.change(insert, grows=True)

    async def _delete(self, kind: str, name: str, check: Callable[[Transaction, Record], object]) -> str:
        """Delete a record and its tags.

        Args:
            check: Raises an exception if the record must stay, and makes further changes in the same commit.
        """

        def delete(transaction: Transaction) -> str:
            record = transaction.get(kind, name)
            if record is None:
                raise self._missing(kind, name)
            check(transaction, record)
            transaction.delete(kind, name)
            delete_tags(transaction, record.summary["arn"])
            return str(record.summary["arn"])

        return await self._records.change(delete)


def missing(kind: str, name: str) -> ResourceNotFound:
    """Return the error for a name without a resource of a kind in `TITLES`."""
    return ResourceNotFound(f"{TITLES[kind]} {name!r} does not exist.")


def taken(record: Record) -> ValidationException:
    """Return the error for a name that is taken. AWS's SDKs look for "already exists", and load what there is."""
    title, arn = TITLES[record.kind], record.summary["arn"]
    return ValidationException(f"{title} with name {record.name!r} already exists: {arn}; choose another name")


def existing(transaction: Transaction, kind: str, name: str) -> Record:
    """Return a record inside a transaction.

    Raises:
        ResourceNotFound: It does not exist.
    """
    record = transaction.get(kind, name)
    if record is None:
        raise missing(kind, name)
    return record
