"""ListArchive and ReadArchiveMember: the inside of an object that is an archive, without unpacking it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, BinaryIO, TypeVar

from tidemill.control.archives.looking import ArchiveMember, Archives, ArchiveUnreadable
from tidemill.control.channels import reference
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.store.objects.errors import PreconditionFailed
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context

__all__ = ["ArchiveOperations"]

_REMOTE_MAX_BYTES = 1024**3
_READ_BYTES = 1024 * 1024

T = TypeVar("T")


class ArchiveOperations(Operations):
    """Looks into archives.

    Args:
        objects: Has the archives.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._archives = Archives()

    async def list_archive(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """ListArchive. The token is the number of members before the page; an object's content never changes."""
        info = self._object(request)
        after, limit = _after(request.get("NextToken")), request.get("MaxResults", 100)
        page = await self._looked(info, lambda file: self._archives.members(file, after=after, limit=limit))
        return {
            "ETag": info.etag,
            "Members": [_shown(each) for each in page.members],
            "Complete": page.complete,
            **({"Damage": page.damage} if page.damage else {}),
            **({"NextToken": str(after + len(page.members))} if page.more else {}),
        }

    async def read_archive_member(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """ReadArchiveMember."""
        info = self._object(request)
        index, offset, size = request["Index"], request.get("Offset", 0), request.get("MaxBytes", _READ_BYTES)
        member, data = await self._looked(info, lambda file: self._archives.read(file, index, offset=offset, size=size))
        return {"ETag": info.etag, "Member": _shown(member), "Data": data}

    def _object(self, request: Mapping[str, Any]) -> ObjectInfo:
        info = self._objects.require(request["Bucket"], request["Key"])
        if request.get("IfMatch", info.etag).strip('"') != info.etag:
            raise PreconditionFailed("the object was replaced meanwhile; list the archive again")
        if self._objects.file_of(info) is None and info.size_bytes > _REMOTE_MAX_BYTES:
            raise ValidationException(
                f"the archive has {info.size_bytes} bytes in another S3; archives up to {_REMOTE_MAX_BYTES} bytes are"
                " fetched to look into them. Download it"
            )
        return info

    async def _looked(self, info: ObjectInfo, look: Callable[[BinaryIO], Awaitable[T]]) -> T:
        try:
            file = await asyncio.to_thread(self._objects.open, reference(info, name=info.key))
        except FileNotFoundError as error:
            raise self._objects.damaged(info) from error
        try:
            return await look(file)
        except ArchiveUnreadable as error:
            raise ValidationException(f"s3://{info.bucket}/{info.key} cannot be looked into: {error}") from error
        finally:
            await asyncio.to_thread(file.close)


def _after(token: str | None) -> int:
    if token is None:
        return 0
    if not (token.isdecimal() and token.isascii() and len(token) <= 9):
        raise ValidationException(f"{token[:64]!r} at 'nextToken' is not a token of ListArchive")
    return int(token)


def _shown(member: ArchiveMember) -> dict[str, Any]:
    return {
        "Index": member.index,
        "Name": member.name,
        "Type": member.type,
        "SizeBytes": member.size_bytes,
        **({"ModifiedTime": when(int(member.modified_s * 1000))} if member.modified_s is not None else {}),
        **({"Target": member.target} if member.target else {}),
    }
