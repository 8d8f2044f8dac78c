"""ListObjects, ListObjectsV2 and ListObjectVersions."""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from tidemill.core.handed_files import SOCKET_HEADER
from tidemill.services.operations import Operations
from tidemill.services.s3.attributes import OWNER, bounded, storage_class_of, timestamp
from tidemill.services.s3.handed_files import HandedFiles
from tidemill.services.s3.intention import quoted
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import DamagedObject, ObjectInfo
from tidemill.store.objects.listing import ObjectPage, after_key, after_prefix
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.exchange import Context, Reply

LIST_MAX = 1000
DAMAGED = "DAMAGED"
"""The storage class in lists of an object or upload whose row is damaged. Its other values may be wrong."""


class ListOperations(Operations):
    """ListObjects, ListObjectsV2, ListObjectVersions."""

    def __init__(self, objects: ObjectStore, handed_files: HandedFiles) -> None:
        self._objects = objects
        self._handed_files = handed_files

    async def list_objects(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """ListObjects; continues after a marker that is a key or a common prefix."""
        encode = encoder_of(request)
        marker = request.get("Marker") or ""
        page, members = await self._page(request, _start_after(marker, request.get("Delimiter") or ""), owner=True)
        members["Marker"] = encode(marker)
        if page.next_start is not None and request.get("Delimiter"):
            members["NextMarker"] = encode(page.last)
        return members

    async def list_objects_v2(self, request: dict[str, Any], context: Context) -> Mapping[str, Any] | Reply:
        """ListObjectsV2; continues at the position in the previous page's token.

        With MaxKeys 0, headers of the reply have the number and the size of all objects below the prefix, and the path
        of the socket for files, except for jobs.
        """
        members = await self._list_2(request)
        if members["MaxKeys"]:
            return members
        count, size_bytes = await self._objects.summarize(request["Bucket"], request.get("Prefix") or "")
        summary = {"x-tidemill-prefix-objects": str(count), "x-tidemill-prefix-bytes": str(size_bytes)}
        if self._handed_files.path is not None and context.writer is None:
            summary[SOCKET_HEADER] = quote(str(self._handed_files.path))
        return Reply(members=members, headers=summary)

    async def _list_2(self, request: Mapping[str, Any]) -> dict[str, Any]:
        encode = encoder_of(request)
        token, start_after = request.get("ContinuationToken"), request.get("StartAfter") or ""
        delimiter = request.get("Delimiter") or ""
        start = _start_after(start_after, delimiter) if token is None else _start_of_token(token)
        page, members = await self._page(request, start, owner=bool(request.get("FetchOwner")))
        members["KeyCount"] = len(page.objects) + len(page.prefixes)
        if start_after:
            members["StartAfter"] = encode(start_after)
        if token is not None:
            members["ContinuationToken"] = token
        if page.next_start is not None:
            members["NextContinuationToken"] = _token(page.next_start)
        return members

    async def list_object_versions(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """ListObjectVersions: each object has one version, which is called ``null`` as on AWS without versioning."""
        encode = encoder_of(request)
        marker, version = request.get("KeyMarker") or "", request.get("VersionIdMarker") or ""
        if version and not marker:
            raise InvalidArgument("A version-id marker cannot be specified without a key marker; give both or neither")
        page, members = await self._page(request, _start_after(marker, request.get("Delimiter") or ""), owner=True)
        versions = [{**entry, "VersionId": "null", "IsLatest": True} for entry in members.pop("Contents")]
        members |= {"KeyMarker": encode(marker), "VersionIdMarker": version, "Versions": versions}
        if page.next_start is not None:
            members |= {"NextKeyMarker": encode(page.last), "NextVersionIdMarker": "null"}
        return members

    async def _page(
        self, request: Mapping[str, Any], start: bytes, *, owner: bool
    ) -> tuple[ObjectPage, dict[str, Any]]:
        encode = encoder_of(request)
        prefix, delimiter = request.get("Prefix") or "", request.get("Delimiter") or ""
        limit = bounded(request.get("MaxKeys"), name="MaxKeys", most=LIST_MAX)
        page = await self._objects.page(request["Bucket"], prefix=prefix, delimiter=delimiter, start=start, limit=limit)
        members: dict[str, Any] = {
            "Name": request["Bucket"],
            "Prefix": encode(prefix),
            "MaxKeys": limit,
            "IsTruncated": page.next_start is not None,
            "Contents": [_entry(info, encode, owner=owner) for info in page.objects],
            "CommonPrefixes": [{"Prefix": encode(common)} for common in page.prefixes],
        }
        if delimiter:
            members["Delimiter"] = encode(delimiter)
        if request.get("EncodingType"):
            members["EncodingType"] = request["EncodingType"]
        return page, members


def encoder_of(request: Mapping[str, Any]) -> Callable[[str], str]:
    """Return the function that encodes keys in the reply: percent-encoding if the client requested it.

    Raises:
        InvalidArgument: The client requested another encoding.
    """
    encoding = request.get("EncodingType")
    if encoding is None:
        return str
    if encoding != "url":
        raise InvalidArgument(f"EncodingType is {encoding!r}; only 'url' is allowed")
    # Encode a space as %20 and a plus as %2B: both decode correctly even if the client decodes a plus as a space.
    return lambda text: quote(text, safe="/*-._")


def _entry(info: ObjectInfo | DamagedObject, encode: Callable[[str], str], *, owner: bool) -> dict[str, Any]:
    members: dict[str, Any] = {
        "Key": encode(info.key),
        "LastModified": timestamp(info.modified_ms),
        "ETag": quoted(info.etag),
        "Size": info.size_bytes,
        "StorageClass": DAMAGED if isinstance(info, DamagedObject) else storage_class_of(info.headers),
    }
    if isinstance(info, ObjectInfo) and info.checksums:
        members["ChecksumAlgorithm"] = [name.removeprefix("Checksum") for name in info.checksums]
        members["ChecksumType"] = info.checksum_type
    if owner:
        members["Owner"] = OWNER
    return members


def _start_after(marker: str, delimiter: str) -> bytes:
    """Return the start of a page; a marker that is a common prefix skips all keys below it."""
    if not marker:
        return b""
    return after_prefix(marker) if delimiter and marker.endswith(delimiter) else after_key(marker)


def _token(start: bytes) -> str:
    return base64.urlsafe_b64encode(b"1" + start).decode()


def _start_of_token(token: str) -> bytes:
    try:
        data = base64.b64decode(token, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not data.startswith(b"1"):
        raise InvalidArgument(f"the continuation token {token[:128]!r} is not one of this service; begin anew without")
    return data[1:]
