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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from tidemill.core.remotes import RemoteS3
from tidemill.errors import ServiceUnavailable
from tidemill.instance.remote_s3 import RemoteUnusable, remote_client
from tidemill.store.objects.errors import ContentMissing

__all__ = ["PART_BYTES", "BucketUnavailable", "RemoteBucket", "RemoteReader"]

_log = structlog.get_logger("tidemill.store")

PART_BYTES = 8 * 1024 * 1024
"""Contents above this size are uploaded in parts, each of which has at least this size (except the last)."""
_MIB = 1024 * 1024
_PARTS_MAX = 10_000
_PARTS_AT_ONCE = 4
_CONNECT_TIMEOUT_S = 4
_READ_TRIES = 5
_FIRST_PAUSE_S = 0.2
_NETWORK = "check its endpoint_url and the network"
_MISSING = ("404", "NoSuchKey", "NotFound")


class RemoteBucket:
    """One bucket of a remote S3. May be used by several threads.

    Args:
        name: Name of the bucket.
        remote: Address and credentials of the S3.
        pattern: Name of the S3 in the setting ``remote_s3``, for messages.
    """

    def __init__(self, name: str, remote: RemoteS3, *, pattern: str) -> None:
        self.name = name
        self.place = f"{remote.endpoint_url} (remote_s3 {pattern!r})"
        self._remote = remote
        self._lock = threading.Lock()
        self._made: Any = None

    def put(self, key: str, file: Path, *, size_bytes: int, md5: str, abandoned: threading.Event) -> None:
        """Upload a file. The store checks the MD5 of every request.

        Args:
            key: Key of the object.
            file: The file.
            size_bytes: Length of the file.
            md5: MD5 of the file, hexadecimal.
            abandoned: Set if the upload is not needed any more; then it ends after the current parts.

        Raises:
            ServiceUnavailable: The file is not stored, or it is unknown whether it is.
        """
        if size_bytes > PART_BYTES:
            self._put_parts(key, file, size_bytes, abandoned)
            return
        with self._asked(f"storing {key}") as client:
            digest = base64.b64encode(bytes.fromhex(md5)).decode()
            client.put_object(Bucket=self.name, Key=key, Body=file.read_bytes(), ContentMD5=digest)

    def get(self, key: str, *, offset: int, size_bytes: int | None, etag: str = "") -> dict[str, Any]:
        """Return the answer of GetObject for a range of bytes.

        Args:
            key: Key of the object.
            offset: Offset of the first byte.
            size_bytes: Number of bytes, at least 1; None for all bytes from ``offset`` on.
            etag: ETag that the object must have. Default: any.

        Raises:
            ContentMissing: There is no such object, or it has another ETag.
            ServiceUnavailable: The store does not answer, or refuses.
        """
        options: dict[str, str] = {"IfMatch": etag} if etag else {}
        if offset or size_bytes is not None:
            options["Range"] = f"bytes={offset}-{'' if size_bytes is None else offset + size_bytes - 1}"
        with self._asked(f"reading {key}") as client:
            return dict(client.get_object(Bucket=self.name, Key=key, **options))

    def remove(self, key: str, *, uploading: bool) -> None:
        """Remove an object, whether or not it exists.

        Args:
            key: Key of the object.
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
                with ThreadPoolExecutor(_PARTS_AT_ONCE, thread_name_prefix="upload") as pool:
                    try:
                        parts = list(pool.map(send, range(1, math.ceil(size_bytes / part_bytes) + 1)))
                    except BaseException:
                        pool.shutdown(cancel_futures=True)
                        raise
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
                for each in found:
                    if each["Key"] == key:
                        client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=each["UploadId"])
            except ClientError as error:
                # Not every store or policy allows this; then the lifecycle rules of the bucket must remove the parts.
                if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500:
                    raise
                _log.warning("objects.parts_remain", key=key, reason=str(error))

    @contextlib.contextmanager
    def _asked(self, doing: str) -> Iterator[Any]:
        """Yield the client, and turn its errors into ContentMissing or ServiceUnavailable."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.exceptions import HTTPClientError as BrokenConnection

        try:
            yield self._client()
        except ClientError as error:
            answer = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = answer.get("Code", "")
            if code in _MISSING or status == 412:
                raise ContentMissing(f"it was removed or replaced there: HTTP {status} {code}") from error
            said = f"HTTP {status}" if code == str(status) else f"HTTP {status} {code}: {answer.get('Message', '')}"
            raise self._unavailable(doing, said.rstrip(": "), status) from error
        except RemoteUnusable as error:
            raise self._unavailable(doing, str(error), 403) from error
        except (BotoCoreError, BrokenConnection, OSError) as error:
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

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = remote_client(self._remote, connect_timeout_s=_CONNECT_TIMEOUT_S)
            return self._made


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


class RemoteReader:
    """Reads a range of an object in order. After a broken connection, reading continues over a new connection.

    Args:
        bucket: Bucket of the object.
        key: Key of the object.
        offset: Offset of the first byte.
        size_bytes: Number of bytes, at least 1.
        whole_bytes: Expected length of the whole object.
    """

    def __init__(self, bucket: RemoteBucket, key: str, *, offset: int, size_bytes: int, whole_bytes: int) -> None:
        self._bucket = bucket
        self._key = key
        self._offset = offset
        self._left_bytes = size_bytes
        self._whole_bytes = whole_bytes
        self._etag = ""
        self._body: Any = None

    def read(self, size_bytes: int) -> bytes:
        """Return the next bytes, at most ``size_bytes``; empty at the end.

        Raises:
            ContentMissing: The object was removed or replaced, or has another length.
            ServiceUnavailable: The store does not answer, or refuses.
        """
        pause_s = _FIRST_PAUSE_S
        for tries_left in reversed(range(_READ_TRIES)):
            if not self._left_bytes:
                return b""
            piece, error = self._try(min(size_bytes, self._left_bytes))
            if piece:
                self._offset += len(piece)
                self._left_bytes -= len(piece)
                return piece
            self.close()
            if not tries_left:
                raise BucketUnavailable(
                    f"the S3 that holds contents broke off at byte {self._offset} of {self._key} in bucket"
                    f" {self._bucket.name!r} of {self._bucket.place}: {error or 'the answer ended early'}",
                    advice=_NETWORK,
                    refused=False,
                )
            threading.Event().wait(pause_s)
            pause_s *= 2
        return b""

    def close(self) -> None:
        """End the transfer."""
        if self._body is not None:
            self._body.close()
            self._body = None

    def _try(self, size_bytes: int) -> tuple[bytes, Exception | None]:
        from botocore.exceptions import BotoCoreError
        from urllib3.exceptions import HTTPError

        try:
            self._body = self._body or self._opened()
            return self._body.read(size_bytes), None
        except (BotoCoreError, HTTPError, OSError) as error:
            return b"", error

    def _opened(self) -> Any:
        answer = self._bucket.get(self._key, offset=self._offset, size_bytes=self._left_bytes, etag=self._etag)
        content_range = answer.get("ContentRange") or f"/{answer['ContentLength']}"
        self._etag, found = answer.get("ETag", ""), content_range.rpartition("/")[2]
        if found != str(self._whole_bytes) or answer["ContentLength"] != self._left_bytes:
            answer["Body"].close()
            raise ContentMissing(f"it was replaced there: it has {found} bytes of {self._whole_bytes}")
        return answer["Body"]


def _read(file: Path, offset: int, size_bytes: int) -> bytes:
    with file.open("rb", buffering=0) as opened:
        pieces = bytearray()
        while len(pieces) < size_bytes and (piece := os.pread(opened.fileno(), size_bytes - len(pieces), offset)):
            pieces += piece
            offset += len(piece)
        return bytes(pieces)
