"""Requests to the remote S3 that stores contents: put, read a range, remove. All functions block; call them in threads.

botocore repeats a request after a transient error. If the request still fails, ServiceUnavailable is raised with the
message of the store.
"""

import base64
import contextlib
import hashlib
import math
import os
import threading
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.errors import ServiceUnavailable
from tidemill.instance.remote_s3 import RemoteUnusable
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import RemoteObject
from tidemill.instance.transfers import RemoteBody, RemoteFault, Transfers
from tidemill.store.objects.errors import ContentMissing

_log = structlog.get_logger("tidemill.store")

PART_BYTES = 8 * 1024 * 1024
"""Contents above this size are uploaded in parts, each of which has at least this size (except the last)."""
_MIB = 1024 * 1024
_PARTS_MAX = 10_000
_PARTS_AT_ONCE = 4
_CONNECT_TIMEOUT_S = 4
_NETWORK = "check its endpoint_url and the network"


class RemoteBucket:
    """One bucket of a remote S3. May be used by several threads.

    Args:
        remote: Address and credentials of the S3.
        pattern: Name of the S3 in the setting ``remote_s3``, for messages.
    """

    def __init__(self, name: str, remote: RemoteS3, *, pattern: str) -> None:
        self.name = name
        self.place = f"{remote.endpoint_url} (remote_s3 {pattern!r})"
        self._pattern = pattern
        self._stores = RemoteStores({pattern: remote}, connect_timeout_s=_CONNECT_TIMEOUT_S)
        self._transfers = Transfers(self._stores)

    def put(self, key: str, file: Path, *, size_bytes: int, md5: str, abandoned: threading.Event) -> None:
        """Upload a file. The store checks the MD5 of every request.

        Args:
            size_bytes: Length of the file.
            md5: MD5 of the file, hexadecimal; empty to compute it, as for the joined parts of an upload.
            abandoned: Set if the upload is not needed any more; then it ends after the current parts.

        Raises:
            ServiceUnavailable: The file is not stored, or it is unknown whether it is.
        """
        if size_bytes > PART_BYTES:
            self._put_parts(key, file, size_bytes, abandoned)
            return
        with self._asked(f"storing {key}") as client:
            body = file.read_bytes()
            digest = bytes.fromhex(md5) or hashlib.md5(body, usedforsecurity=False).digest()
            client.put_object(Bucket=self.name, Key=key, Body=body, ContentMD5=base64.b64encode(digest).decode())

    def read(self, key: str, *, whole_bytes: int, offset: int = 0, size_bytes: int | None = None) -> Generator[bytes]:
        """Yield a range of an object in pieces of at least 1 MiB, except the last one.

        Args:
            whole_bytes: Expected length of the whole object.
            offset: Offset of the first byte.
            size_bytes: Number of bytes, at least 1. Default: all from ``offset`` on.

        Raises:
            ContentMissing: The object was removed or replaced, or has another length.
            ServiceUnavailable: The store does not answer, or refuses.
        """
        uri = str(S3Uri(self.name, key))
        entry = RemoteObject(uri=uri, name=key, size_bytes=whole_bytes, etag="", remote=self._pattern)
        end = whole_bytes if size_bytes is None else offset + size_bytes
        try:
            with contextlib.closing(RemoteBody(entry, self._transfers).pieces(_MIB, start=offset, end=end)) as received:
                yield from _gathered(received, _MIB)
        except RemoteFault as fault:
            if fault.is_gone:
                raise ContentMissing(f"it was removed or replaced there: {fault.reason}") from fault
            raise self._unavailable(f"reading {key}", fault.reason, fault.status) from fault

    def close(self) -> None:
        """End all reads."""
        self._transfers.close()

    def remove(self, key: str, *, uploading: bool) -> None:
        """Remove an object, whether or not it exists.

        Args:
            uploading: Whether the upload of the object may have been interrupted; then its parts are removed, too.

        Raises:
            ServiceUnavailable: The store does not answer, or refuses.
        """
        if uploading:
            self._abort_uploads(key)
        with self._asked(f"removing {key}") as client:
            client.delete_object(Bucket=self.name, Key=key)

    def _put_parts(self, key: str, file: Path, size_bytes: int, abandoned: threading.Event) -> None:
        part_bytes = max(PART_BYTES, math.ceil(size_bytes / _PARTS_MAX / _MIB) * _MIB)
        with self._asked(f"storing {key}") as client:
            upload = {"Bucket": self.name, "Key": key}
            upload["UploadId"] = client.create_multipart_upload(**upload)["UploadId"]

            def send(number: int) -> dict[str, Any]:
                if abandoned.is_set():
                    raise ServiceUnavailable(f"the upload of {key} was given up")
                part = _read(file, (number - 1) * part_bytes, part_bytes)
                digest = base64.b64encode(hashlib.md5(part, usedforsecurity=False).digest()).decode()
                sent = client.upload_part(PartNumber=number, Body=part, ContentMD5=digest, **upload)
                return {"PartNumber": number, "ETag": sent["ETag"]}

            try:
                pool = ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="upload")
                try:
                    parts = list(pool.map(send, range(1, math.ceil(size_bytes / part_bytes) + 1)))
                finally:
                    pool.shutdown(cancel_futures=True)
                self._complete(client, upload, parts, size_bytes)
            except BaseException:
                with contextlib.suppress(Exception):  # the clean-up removes the remaining parts
                    client.abort_multipart_upload(**upload)
                raise

    def _complete(self, client: Any, upload: dict[str, str], parts: list[dict[str, Any]], size_bytes: int) -> None:
        from botocore.exceptions import ClientError

        try:
            client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        except ClientError as error:
            # The upload was completed but the answer was lost, so botocore has repeated the request.
            if error.response["Error"]["Code"] != "NoSuchUpload":
                raise
            found = client.head_object(Bucket=upload["Bucket"], Key=upload["Key"])
            if found["ContentLength"] != size_bytes:
                raise

    def _abort_uploads(self, key: str) -> None:
        from botocore.exceptions import ClientError

        with self._asked(f"removing parts of {key}") as client:
            try:
                found = client.list_multipart_uploads(Bucket=self.name, Prefix=key).get("Uploads", ())
                for upload_id in [each["UploadId"] for each in found if each["Key"] == key]:
                    client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload_id)
            except ClientError as error:
                # Not every store or policy allows this; then the lifecycle rules of the bucket must remove the parts.
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500:
                    raise
                _log.warning("objects.parts_remain", key=key, reason=str(error))

    @contextlib.contextmanager
    def _asked(self, doing: str) -> Generator[Any]:
        """Yield the client, and turn its errors into ServiceUnavailable."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield self._stores.client(self._pattern)
        except ClientError as error:
            answer = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = answer.get("Code", "")
            said = f"HTTP {status}" if code == str(status) else f"HTTP {status} {code}: {answer.get('Message', '')}"
            raise self._unavailable(doing, said.rstrip(": "), status) from error
        except RemoteUnusable as error:
            raise self._unavailable(doing, str(error), 403) from error
        except (BotoCoreError, OSError) as error:
            raise self._unavailable(doing, f"{error}", 0) from error

    def _unavailable(self, doing: str, reason: str, status: int) -> "BucketUnavailable":
        advice = _NETWORK if status == 0 else "see its logs"
        if status in (301, 400, 401, 403, 404):
            advice = "check bucket, region and credentials, and what they allow"
        return BucketUnavailable(
            f"the S3 that holds contents failed while {doing} in bucket {self.name!r} of {self.place}: {reason}",
            advice=advice,
            refused=400 <= status < 500 and status != 429,
        )


class BucketUnavailable(ServiceUnavailable):
    """A request to the remote S3 failed.

    Args:
        reason: The failed operation, and the message of the store.
        advice: What the user should do if the request fails again.
        refused: Whether the error is permanent: the bucket, the permission or the credentials are missing.
    """

    def __init__(self, reason: str, *, advice: str, refused: bool) -> None:
        super().__init__(f"{reason}; nothing was changed. Repeat the request later; if it fails again, {advice}")
        self.reason = reason
        self.advice = advice
        self.refused = refused


def _gathered(parts: Iterable[bytes], least_bytes: int) -> Iterator[bytes]:
    """Join parts to pieces of at least ``least_bytes``, except the last one."""
    piece = bytearray()
    for part in parts:
        piece += part
        if len(piece) >= least_bytes:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _read(file: Path, offset: int, size_bytes: int) -> bytes:
    with file.open("rb", buffering=0) as opened:
        pieces = bytearray()
        while len(pieces) < size_bytes and (piece := os.pread(opened.fileno(), size_bytes - len(pieces), offset)):
            pieces += piece
            offset += len(piece)
        return bytes(pieces)
