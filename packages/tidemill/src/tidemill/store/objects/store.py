"""The object store: buckets of immutable objects, consistent after any crash.

Bytes are files or objects of a remote S3 (`tidemill.store.objects.contents`), names are rows
(`tidemill.store.objects.index`). A put first makes the bytes durable, then commits the row that names them. So an
incomplete object is never visible, and an acknowledged object is never lost. The store is independent of HTTP;
`tidemill.services.s3` and the control plane use it.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection

from tidemill.core.clock import Clock
from tidemill.core.instances import ObjectReference
from tidemill.core.names import is_bucket_name
from tidemill.errors import AwsError, StateCorrupt
from tidemill.store.database.base import Database
from tidemill.store.objects import index as object_index
from tidemill.store.objects import unnamed, upload_index
from tidemill.store.objects.contents import Contents, RemoteSettings, attribute_values
from tidemill.store.objects.disk_place import Swept
from tidemill.store.objects.errors import ObjectDamaged, no_such_bucket, no_such_key
from tidemill.store.objects.index import ListedObject, ObjectAttributes, ObjectInfo, Precondition, check_key
from tidemill.store.objects.listing import ObjectPage, all_objects, batches_of_objects, list_page

WHOLE_READ_BYTES = 8 * 1024 * 1024
"""Objects up to this size are read and verified completely before the first byte is sent."""
GRACE_S = 10.0
COMPLETE_REMEMBERED_MS = 7 * 24 * 3600 * 1000


class ObjectStore:
    """Buckets and objects.

    Args:
        database: Database of the rows; opened with the tables of `tidemill.store.objects.schema`.
        root: Directory of the content files; created if missing.
        clock: Provides modification times.
        grace_s: Seconds for which replaced content is kept for replies that still read it. Default: 10.
        remote: Settings for contents in a remote S3. Default: all contents are below ``root``.
    """

    def __init__(
        self,
        database: Database,
        root: Path,
        *,
        clock: Clock,
        grace_s: float = GRACE_S,
        remote: RemoteSettings | None = None,
    ) -> None:
        self.database = database
        self.clock = clock
        self.contents = Contents(
            root, database=database, clock=clock, grace_s=grace_s, remote=remote or RemoteSettings()
        )
        self.contents.disk.sweep_temporaries()

    async def ensure_bucket(self, name: str) -> None:
        """Create a bucket unless it exists.

        Raises:
            AwsError: InvalidBucketName.
        """
        await self.create_bucket(name)

    async def create_bucket(self, name: str) -> bool:
        """Create a bucket; return False if it already exists.

        Raises:
            AwsError: InvalidBucketName.
        """
        if not is_bucket_name(name):
            raise AwsError(
                f"{name!r} cannot name a bucket; allowed are 3-63 characters of a-z, 0-9, '.' and '-', beginning and"
                " ending with a letter or digit, without '..'; 'endpoints' is reserved",
                code="InvalidBucketName",
                members={"BucketName": name},
            )
        now_ms = self.clock.now_ms()
        return await self.database.write(lambda c: object_index.insert_bucket(c, name, now_ms), grows=True)

    def bucket_exists(self, name: str) -> bool:
        """Return whether a bucket exists."""
        return self.bucket_created_ms(name) is not None

    def bucket_created_ms(self, name: str) -> int | None:
        """Return when a bucket was created, in milliseconds since the epoch; None if there is no such bucket."""
        row = self.database.row(object_index.BUCKET_CREATED, {"by_name": name})
        return None if row is None else row[0]

    def require_bucket(self, name: str) -> None:
        """Raise NoSuchBucket unless there is such a bucket.

        Raises:
            NoSuchBucket: If there is none.
        """
        if not self.bucket_exists(name):
            raise no_such_bucket(name)

    def buckets(self) -> list[tuple[str, int]]:
        """Return name and creation time (milliseconds since the epoch) of every bucket, sorted by name."""
        return self.database.read(object_index.buckets_by_name)

    async def delete_bucket(self, name: str) -> None:
        """Remove an empty bucket.

        Raises:
            NoSuchBucket: The bucket does not exist.
            AwsError: BucketNotEmpty.
        """

        def work(connection: Connection) -> None:
            object_index.require_bucket(connection, name)
            if not object_index.bucket_is_empty(connection, name):
                raise AwsError(
                    f"the bucket {name!r} holds objects or unfinished uploads; delete and abort them first",
                    code="BucketNotEmpty",
                    members={"BucketName": name},
                )
            object_index.delete_bucket(connection, name)

        await self.database.write(work)

    def head(self, bucket: str, key: str) -> ObjectInfo | None:
        """Return the object, or None if there is no such object.

        Raises:
            StateCorrupt: The row of the object fails its checksum.
        """
        row = self.database.row(object_index.OBJECT, object_index.of_key(bucket, key))
        return None if row is None else ObjectInfo.from_columns(row)

    def head_if_sound(self, bucket: str, key: str) -> ObjectInfo | None:
        """Return the object, or None if there is no such object or its row is damaged, so that it is put again.

        Args:
            bucket: Name of the bucket.
        """
        try:
            return self.head(bucket, key)
        except StateCorrupt:
            return None

    def require(self, bucket: str, key: str) -> ObjectInfo:
        """Return the object.

        Raises:
            NoSuchBucket: There is no such bucket.
            NoSuchKey: There is no such object.
        """
        info = self.head(bucket, key)
        if info is None:
            self.require_bucket(bucket)
            raise no_such_key(bucket, key)
        return info

    def list_all(self, bucket: str, prefix: str) -> Iterator[ObjectInfo]:
        """Yield all objects whose key begins with ``prefix``, in key order. Reads a thousand rows at a time.

        Raises:
            NoSuchBucket: There is no such bucket.
            StateCorrupt: A row fails its checksum: a job must not miss a part of its data.
        """
        self.require_bucket(bucket)
        yield from all_objects(self.database, bucket, prefix)

    def list_in_batches(self, bucket: str, prefix: str) -> Iterator[list[ListedObject]]:
        """Yield the objects of `list_all` in lists of up to a thousand, each with only the members of `ListedObject`.

        Raises:
            NoSuchBucket: There is no such bucket.
            StateCorrupt: A row fails its checksum.
        """
        self.require_bucket(bucket)
        yield from batches_of_objects(self.database, bucket, prefix)

    async def page(self, bucket: str, *, prefix: str, delimiter: str, start: bytes, limit: int) -> ObjectPage:
        """Return one page of a listing; see `tidemill.store.objects.listing.list_page` for the arguments.

        Raises:
            NoSuchBucket: There is no such bucket.
        """

        def work(connection: Connection) -> ObjectPage:
            object_index.require_bucket(connection, bucket)
            return list_page(connection, bucket, prefix=prefix, delimiter=delimiter, start=start, limit=limit)

        return await self.database.read_in_thread(work)

    async def summarize(self, bucket: str, prefix: str) -> tuple[int, int]:
        """Return the number of objects below a prefix, and their size in bytes, without reading each row.

        Raises:
            NoSuchBucket: There is no such bucket.
        """

        def work(connection: Connection) -> tuple[int, int]:
            object_index.require_bucket(connection, bucket)
            return object_index.summarize(connection, bucket, prefix=prefix.encode())

        return await self.database.read_in_thread(work)

    def file_of(self, info: ObjectInfo) -> Path | None:
        """Return the file with the object's bytes, which never changes; None if the bytes are in a remote S3.

        Args:
            info: The row of the object.
        """
        return self.contents.of(info.content_id).file(info.content_id)

    def open(self, reference: ObjectReference) -> BinaryIO:
        """Open the content that an object had when ``reference`` was created, as a file with a name. Blocks.

        Raises:
            FileNotFoundError: The object was deleted or replaced, and its content is gone.
            ServiceUnavailable: The content cannot be read now.
        """
        return self.contents.of(reference.content_id).open(reference.content_id, size_bytes=reference.size_bytes)

    async def read_bytes(self, info: ObjectInfo) -> bytes:
        """Return the bytes of the object after verifying their digest. For objects that fit into memory.

        Raises:
            ObjectDamaged: The bytes are missing or do not match the digest.
            ServiceUnavailable: The bytes cannot be read now.
        """
        return await self.contents.of(info.content_id).read_verified(
            info.content_id, size_bytes=info.size_bytes, sha256=info.sha256, name=_name(info)
        )

    async def pieces(self, info: ObjectInfo, *, offset: int, size_bytes: int) -> AsyncIterator[bytes]:
        """Return an iterator over the bytes of a range of the object.

        Raises:
            ObjectDamaged: The content is missing, or has another length.
            ServiceUnavailable: The content cannot be read now.
        """
        return await self.contents.of(info.content_id).pieces(
            info.content_id, offset=offset, size_bytes=size_bytes, whole_bytes=info.size_bytes, name=_name(info)
        )

    def check_file(self, info: ObjectInfo) -> None:
        """Check quickly that the file of `file_of` exists and has its length.

        Raises:
            ObjectDamaged: The file is missing or has another length.
        """
        self.contents.disk.check_size(info.content_id, size_bytes=info.size_bytes, name=_name(info))

    def damaged(self, info: ObjectInfo) -> ObjectDamaged:
        """Move the file of a damaged object to quarantine. Return the error to raise.

        Returns:
            The error; a client gets its code and text.
        """
        return self.contents.of(info.content_id).damaged(info.content_id, name=_name(info))

    async def put_bytes(
        self, bucket: str, key: str, data: bytes, *, attributes: ObjectAttributes | None = None
    ) -> ObjectInfo:
        """Store ``data`` as an object.

        Args:
            attributes: Media type, metadata and other attributes. Default: those of `ObjectAttributes`.

        Raises:
            InvalidArgument: ``key`` cannot be a key.
            NoSuchBucket: There is no such bucket.
            ServiceUnavailable: The disk is full or failing.
        """
        check_key(key)
        place = self.contents.new
        async with place.receive(_once(data), name=f"{bucket}/{key}", size_bytes=len(data)) as content:
            return await self.contents.publish(bucket, key, content, attributes=attributes or ObjectAttributes())

    async def adopt(
        self,
        bucket: str,
        key: str,
        source: Path | AsyncIterator[bytes],
        *,
        sha256: str,
        md5: str,
        size_bytes: int,
        content_type: str = "application/x-gzip",
        headers: Mapping[str, Any] | None = None,
        publisher: str = "",
    ) -> ObjectInfo:
        """Store a file or a stream as an object. A file is hard-linked if possible, else copied, and then removed.

        The call may be repeated, even after a crash before the file was removed: if the object has these bytes already,
        a missing file is no error, and a stream is not read.

        Args:
            key: Key of the object.
            source: The file, or the bytes.
            sha256: Expected SHA-256 in hexadecimal.
            md5: Expected MD5 in hexadecimal.
            size_bytes: Expected length.
            content_type: Media type of the object. Default: ``application/x-gzip``.
            headers: As in `ObjectAttributes`. Default: none.
            publisher: The job that publishes the object. Default: none.

        Raises:
            FileNotFoundError: There is neither such a file nor an object with these bytes.
            ValueError: The bytes do not match ``sha256``, ``md5`` and ``size_bytes``.
            NoSuchBucket: There is no such bucket.
            ServiceUnavailable: The disk is full or failing.
        """
        check_key(key)
        info = self.head_if_sound(bucket, key)
        if info is None or (info.sha256, info.size_bytes) != (sha256, size_bytes):
            place, named = self.contents.new, f"{bucket}/{key}"
            taken = (
                place.adopt(source, name=named)
                if isinstance(source, Path)
                else place.receive(source, name=named, size_bytes=size_bytes)
            )
            async with taken as content:
                if (content.sha256, content.md5, content.size_bytes) != (sha256, md5, size_bytes):
                    name = source if isinstance(source, Path) else "the stream"
                    raise ValueError(
                        f"{name} is not the file announced for s3://{bucket}/{key}: expected {size_bytes} bytes with"
                        f" SHA-256 {sha256} and MD5 {md5}, found {content.size_bytes} bytes with {content.sha256} and"
                        f" {content.md5}"
                    )
                # Allowed even while the disk is full: the bytes are stored already, and the job that ends with this
                # step frees much more space.
                attributes = ObjectAttributes(content_type=content_type, headers=headers or {})
                info = await self.contents.publish(
                    bucket, key, content, attributes=attributes, publisher=publisher, grows=False
                )
        if isinstance(source, Path):
            source.unlink(missing_ok=True)
        return info

    async def copy(
        self,
        source: ObjectInfo,
        bucket: str,
        key: str,
        *,
        attributes: ObjectAttributes,
        publisher: str = "",
        precondition: Precondition | None = None,
    ) -> ObjectInfo:
        """Create an object with the content of another object. The bytes are shared, because content never changes.

        Args:
            source: The existing object.
            bucket: Bucket of the new object.
            key: Key of the new object.
            attributes: Attributes of the new object.
            publisher: The job that publishes the new object. Default: none.
            precondition: Refuses the change inside the transaction. Default: none.

        Raises:
            NoSuchKey: The source was deleted or replaced meanwhile.
            NoSuchBucket: There is no such bucket.
        """
        place = {"bucket": bucket, "key": key, "modified_ms": self.clock.now_ms(), "publisher": publisher}
        info = replace(source, **place, **attribute_values(attributes))

        def work(connection: Connection) -> list[str]:
            current = object_index.get_object(connection, source.bucket, source.key)
            if current is None or current.content_id != source.content_id:
                raise no_such_key(source.bucket, source.key)
            return object_index.put_object(connection, info, precondition=precondition)

        await self.contents.releasing(work, grows=True)
        return info

    async def set_tags(
        self, bucket: str, key: str, tags: dict[str, str], *, precondition: Precondition | None = None
    ) -> None:
        """Replace the tags of an object.

        Args:
            tags: All tags that the object has afterwards; empty removes them.
            precondition: Refuses the change inside the transaction. Default: none.

        Raises:
            NoSuchBucket: There is no such bucket.
            NoSuchKey: There is no such object.
        """

        def work(connection: Connection) -> list[str]:
            info = object_index.get_object(connection, bucket, key)
            if info is None:
                object_index.require_bucket(connection, bucket)
                raise no_such_key(bucket, key)
            return object_index.put_object(connection, replace(info, tags=dict(tags)), precondition=precondition)

        await self.contents.releasing(work, grows=bool(tags))

    async def delete(self, bucket: str, keys: Iterable[str], *, precondition: Precondition | None = None) -> None:
        """Remove objects in one transaction. Keys without an object are ignored.

        Args:
            precondition: Called for each key; refuses the whole change inside the transaction. Default: none.

        Raises:
            NoSuchBucket: There is no such bucket.
        """
        named_keys = tuple(keys)

        def work(connection: Connection) -> list[str]:
            object_index.require_bucket(connection, bucket)
            if precondition is not None:
                for key in named_keys:
                    precondition(object_index.get_object(connection, bucket, key))
            removed = (object_index.delete_object(connection, bucket, key) for key in named_keys)
            return [content_id for content_id in removed if content_id is not None]

        await self.contents.releasing(work)

    def take_back(self) -> int:
        """Move content back from the trash that rows name, because the database was replaced by a newer copy.

        Blocks. Call it before objects are read. Returns the number of files.
        """
        return self.contents.disk.take_back(lambda: self.database.read(object_index.content_named))

    async def sweep(self) -> Swept:
        """Remove content whose last row was removed before a crash, and move other content without rows to the trash.

        Also deletes the rows of multipart uploads that were completed more than seven days ago.
        """
        before_ms = self.clock.now_ms() - COMPLETE_REMEMBERED_MS
        if self.database.read(lambda c: upload_index.has_completed_uploads(c, before_ms)):
            await self.database.write(lambda c: upload_index.forget_completed_uploads(c, before_ms))
        swept = await self.contents.disk.sweep_orphans(
            lambda: self.database.read_in_thread(lambda c: (object_index.content_named(c), unnamed.released_on_disk(c)))
        )
        await self.contents.forget_removed()
        return swept

    async def tidy(self, *, needed_since_ms: int | None = None) -> int:
        """Delete the records of removed files, and old files from the trash. Return the number of those files.

        Args:
            needed_since_ms: Time of the oldest backup of the database; see `Trash.remove_old`. Default: none.
        """
        await self.contents.forget_removed()
        disk = self.contents.disk
        return await disk.run(lambda: disk.trash.remove_old(needed_since_ms=needed_since_ms))

    async def close(self) -> None:
        """Wait for commits in progress, then remove retired content. The database stays open."""
        await self.contents.close()


def _name(info: ObjectInfo) -> str:
    return f"s3://{info.bucket}/{info.key}"


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
