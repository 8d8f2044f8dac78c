"""Multipart uploads: parts that arrive in any order and become one object.

Each part is a file on the disk. Complete concatenates the parts to one new content, because each object has exactly one
content, and commits the object, the end of the upload and the removal of the parts together. A completed upload is
remembered, so that a client that lost the answer can repeat Complete and gets the same answer.
"""

import asyncio
import hashlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Connection

from tidemill.errors import AwsError
from tidemill.store.objects import index as object_index
from tidemill.store.objects import upload_index
from tidemill.store.objects.draft import Content, Digest
from tidemill.store.objects.errors import InvalidArgument, InvalidPart, no_such_upload
from tidemill.store.objects.index import ObjectAttributes, Precondition
from tidemill.store.objects.store import ObjectStore
from tidemill.store.objects.upload_index import PartInfo, UploadInfo

PART_MIN_BYTES = 5 * 1024 * 1024
"""Minimum size of a part, as on S3. The last part may be smaller."""
PART_NUMBER_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPart:
    """One part in a CompleteMultipartUpload request.

    Attributes:
        part_number: Number of the part, 1 to 10,000.
        etag: ETag of the part, without quotes.
        checksums: Base64 checksums by member name; empty if the client sent none.
    """

    part_number: int
    etag: str
    checksums: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletedUpload:
    """The answer to CompleteMultipartUpload, the same for every repetition.

    Attributes:
        checksums: Base64 checksums of the object, by member name.
        checksum_type: ``FULL_OBJECT`` or ``COMPOSITE``.
    """

    etag: str
    checksums: Mapping[str, str]
    checksum_type: str


@dataclass(frozen=True, slots=True)
class UploadPage:
    """A page of open uploads and common prefixes, both in order.

    Attributes:
        last: Key and upload id after which the next page begins; None on the last page.
    """

    uploads: tuple[UploadInfo, ...]
    prefixes: tuple[str, ...]
    last: tuple[str, str] | None


class Uploads:
    """The multipart uploads of an object store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._completing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self, bucket: str, key: str, *, attributes: ObjectAttributes, algorithm: str = "", publisher: str = ""
    ) -> UploadInfo:
        """Begin an upload.

        Args:
            key: Key of the future object; must be checked by `check_key` before.
            attributes: Attributes of the future object.
            algorithm: Checksum algorithm that the client announced, e.g. ``CRC32``. Default: none.
            publisher: The job that publishes the future object. Default: none.

        Raises:
            NoSuchBucket: There is no such bucket.
        """
        now_ms = self._objects.clock.now_ms()
        upload = UploadInfo(
            upload_id=f"{now_ms:012x}{secrets.token_hex(16)}",
            bucket=bucket,
            key=key,
            initiated_ms=now_ms,
            attributes=attributes,
            algorithm=algorithm,
            publisher=publisher,
        )

        def work(connection: Connection) -> None:
            object_index.require_bucket(connection, bucket)
            upload_index.put_upload(connection, upload)

        await self._objects.database.write(work, grows=True)
        return upload

    def require(self, bucket: str, key: str, upload_id: str, *, complete_too: bool = False) -> UploadInfo:
        """Return an upload.

        Args:
            complete_too: Whether to return a completed upload too. Default: false.

        Raises:
            NoSuchBucket: There is no such bucket.
            NoSuchUpload: There is no such upload, or it is completed and ``complete_too`` is false.
        """
        return self._objects.database.read(
            lambda c: upload_index.require_upload(c, bucket, key, upload_id, complete_too=complete_too)
        )

    async def put_part(
        self, upload: UploadInfo, part_number: int, content: Content, *, checksums: Mapping[str, str]
    ) -> PartInfo:
        """Store received content as a part; replace the part with the same number, if any.

        Args:
            part_number: Number of the part; must be checked by `check_part_number` before.
            content: Content that the disk has received.
            checksums: Base64 checksums by member name.

        Raises:
            NoSuchUpload: The upload was aborted or completed meanwhile.
        """
        part = PartInfo(
            upload_id=upload.upload_id,
            part_number=part_number,
            content_id=content.content_id,
            size_bytes=content.size_bytes,
            etag=content.md5,
            sha256=content.sha256,
            modified_ms=self._objects.clock.now_ms(),
            checksums=checksums,
        )

        def work(connection: Connection) -> list[str]:
            upload_index.require_upload(connection, upload.bucket, upload.key, upload.upload_id)
            return upload_index.put_part(connection, part)

        await self._objects.contents.naming([content.content_id], work)
        return part

    def parts(self, upload: UploadInfo, *, after: int = 0, limit: int | None = None) -> tuple[PartInfo, ...]:
        """Return the parts of an upload in the order of their numbers.

        Args:
            after: Return only parts with a greater number. Default: 0.
            limit: Maximum number of parts. Default: no limit.
        """
        return self._objects.database.read(
            lambda c: upload_index.list_parts(c, upload.upload_id, after=after, limit=limit)
        )

    async def complete(
        self,
        upload: UploadInfo,
        named: Sequence[NamedPart],
        *,
        describe: Callable[[tuple[PartInfo, ...]], ObjectAttributes],
        digests: Iterable[Digest] = (),
        precondition: Precondition | None = None,
    ) -> CompletedUpload:
        """Create the object from the named parts. A repeated call returns the same answer.

        Args:
            upload: The upload, open or completed.
            named: The parts in order.
            describe: Returns the attributes of the object for its parts; called after ``digests`` got all bytes.
            digests: Hashes to update with every byte of the object.
            precondition: Refuses the change inside the transaction. Default: none.

        Raises:
            InvalidPart: A named part was not uploaded, or has another ETag or checksum.
            AwsError: MalformedXML, InvalidPartOrder or EntityTooSmall.
            NoSuchUpload: The upload was aborted, or was completed with other parts.
        """
        lock = self._completing.setdefault(upload.upload_id, asyncio.Lock())
        async with lock:
            upload = self.require(upload.bucket, upload.key, upload.upload_id, complete_too=True)
            if upload.completed_ms is not None:
                return _same_outcome(upload, named)
            chosen = _choose(self.parts(upload), named)
            disk = self._objects.contents.disk
            sources = [(disk.path(part.content_id), part.sha256) for part in chosen]
            disk.refuse_when_full(sum(part.size_bytes for part in chosen))
            name = f"{upload.bucket}/{upload.key}"
            async with self._objects.contents.new.join(sources, name=name, digests=digests) as content:
                return await self._publish(upload, named, chosen, content, describe(chosen), precondition)

    async def abort(self, bucket: str, key: str, upload_id: str) -> None:
        """Delete an open upload, even if its row is damaged, and its parts.

        Raises:
            NoSuchUpload: There is no such upload, or it is completed.
        """

        def work(connection: Connection) -> list[str]:
            return upload_index.delete_open_upload(connection, bucket, key, upload_id)

        await self._objects.contents.releasing(work)

    async def page(self, bucket: str, *, prefix: str, delimiter: str, after: tuple[str, str], limit: int) -> UploadPage:
        """Return up to ``limit`` open uploads and common prefixes that follow a key and upload id.

        Args:
            prefix: List only keys that begin with this text.
            delimiter: Combine keys that contain this text after the prefix into common prefixes; empty for none.
            after: Key and upload id. With an empty id, the page begins after all uploads of the key.
            limit: Maximum number of uploads and common prefixes together.

        Raises:
            NoSuchBucket: There is no such bucket.
        """
        key, upload_id = after
        # "~" sorts after every hexadecimal digit, and so after all ids of the key.
        start = (key.encode(), upload_id or ("~" if key else ""))

        def work(connection: Connection) -> UploadPage:
            object_index.require_bucket(connection, bucket)
            return _page(connection, bucket, prefix, delimiter, start, limit)

        return await self._objects.database.read_in_thread(work)

    async def _publish(
        self,
        upload: UploadInfo,
        named: Sequence[NamedPart],
        chosen: tuple[PartInfo, ...],
        content: Content,
        attributes: ObjectAttributes,
        precondition: Precondition | None,
    ) -> CompletedUpload:
        completed = CompletedUpload(
            etag=_etag_of(chosen), checksums=attributes.checksums, checksum_type=attributes.checksum_type
        )
        ended = replace(upload, completed_ms=self._objects.clock.now_ms(), outcome=_outcome(completed, named))

        def end(connection: Connection) -> list[str]:
            upload_index.require_upload(connection, upload.bucket, upload.key, upload.upload_id)
            present = {part.content_id for part in upload_index.list_parts(connection, upload.upload_id)}
            for part in chosen:
                if part.content_id not in present:
                    raise _invalid_part(part.part_number, "it was uploaded again meanwhile")
            upload_index.put_upload(connection, ended)
            return upload_index.forget_parts(connection, upload.upload_id)

        await self._objects.contents.publish(
            upload.bucket,
            upload.key,
            content,
            attributes=replace(attributes, part_sizes=tuple(part.size_bytes for part in chosen)),
            etag=completed.etag,
            publisher=upload.publisher,
            precondition=precondition,
            also=end,
        )
        return completed


def check_part_number(part_number: int) -> None:
    """Refuse a part number that is not 1 to 10,000.

    Raises:
        InvalidArgument: The part number is out of range.
    """
    if not 1 <= part_number <= PART_NUMBER_MAX:
        raise InvalidArgument(f"the part number {part_number} is not between 1 and {PART_NUMBER_MAX}")


def _choose(present: tuple[PartInfo, ...], named: Sequence[NamedPart]) -> tuple[PartInfo, ...]:
    if not named:
        raise AwsError("the request names no part; name at least one", code="MalformedXML")
    numbers = [part.part_number for part in named]
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        raise AwsError(
            f"the parts are not in ascending order: {numbers[:20]}; sort them by PartNumber, each once",
            code="InvalidPartOrder",
        )
    by_number = {part.part_number: part for part in present}
    chosen = tuple(_match(by_number.get(part.part_number), part) for part in named)
    for part in chosen[:-1]:
        if part.size_bytes < PART_MIN_BYTES:
            raise AwsError(
                f"part {part.part_number} has {part.size_bytes} bytes; every part but the last needs at least"
                f" {PART_MIN_BYTES}",
                code="EntityTooSmall",
            )
    return chosen


def _match(part: PartInfo | None, named: NamedPart) -> PartInfo:
    if part is None:
        raise _invalid_part(named.part_number, "it was not uploaded, or its description is damaged")
    if part.etag != named.etag:
        raise _invalid_part(named.part_number, f"its ETag is {part.etag!r}, the request says {named.etag!r}")
    for member, value in named.checksums.items():
        if part.checksums.get(member, value) != value:
            raise _invalid_part(
                named.part_number, f"its {member} is {part.checksums[member]!r}, the request says {value!r}"
            )
    return part


def _invalid_part(part_number: int, reason: str) -> InvalidPart:
    return InvalidPart(f"part {part_number} cannot be used: {reason}; list the parts, and upload this one again")


def _etag_of(chosen: Sequence[PartInfo]) -> str:
    digests = b"".join(bytes.fromhex(part.etag) for part in chosen)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(chosen)}"


def _outcome(completed: CompletedUpload, named: Sequence[NamedPart]) -> dict[str, Any]:
    return {
        "etag": completed.etag,
        "checksums": dict(completed.checksums),
        "checksum_type": completed.checksum_type,
        "parts": [[part.part_number, part.etag] for part in named],
    }


def _same_outcome(upload: UploadInfo, named: Sequence[NamedPart]) -> CompletedUpload:
    if upload.outcome["parts"] != [[part.part_number, part.etag] for part in named]:
        raise no_such_upload(upload.upload_id)
    return CompletedUpload(
        etag=upload.outcome["etag"],
        checksums=upload.outcome["checksums"],
        checksum_type=upload.outcome["checksum_type"],
    )


def _page(
    connection: Connection, bucket: str, prefix: str, delimiter: str, start: tuple[bytes, str], limit: int
) -> UploadPage:
    found: list[UploadInfo] = []
    prefixes: list[str] = []
    last = ("", "")
    for upload in upload_index.scan_uploads(connection, bucket, start=start, prefix=prefix.encode()):
        end = upload.key.find(delimiter, len(prefix)) if delimiter else -1
        folder = upload.key[: end + len(delimiter)] if end >= 0 else None
        if folder is not None and (folder in prefixes or start[0].startswith(folder.encode())):
            last = (upload.key, upload.upload_id)
            continue
        if len(found) + len(prefixes) >= limit:
            return UploadPage(tuple(found), tuple(prefixes), last if limit else None)
        if folder is None:
            found.append(upload)
        else:
            prefixes.append(folder)
        last = (upload.key, upload.upload_id)
    return UploadPage(tuple(found), tuple(prefixes), None)
