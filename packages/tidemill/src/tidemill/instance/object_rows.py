"""Objects of the service's store as rows: a channel may have a million, and dataclasses take ten times as long."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from tidemill.core.instances import ObjectReference
from tidemill.instance.spec import Input

ObjectRow = Sequence[Any]
"""The values of one `ObjectReference`: uri, name, content_id, size_bytes, sha256, etag."""
FileRow = Sequence[Any]
"""The values of one `ObjectFile` without origin: uri, name, file, size_bytes, sha256."""
_BATCH = 1000


@runtime_checkable
class ObjectRows(Protocol):
    """Inputs that can be read as rows."""

    def rows(self) -> Iterator[Sequence[ObjectRow]]:
        """Yield the objects in batches.

        Raises:
            TypeError: An input is no object of the service's store.
        """


def row_of(reference: ObjectReference) -> ObjectRow:
    """Return the row of an object."""
    return tuple(getattr(reference, name) for name in reference.__slots__)


def rows_of(objects: Iterable[Input]) -> Iterator[Sequence[ObjectRow]]:
    """Yield objects of the service's store as rows, in batches.

    Raises:
        TypeError: An input is no object of the service's store.
    """
    if isinstance(objects, ObjectRows):
        yield from objects.rows()
        return
    batch: list[ObjectRow] = []
    for each in objects:
        if not isinstance(each, ObjectReference):
            raise TypeError(f"{each!r} is no object of the service's store")
        batch.append(row_of(each))
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
