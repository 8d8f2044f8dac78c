"""PutObject, DeleteObject, DeleteObjects and object tags."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.kms_keys import KmsKeys
from tidemill.errors import AwsError
from tidemill.services.s3.attributes import attributes_of, quoted, tag_set, tags_of_set
from tidemill.services.s3.conditions import delete_precondition, write_precondition
from tidemill.services.s3.encryption import encryption_of, storage_of
from tidemill.store.objects.index import check_key
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context, Handler, Reply

__all__ = ["WriteOperations"]

DELETE_MAX = 1000


class WriteOperations:
    """PutObject, DeleteObject, DeleteObjects, GetObjectTagging, PutObjectTagging, DeleteObjectTagging."""

    def __init__(self, objects: ObjectStore, keys: KmsKeys) -> None:
        self._objects = objects
        self._keys = keys

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Handlers by operation."""
        return {
            "DeleteObject": self.delete,
            "DeleteObjectTagging": self.delete_tags,
            "DeleteObjects": self.delete_many,
            "GetObjectTagging": self.get_tags,
            "PutObject": self.put,
            "PutObjectTagging": self.put_tags,
        }

    async def put(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """PutObject: all checks come before the body is read."""
        bucket, key = request["Bucket"], request["Key"]
        check_key(key)
        self._objects.require_bucket(bucket)
        attributes = attributes_of(request, context.headers, await storage_of(request, self._keys))
        precondition = write_precondition(request)
        if precondition is not None:
            precondition(self._objects.head(bucket, key))
        body = request["Body"]
        place, size_bytes = self._objects.contents.new, body.size_bytes or 0
        async with place.receive(body, name=f"{bucket}/{key}", size_bytes=size_bytes) as content:
            attributes = replace(attributes, checksums=dict(body.checksums))  # complete now: a trailer comes last
            info = await self._objects.publish(bucket, key, content, attributes=attributes, precondition=precondition)
        members: dict[str, Any] = {"ETag": quoted(info.etag), **info.checksums, **encryption_of(info.headers)}
        if request.get("SSEKMSEncryptionContext"):
            members["SSEKMSEncryptionContext"] = request["SSEKMSEncryptionContext"]
        return {**members, "ChecksumType": info.checksum_type} if info.checksums else members

    async def delete(self, request: dict[str, Any], context: Context) -> Reply:
        """DeleteObject."""
        precondition = delete_precondition(request.get("IfMatch"))
        await self._objects.delete(request["Bucket"], [request["Key"]], precondition=precondition)
        return Reply(status=204)

    async def delete_many(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """DeleteObjects: entries without a condition are deleted in one transaction."""
        wanted = (request.get("Delete") or {}).get("Objects") or []
        if not 1 <= len(wanted) <= DELETE_MAX:
            raise AwsError(
                f"the request names {len(wanted)} objects; 1 to {DELETE_MAX} are allowed",
                code="MalformedXML",
                status=400,
            )
        errors: list[dict[str, str]] = []
        plain: list[str] = []
        deleted: list[dict[str, str]] = []
        for entry in wanted:
            try:
                await self._delete_conditional(request["Bucket"], entry, plain)
            except AwsError as error:
                if error.code == "NoSuchBucket":
                    raise
                errors.append({"Key": entry["Key"], "Code": error.code, "Message": error.message})
            else:
                deleted.append({"Key": entry["Key"]})
        await self._objects.delete(request["Bucket"], plain)
        quiet = bool(request["Delete"].get("Quiet"))
        return {"Deleted": [] if quiet else deleted, "Errors": errors}

    async def get_tags(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """GetObjectTagging."""
        return {"TagSet": tag_set(self._objects.require(request["Bucket"], request["Key"]))}

    async def put_tags(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """PutObjectTagging."""
        await self._objects.set_tags(request["Bucket"], request["Key"], tags_of_set(request["Tagging"]))
        return {}

    async def delete_tags(self, request: dict[str, Any], context: Context) -> Reply:
        """DeleteObjectTagging."""
        await self._objects.set_tags(request["Bucket"], request["Key"], {})
        return Reply(status=204)

    async def _delete_conditional(self, bucket: str, entry: Mapping[str, Any], plain: list[str]) -> None:
        """Delete an entry that has conditions; add any other entry to ``plain``."""
        version_id = entry.get("VersionId")
        if version_id not in (None, "null"):
            raise AwsError(
                f"there is no version {version_id!r}: buckets here keep one version of each object",
                code="NoSuchVersion",
                status=404,
            )
        precondition = delete_precondition(entry.get("ETag"))
        if precondition is None:
            plain.append(entry["Key"])
        else:
            await self._objects.delete(bucket, [entry["Key"]], precondition=precondition)
