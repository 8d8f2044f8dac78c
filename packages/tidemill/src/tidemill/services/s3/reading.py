"""GetObject and HeadObject: whole objects, ranges and parts, under conditions. GetObjectAttributes."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tidemill.services.operations import Operations
from tidemill.services.s3.attributes import bounded, described, storage_class_of, timestamp
from tidemill.services.s3.conditions import is_unmodified
from tidemill.services.s3.ranges import Slice, part_slice, requested_slice
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import WHOLE_READ_BYTES, ObjectStore
from tidemill.wire.exchange import Context, FileBody, Reply

_PARTS_MAX = 1000
_OVERRIDES = ("CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires")
_UNMODIFIED_MEMBERS = ("ETag", "LastModified", "CacheControl", "Expires")


class ReadOperations(Operations):
    """GetObject, HeadObject, GetObjectAttributes."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def get_object(self, request: dict[str, Any], context: Context) -> Reply:
        """GetObject. A small object is verified before it is sent; a large one is sent as it is read."""
        info = self._objects.require(request["Bucket"], request["Key"])
        reply, piece = _answer(request, info)
        if reply.status == 304:
            return reply
        return Reply(members={**reply.members, "Body": await self._body(info, piece)}, status=reply.status)

    async def head_object(self, request: dict[str, Any], context: Context) -> Reply:
        """HeadObject."""
        info = self._objects.require(request["Bucket"], request["Key"])
        reply, _ = _answer(request, info)
        return reply

    async def get_object_attributes(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        info = self._objects.require(request["Bucket"], request["Key"])
        found: dict[str, Any] = {
            "ETag": info.etag,  # without quotes, as on AWS
            "ObjectSize": info.size_bytes,
            "StorageClass": storage_class_of(info.headers),
        }
        if info.checksums:
            found["Checksum"] = {**info.checksums, "ChecksumType": info.checksum_type}
        if info.part_sizes:
            found["ObjectParts"] = _parts(request, info)
        wanted = request["ObjectAttributes"]
        return {
            "LastModified": timestamp(info.modified_ms),
            **{name: value for name, value in found.items() if name in wanted},
        }

    async def _body(self, info: ObjectInfo, piece: Slice | None) -> bytes | FileBody | AsyncIterator[bytes]:
        if piece is None and info.size_bytes <= WHOLE_READ_BYTES:
            return await self._objects.read_bytes(info)
        part, file = piece or Slice(0, info.size_bytes), self._objects.file_of(info)
        if file is None:
            return await self._objects.pieces(info, offset=part.offset, size_bytes=part.size_bytes)
        self._objects.check_file(info)
        return FileBody(path=file, offset=part.offset, size_bytes=part.size_bytes)


def _answer(request: Mapping[str, Any], info: ObjectInfo) -> tuple[Reply, Slice | None]:
    """Return the answer without its body, and the requested slice of the object (None for all of it)."""
    members = described(info)
    if is_unmodified(request, info):
        return Reply(members={name: members[name] for name in _UNMODIFIED_MEMBERS if name in members}, status=304), None
    for name in _OVERRIDES:
        if request.get(f"Response{name}") is not None:
            members[name] = request[f"Response{name}"]
    piece = _slice(request, info)
    if piece is None:
        members["ContentLength"] = info.size_bytes
        if request.get("ChecksumMode") == "ENABLED" and info.checksums:
            # Only for the whole object: clients would reject a part because of the whole object's checksum.
            members.update(info.checksums, ChecksumType=info.checksum_type)
        return Reply(members=members), None
    members["ContentLength"] = piece.size_bytes
    if request.get("PartNumber") is not None and info.part_sizes:
        members["PartsCount"] = len(info.part_sizes)
    if piece.size_bytes == 0:  # part 1 of an empty object
        return Reply(members=members), piece
    members["ContentRange"] = piece.content_range(info.size_bytes)
    return Reply(members=members, status=206), piece


def _slice(request: Mapping[str, Any], info: ObjectInfo) -> Slice | None:
    part_number = request.get("PartNumber")
    if part_number is None:
        return requested_slice(request.get("Range"), info.size_bytes)
    if request.get("Range") is not None:
        raise InvalidArgument("both Range and PartNumber are given; give one of them")
    return part_slice(info, part_number)


def _parts(request: Mapping[str, Any], info: ObjectInfo) -> dict[str, Any]:
    """Return the parts of a multipart object with their sizes; the store does not keep their checksums."""
    after = request.get("PartNumberMarker") or 0
    limit = bounded(request.get("MaxParts"), name="MaxParts", most=_PARTS_MAX)
    parts = [{"PartNumber": number, "Size": size} for number, size in enumerate(info.part_sizes, start=1)]
    shown = parts[after : after + limit]
    return {
        "TotalPartsCount": len(parts),
        "PartNumberMarker": after,
        "NextPartNumberMarker": shown[-1]["PartNumber"] if shown else after,
        "MaxParts": limit,
        "IsTruncated": after + limit < len(parts),
        "Parts": shown,
    }
