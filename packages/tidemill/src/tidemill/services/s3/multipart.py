"""Multipart operations: begin, upload or copy parts, complete, abort, list."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.s3.attributes import OWNER, bounded, storage_class_of, timestamp
from tidemill.services.s3.checksums import (
    base64_of,
    begin,
    check_algorithm,
    checksum_members,
    composite,
    member_of,
)
from tidemill.services.s3.conditions import copy_precondition
from tidemill.services.s3.copying import copy_source, read_slice
from tidemill.services.s3.intention import (
    Encryption,
    check_upload,
    encryption_of,
    intention_of,
    keeping_published,
    quoted,
    write_precondition,
)
from tidemill.services.s3.listing import DAMAGED, encoder_of
from tidemill.services.s3.ranges import copy_range
from tidemill.store.objects.index import ObjectAttributes
from tidemill.store.objects.store import ObjectStore
from tidemill.store.objects.upload_index import PartInfo, UploadInfo
from tidemill.store.objects.uploads import CompletedUpload, NamedPart, Uploads, check_part_number
from tidemill.wire.bodies.body import Checksum
from tidemill.wire.exchange import Context, Reply

PAGE_MAX = 1000
_INITIATOR = {"ID": ACCOUNT_ID, "DisplayName": "tidemill"}


class MultipartOperations(Operations):
    """The seven operations of multipart uploads."""

    def __init__(self, objects: ObjectStore, encryption: Encryption) -> None:
        self._objects = objects
        self._encryption = encryption
        self._uploads = Uploads(objects)

    async def create_multipart_upload(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        bucket, key = request["Bucket"], request["Key"]
        wanted = await intention_of(request, context, self._encryption, self._objects)
        algorithm = request.get("ChecksumAlgorithm") or ""
        checksum_type = _checksum_type(algorithm, request.get("ChecksumType"))
        attributes = replace(wanted.attributes, checksum_type=checksum_type)
        upload = await self._uploads.begin(
            bucket, key, attributes=attributes, algorithm=algorithm, publisher=wanted.publisher
        )
        members = {"Bucket": bucket, "Key": key, "UploadId": upload.upload_id, **_announced(upload)}
        return {**members, **encryption_of(upload.attributes.headers, request)}

    async def upload_part(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        upload = self._open(request, context)
        body = request["Body"]
        async with self._objects.contents.disk.receive(
            body, size_bytes=body.size_bytes or 0, sha256=body.leave_sha256()
        ) as content:
            checksums = dict(body.checksums)
            if upload.algorithm and member_of(upload.algorithm) not in checksums:
                raise AwsError(
                    f"the upload was begun with ChecksumAlgorithm={upload.algorithm}, but this part carries"
                    f" {', '.join(checksums) or 'no checksum'}; send {member_of(upload.algorithm)} with every part",
                    code="InvalidRequest",
                )
            part = await self._uploads.put_part(upload, request["PartNumber"], content, checksums=checksums)
        return {"ETag": quoted(part.etag), **checksums, **_encryption(upload)}

    async def upload_part_copy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        upload = self._open(request, context)
        source = copy_source(self._objects, request["CopySource"])
        copy_precondition(request, source)
        piece = copy_range(request.get("CopySourceRange"), source.size_bytes)
        digests = [begin(upload.algorithm)] if upload.algorithm else []
        chunks = read_slice(self._objects, source, piece)
        disk = self._objects.contents.disk
        async with disk.receive(chunks, size_bytes=piece.size_bytes, digests=digests) as content:
            if piece.size_bytes == source.size_bytes and content.sha256 != source.sha256:
                raise self._objects.damaged(source)
            checksums = {member_of(upload.algorithm): base64_of(digests[0])} if digests else {}
            part = await self._uploads.put_part(upload, request["PartNumber"], content, checksums=checksums)
        result = {"ETag": quoted(part.etag), "LastModified": timestamp(part.modified_ms), **checksums}
        return {"CopyPartResult": result, **_encryption(upload)}

    async def complete_multipart_upload(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        bucket, key = request["Bucket"], request["Key"]
        upload = self._uploads.require(bucket, key, request["UploadId"], complete_too=True)
        check_upload(context, "s3:PutObject", upload)
        _check_type(request, upload)
        whole = begin(upload.algorithm) if _is_whole(upload) else None

        def describe(parts: tuple[PartInfo, ...]) -> ObjectAttributes:
            _check_size(request, parts)
            checksums = _checksums_of(upload, parts, whole)
            _check_checksums(request, checksums)
            return replace(upload.attributes, checksums=checksums)

        completed = await self._uploads.complete(
            upload,
            _named_parts(request),
            describe=describe,
            digests=[] if whole is None else [whole],
            precondition=keeping_published(context, "s3:PutObject", bucket, key, then=write_precondition(request)),
        )
        return {**_completed_reply(request, context, completed), **_encryption(upload)}

    async def abort_multipart_upload(self, request: dict[str, Any], context: Context) -> Reply:
        bucket, key, upload_id = request["Bucket"], request["Key"], request["UploadId"]
        if context.writer is not None:  # others may abort an upload whose row is damaged, and tells no publisher
            check_upload(context, "s3:AbortMultipartUpload", self._uploads.require(bucket, key, upload_id))
        await self._uploads.abort(bucket, key, upload_id)
        return Reply(status=204)

    async def list_parts(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        upload = self._uploads.require(request["Bucket"], request["Key"], request["UploadId"])
        limit = bounded(request.get("MaxParts"), name="MaxParts", most=PAGE_MAX)
        after = int(request.get("PartNumberMarker") or 0)
        found = self._uploads.parts(upload, after=after, limit=limit + 1)
        shown = found[:limit]
        return {
            "Bucket": upload.bucket,
            "Key": upload.key,
            "UploadId": upload.upload_id,
            "PartNumberMarker": after,
            "NextPartNumberMarker": shown[-1].part_number if shown else after,
            "MaxParts": limit,
            "IsTruncated": len(found) > limit > 0,
            "Parts": [_part_entry(part) for part in shown],
            "Initiator": _INITIATOR,
            "Owner": OWNER,
            "StorageClass": storage_class_of(upload.attributes.headers),
            **_announced(upload),
        }

    async def list_multipart_uploads(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        encode = encoder_of(request)
        prefix, delimiter = request.get("Prefix") or "", request.get("Delimiter") or ""
        key_marker, id_marker = request.get("KeyMarker") or "", request.get("UploadIdMarker") or ""
        limit = bounded(request.get("MaxUploads"), name="MaxUploads", most=PAGE_MAX)
        page = await self._uploads.page(
            request["Bucket"], prefix=prefix, delimiter=delimiter, after=(key_marker, id_marker), limit=limit
        )
        members: dict[str, Any] = {
            "Bucket": request["Bucket"],
            "KeyMarker": encode(key_marker),
            "UploadIdMarker": id_marker,
            "Prefix": encode(prefix),
            "MaxUploads": limit,
            "IsTruncated": page.last is not None,
            "Uploads": [
                {**_upload_entry(upload), "Key": encode(upload.key), **_announced(upload)} for upload in page.uploads
            ],
            "CommonPrefixes": [{"Prefix": encode(common)} for common in page.prefixes],
        }
        if page.last is not None:
            members["NextKeyMarker"], members["NextUploadIdMarker"] = encode(page.last[0]), page.last[1]
        if delimiter:
            members["Delimiter"] = encode(delimiter)
        if request.get("EncodingType"):
            members["EncodingType"] = request["EncodingType"]
        return members

    def _open(self, request: Mapping[str, Any], context: Context) -> UploadInfo:
        check_part_number(request["PartNumber"])
        upload = self._uploads.require(request["Bucket"], request["Key"], request["UploadId"])
        check_upload(context, "s3:PutObject", upload)
        return upload


def _checksum_type(algorithm: str, wanted: str | None) -> str:
    if not algorithm:
        return "FULL_OBJECT"
    check_algorithm(algorithm)
    checksum_type = wanted or ("FULL_OBJECT" if algorithm == "CRC64NVME" else "COMPOSITE")
    allowed = {"CRC64NVME": ("FULL_OBJECT",), "SHA1": ("COMPOSITE",), "SHA256": ("COMPOSITE",)}
    choices = allowed.get(algorithm, ("COMPOSITE", "FULL_OBJECT"))
    if checksum_type not in choices:
        raise AwsError(
            f"ChecksumType={checksum_type} does not go with ChecksumAlgorithm={algorithm}; use {' or '.join(choices)}",
            code="InvalidRequest",
        )
    return checksum_type


def _is_whole(upload: UploadInfo) -> bool:
    return bool(upload.algorithm) and upload.attributes.checksum_type == "FULL_OBJECT"


def _encryption(upload: UploadInfo) -> dict[str, Any]:
    return encryption_of(upload.attributes.headers, {})


def _announced(upload: UploadInfo) -> dict[str, str]:
    if not upload.algorithm:
        return {}
    return {"ChecksumAlgorithm": upload.algorithm, "ChecksumType": upload.attributes.checksum_type}


def _named_parts(request: Mapping[str, Any]) -> list[NamedPart]:
    parts = (request.get("MultipartUpload") or {}).get("Parts") or []
    try:
        return [
            NamedPart(part_number=part["PartNumber"], etag=part["ETag"].strip('"'), checksums=checksum_members(part))
            for part in parts
        ]
    except KeyError as missing:
        raise AwsError(
            f"a part in the request has no {missing.args[0]}; every part needs PartNumber and ETag", code="MalformedXML"
        ) from None


def _checksums_of(upload: UploadInfo, parts: tuple[PartInfo, ...], whole: Checksum | None) -> dict[str, str]:
    if not upload.algorithm:
        return {}
    member = member_of(upload.algorithm)
    if whole is not None:
        return {member: base64_of(whole)}
    return {member: composite(upload.algorithm, (part.checksums[member] for part in parts))}


def _check_checksums(request: Mapping[str, Any], checksums: Mapping[str, str]) -> None:
    for member, value in checksum_members(request).items():
        found = checksums.get(member)
        # A client may omit the number of parts at the end of a composite checksum.
        if found is not None and value not in (found, found.partition("-")[0]):
            raise AwsError(
                f"the object made of the parts has {member} {found!r}, but the request announced {value!r}",
                code="BadDigest",
            )


def _check_type(request: Mapping[str, Any], upload: UploadInfo) -> None:
    wanted, begun = request.get("ChecksumType"), upload.attributes.checksum_type
    if wanted is not None and upload.algorithm and wanted != begun:
        raise AwsError(
            f"the upload was begun with ChecksumType={begun}, but is to be completed with {wanted}; leave it out or say"
            f" {begun}",
            code="InvalidRequest",
        )


def _check_size(request: Mapping[str, Any], parts: tuple[PartInfo, ...]) -> None:
    announced = request.get("MpuObjectSize")
    size_bytes = sum(part.size_bytes for part in parts)
    if announced is not None and int(announced) != size_bytes:
        raise AwsError(
            f"the parts have {size_bytes} bytes together, but MpuObjectSize announced {announced}",
            code="InvalidRequest",
        )


def _completed_reply(request: Mapping[str, Any], context: Context, completed: CompletedUpload) -> dict[str, Any]:
    bucket, key = request["Bucket"], request["Key"]
    members: dict[str, Any] = {
        "Location": f"{context.scheme}://{context.headers.get('host', 'localhost')}/{bucket}/{key}",
        "Bucket": bucket,
        "Key": key,
        "ETag": quoted(completed.etag),
        **completed.checksums,
    }
    return {**members, "ChecksumType": completed.checksum_type} if completed.checksums else members


def _part_entry(part: PartInfo) -> dict[str, Any]:
    return {
        "PartNumber": part.part_number,
        "LastModified": timestamp(part.modified_ms),
        "ETag": quoted(part.etag),
        "Size": part.size_bytes,
        **part.checksums,
    }


def _upload_entry(upload: UploadInfo) -> dict[str, Any]:
    return {
        "UploadId": upload.upload_id,
        "Initiated": timestamp(upload.initiated_ms),
        "StorageClass": DAMAGED if upload.is_damaged else storage_class_of(upload.attributes.headers),
        "Owner": OWNER,
        "Initiator": _INITIATOR,
    }
