"""PutObject, DeleteObject, DeleteObjects and object tags."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tidemill.core.handed_files import MEDIA_TYPE, ticket_of
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.s3.archive import entries_of, is_extracted
from tidemill.services.s3.attributes import tag_set
from tidemill.services.s3.handed_files import HandedFiles
from tidemill.services.s3.intention import (
    Encryption,
    delete_precondition,
    encryption_of,
    intention_of,
    keeping_published,
    quoted,
    tags_of_set,
)
from tidemill.store.objects.draft import Content
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.extraction import extract
from tidemill.store.objects.index import check_key
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context, Reply

DELETE_MAX = 1000
_OF_ARCHIVES = frozenset(("Body", "Bucket", "ContentLength", "ContentMD5", "ContentType", "Key"))
"""The members of PutObject, besides checksums, that an archive may have: its objects get no attributes."""
EXTRACTED_HEADER = "x-tidemill-extracted"
"""Header of the reply to an archive: the number of objects that are stored."""


class WriteOperations(Operations):
    """PutObject, DeleteObject, DeleteObjects, GetObjectTagging, PutObjectTagging, DeleteObjectTagging."""

    def __init__(self, objects: ObjectStore, encryption: Encryption, handed_files: HandedFiles) -> None:
        self._objects = objects
        self._handed_files = handed_files
        self._encryption = encryption

    async def put_object(self, request: dict[str, Any], context: Context) -> Mapping[str, Any] | Reply:
        """PutObject: all checks come before the body is read.

        With the media type of `archive`, the body is a tar archive, whose files are stored as objects beside the key:
        many small files are durable in one step. With the media type of a ticket, the object is the copy of a file that
        a client has handed over, and the body is empty.
        """
        ticket = None
        if (request.get("ContentType") or "").startswith(MEDIA_TYPE) and not context.presigned:
            if is_extracted(context):
                return await self._extract(request)
            ticket = ticket_of(request["ContentType"])
        if ticket is not None:
            request = {name: value for name, value in request.items() if name != "ContentType"}
        wanted = await intention_of(request, context, self._encryption, self._objects)
        received = self._received(request) if ticket is None else self._handed(request, ticket)
        async with received as (content, checksums):
            parts = () if content.md5 else (content.size_bytes,)
            info = await self._objects.contents.publish(
                request["Bucket"],
                request["Key"],
                content,
                attributes=replace(wanted.attributes, checksums=checksums, part_sizes=parts),
                publisher=wanted.publisher,
                precondition=wanted.precondition,
            )
        members = {"ETag": quoted(info.etag), **info.checksums, **encryption_of(info.headers, request)}
        return {**members, "ChecksumType": info.checksum_type} if info.checksums else members

    @contextlib.asynccontextmanager
    async def _received(self, request: Mapping[str, Any]) -> AsyncGenerator[tuple[Content, dict[str, str]]]:
        """Yield the content of the body, and its checksums."""
        body, name = request["Body"], f"{request['Bucket']}/{request['Key']}"
        sha256, size_bytes = body.leave_sha256(), body.size_bytes or 0
        async with self._objects.contents.new.receive(body, name=name, size_bytes=size_bytes, sha256=sha256) as content:
            yield content, dict(body.checksums)  # complete now: a trailer comes last

    @contextlib.asynccontextmanager
    async def _handed(self, request: Mapping[str, Any], ticket: str) -> AsyncGenerator[tuple[Content, dict[str, str]]]:
        """Yield the copy of a file, with the checksum that boto3 sends for every body."""
        body = request["Body"]
        async with self._handed_files.redeem(ticket) as handed:
            if await body.read() or not {"ChecksumCRC32"}.issuperset(body.checksums):
                raise InvalidArgument(
                    "a request with a ticket has no body, and no checksum other than CRC-32; send the bytes of the file"
                )
            yield handed.content, {"ChecksumCRC32": handed.crc32} if body.checksums else {}

    async def _extract(self, request: Mapping[str, Any]) -> Reply:
        others = [name for name in request if name not in _OF_ARCHIVES and not name.startswith("Checksum")]
        if others:
            raise InvalidArgument(
                f"{', '.join(sorted(others))} cannot be applied to the files of an archive; send the files one by one"
            )
        bucket, body, disk = request["Bucket"], request["Body"], self._objects.contents.disk
        check_key(request["Key"])
        self._objects.require_bucket(bucket)
        prefix, slash, _ = request["Key"].rpartition("/")
        sha256, size_bytes = body.leave_sha256(), body.size_bytes or 0
        async with disk.receive(body, size_bytes=size_bytes, sha256=sha256) as archive:
            file = disk.path(archive.content_id)
            entries = await disk.run(partial(entries_of, file, prefix=prefix + slash))
            headers = await self._encryption.storage_of(request)
            await extract(self._objects, file, bucket, entries, headers=headers)
            return Reply(members={"ETag": quoted(archive.md5)}, headers={EXTRACTED_HEADER: str(len(entries))})

    async def delete_object(self, request: dict[str, Any], context: Context) -> Reply:
        """DeleteObject."""
        bucket, key = request["Bucket"], request["Key"]
        await self._delete(context, bucket, key, if_match=request.get("IfMatch"))
        return Reply(status=204)

    async def delete_objects(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """DeleteObjects: entries that need no check are deleted in one transaction."""
        wanted = (request.get("Delete") or {}).get("Objects") or []
        if not 1 <= len(wanted) <= DELETE_MAX:
            raise AwsError(
                f"the request names {len(wanted)} objects; 1 to {DELETE_MAX} are allowed",
                code="MalformedXML",
            )
        errors: list[dict[str, str]] = []
        plain: list[str] = []
        deleted: list[dict[str, str]] = []
        # All at once, so that the store commits them as one group.
        results = await asyncio.gather(
            *(self._delete_checked(context, request["Bucket"], entry, plain) for entry in wanted),
            return_exceptions=True,
        )
        for entry, error in zip(wanted, results, strict=True):
            if error is None:
                deleted.append({"Key": entry["Key"]})
            elif isinstance(error, AwsError) and error.code != "NoSuchBucket":
                errors.append({"Key": entry["Key"], "Code": error.code, "Message": error.message})
            else:
                raise error
        await self._objects.delete(request["Bucket"], plain)
        quiet = bool(request["Delete"].get("Quiet"))
        return {"Deleted": [] if quiet else deleted, "Errors": errors}

    async def get_object_tagging(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetObjectTagging."""
        return {"TagSet": tag_set(self._objects.require(request["Bucket"], request["Key"]))}

    async def put_object_tagging(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._set_tags("s3:PutObjectTagging", request, context, tags_of_set(request["Tagging"]))
        return {}

    async def delete_object_tagging(self, request: dict[str, Any], context: Context) -> Reply:
        await self._set_tags("s3:DeleteObjectTagging", request, context, {})
        return Reply(status=204)

    async def _set_tags(self, action: str, request: Mapping[str, Any], context: Context, tags: dict[str, str]) -> None:
        bucket, key = request["Bucket"], request["Key"]
        precondition = keeping_published(context, action, bucket, key)
        await self._objects.set_tags(bucket, key, tags, precondition=precondition)

    async def _delete(self, context: Context, bucket: str, key: str, *, if_match: str | None) -> None:
        precondition = delete_precondition(if_match)
        precondition = keeping_published(context, "s3:DeleteObject", bucket, key, then=precondition)
        await self._objects.delete(bucket, [key], precondition=precondition)

    async def _delete_checked(self, context: Context, bucket: str, entry: Mapping[str, Any], plain: list[str]) -> None:
        """Delete an entry that has conditions, or may be another job's; add any other entry to ``plain``."""
        version_id = entry.get("VersionId")
        if version_id not in (None, "null"):
            raise AwsError(
                f"there is no version {version_id!r}: buckets here keep one version of each object",
                code="NoSuchVersion",
            )
        if_match, key = entry.get("ETag"), entry["Key"]
        if if_match is None and (context.writer is None or not context.writer.keeps(bucket, key)):
            plain.append(key)
        else:
            await self._delete(context, bucket, key, if_match=if_match)
