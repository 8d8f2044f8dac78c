"""Objects from the files of an archive: many small files that become durable, and visible, in a few steps."""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from tidemill.store.objects import index as object_index
from tidemill.store.objects.contents import Contents
from tidemill.store.objects.draft import Content
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo
from tidemill.store.objects.store import ObjectStore

GROUP_OBJECTS = 4096
GROUP_BYTES = 64 * 1024 * 1024
"""Limits of what is extracted from an archive at a time: the group is durable, and visible, in one step."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A range of an archive that becomes an object.

    Attributes:
        offset: Offset of its bytes in the archive.
    """

    key: str
    offset: int
    size_bytes: int


async def extract(
    objects: ObjectStore,
    archive: Path,
    bucket: str,
    entries: Sequence[ArchiveEntry],
    *,
    headers: dict[str, Any] | None = None,
) -> None:
    """Store ranges of a file as objects. Groups of them are durable together, and visible together.

    Args:
        archive: The file, which nobody changes.
        entries: The objects, with keys that `check_key` has checked.
        headers: Kept with each object. Default: none.

    Raises:
        NoSuchBucket: There is no such bucket.
        ServiceUnavailable: The disk is full or failing; earlier groups are stored.
    """
    attributes = ObjectAttributes(headers=headers or {})
    for group in _groups(entries):
        async with _split(objects.contents, archive, bucket, group) as contents:
            infos = [
                objects.contents.describe(bucket, entry.key, content, attributes=attributes)
                for entry, content in zip(group, contents, strict=True)
            ]

            def work(connection: Connection, infos: list[ObjectInfo] = infos) -> list[str]:
                object_index.require_bucket(connection, bucket)
                return object_index.put_objects(connection, bucket, infos)

            await objects.contents.naming([info.content_id for info in infos], work)


@contextlib.asynccontextmanager
async def _split(
    places: Contents, archive: Path, bucket: str, entries: Sequence[ArchiveEntry]
) -> AsyncGenerator[list[Content]]:
    place, disk = places.new, places.disk
    if place is disk:
        async with disk.split(archive, [(entry.offset, entry.size_bytes) for entry in entries]) as contents:
            yield contents
        return
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for entry in entries:
            body = disk.slice(archive, entry.offset, entry.size_bytes)
            received = place.receive(body, name=f"{bucket}/{entry.key}", size_bytes=entry.size_bytes)
            found.append(await stack.enter_async_context(received))
        yield found


def _groups(entries: Sequence[ArchiveEntry]) -> Iterator[list[ArchiveEntry]]:
    group: list[ArchiveEntry] = []
    size_bytes = 0
    for entry in entries:
        if group and (len(group) == GROUP_OBJECTS or size_bytes + entry.size_bytes > GROUP_BYTES):
            yield group
            group, size_bytes = list[ArchiveEntry](), 0
        group.append(entry)
        size_bytes += entry.size_bytes
    if group:
        yield group
