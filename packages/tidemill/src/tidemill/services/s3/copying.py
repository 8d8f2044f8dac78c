"""CopyObject, and reading the source of any copy."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.s3.attributes import timestamp
from tidemill.services.s3.checksums import base64_of, begin, member_of
from tidemill.services.s3.conditions import copy_precondition
from tidemill.services.s3.intention import (
    STORAGE_MEMBERS,
    Encryption,
    attributes_of,
    encryption_of,
    keeping_published,
    publisher_of,
    quoted,
    write_precondition,
)
from tidemill.services.s3.ranges import Slice
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectAttributes, ObjectInfo, check_key
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context


class CopyOperations(Operations):
    """CopyObject. The copy shares the bytes of its source, so it costs one row; a multipart ETag is kept."""

    def __init__(self, objects: ObjectStore, encryption: Encryption) -> None:
        self._objects = objects
        self._encryption = encryption

    async def copy_object(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        bucket, key = request["Bucket"], request["Key"]
        check_key(key)
        source = copy_source(self._objects, request["CopySource"])
        copy_precondition(request, source)
        precondition = keeping_published(context, "s3:PutObject", bucket, key, then=write_precondition(request))
        storage = await self._encryption.storage_of(request)
        attributes = await self._with_checksum(request, source, _attributes(request, context, source, storage))
        info = await self._objects.copy(
            source,
            bucket,
            key,
            attributes=attributes,
            publisher=publisher_of(context, bucket, key),
            precondition=precondition,
        )
        result = {"ETag": quoted(info.etag), "LastModified": timestamp(info.modified_ms), **info.checksums}
        return {
            "CopyObjectResult": {**result, "ChecksumType": info.checksum_type} if info.checksums else result,
            **encryption_of(info.headers, request),
        }

    async def _with_checksum(
        self, request: Mapping[str, Any], source: ObjectInfo, attributes: ObjectAttributes
    ) -> ObjectAttributes:
        """Keep the source's checksums, or compute the requested one over the whole object if the source lacks it."""
        algorithm = request.get("ChecksumAlgorithm")
        kept = replace(attributes, checksums=source.checksums, checksum_type=source.checksum_type)
        if algorithm is None or (member_of(algorithm) in source.checksums and source.checksum_type == "FULL_OBJECT"):
            return kept
        checksum = begin(algorithm)
        async for chunk in read_slice(self._objects, source, Slice(0, source.size_bytes)):
            checksum.update(chunk)
        value = base64_of(checksum)
        return replace(kept, checksums={member_of(algorithm): value}, checksum_type="FULL_OBJECT")


def copy_source(objects: ObjectStore, text: str) -> ObjectInfo:
    """Return the object named by ``CopySource``.

    Raises:
        InvalidArgument: As for `source_name`.
        AwsError: NoSuchBucket, NoSuchKey, NoSuchVersion.
    """
    bucket, key, version = source_name(text)
    if version not in ("", "null"):
        raise AwsError(
            f"the copy source names the version {version!r}: buckets here keep one version of each object",
            code="NoSuchVersion",
        )
    return objects.require(bucket, key)


def source_name(text: str) -> tuple[str, str, str]:
    """Parse ``CopySource`` (``bucket/key``, URL-encoded, with or without a leading slash) into bucket, key and version.

    The version is empty if the source names no version. Handlers and authorization share this function, so they cannot
    disagree.

    Raises:
        InvalidArgument: It does not have that form.
    """
    path, _, version = text.partition("?versionId=")
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    if not bucket or not key:
        raise InvalidArgument(f"the copy source {text!r} cannot be used; expected BUCKET/KEY, URL-encoded")
    return bucket, key, version


async def read_slice(objects: ObjectStore, info: ObjectInfo, piece: Slice) -> AsyncIterator[bytes]:
    """Yield the bytes of a slice, read in threads.

    Raises:
        ObjectDamaged: The bytes are missing, or have another length.
        ServiceUnavailable: They cannot be read now.
    """
    async for chunk in await objects.pieces(info, offset=piece.offset, size_bytes=piece.size_bytes):
        yield chunk


def _attributes(
    request: Mapping[str, Any], context: Context, source: ObjectInfo, storage: Mapping[str, Any]
) -> ObjectAttributes:
    given = attributes_of(request, context.headers, storage)
    directive = request.get("MetadataDirective") or "COPY"
    if directive not in ("COPY", "REPLACE"):
        raise InvalidArgument(f"MetadataDirective is {directive!r}; allowed are COPY and REPLACE")
    same = (source.bucket, source.key) == (request["Bucket"], request["Key"])
    if directive == "COPY" and same and not request.keys() & set(STORAGE_MEMBERS):
        raise AwsError(
            f"s3://{source.bucket}/{source.key} would be copied onto itself without any change; set"
            " MetadataDirective=REPLACE, give a StorageClass or ServerSideEncryption, or choose another key",
            code="InvalidRequest",
        )
    tags = given.tags if request.get("TaggingDirective") == "REPLACE" else source.tags
    if directive == "REPLACE":
        return replace(given, tags=tags, part_sizes=source.part_sizes)
    return ObjectAttributes(
        content_type=source.content_type,
        metadata=source.metadata,
        headers={**{name: value for name, value in source.headers.items() if name not in STORAGE_MEMBERS}, **storage},
        tags=tags,
        part_sizes=source.part_sizes,
    )
