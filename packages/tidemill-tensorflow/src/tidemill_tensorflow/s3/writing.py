"""Write an object: parts are uploaded while the script continues, and the object becomes visible only as a whole."""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tidemill_tensorflow.s3.failures import NOT_FOUND, FilesystemError, as_filesystem_error
from tidemill_tensorflow.s3.location import Location

PART_SIZE = 16 * 1024 * 1024
"""Size in bytes of the first 1,000 parts of a multipart upload. Smaller objects are written by one request."""
_PARTS_PER_SIZE = 1000
"""Number of parts after which parts grow by `PART_SIZE`. S3 allows 10,000 parts, so an object may have 880 GB."""
_MAX_COPY = 4 * 1024 * 1024 * 1024
_UPLOADS_AT_ONCE = 2


class ObjectWriter:
    """Object that is being written.

    A flush makes all bytes so far a readable object. The next flush or the close replaces that object. Flushed bytes of
    a large object are not sent again; the service copies them.

    TensorFlow ensures that only one thread writes at a time.
    """

    def __init__(self, client: Any, location: Location, *, append: bool) -> None:
        """Begin with an empty object, or with the existing content.

        Raises:
            FilesystemError: The existing object cannot be read.
        """
        self._client = client
        self._location = location
        self._buffer = bytearray()
        self._upload: _MultipartUpload | None = None
        self._position = 0
        self._published: int | None = None
        """Length of the object at the last flush; None if this writer has not flushed yet."""
        if append:
            self._take_over()

    @property
    def position(self) -> int:
        """Number of bytes written so far, including existing content."""
        return self._position

    def append(self, data: memoryview) -> None:
        """Append bytes.

        Raises:
            FilesystemError: The upload of these bytes or of earlier ones failed.
        """
        while data:
            size = self._part_size
            taken = data[: size - len(self._buffer)]
            self._buffer += taken
            self._position += len(taken)
            data = data[len(taken) :]
            if len(self._buffer) == size:
                self._send_part()

    def flush(self) -> None:
        """Make all bytes so far a readable object.

        Raises:
            FilesystemError: An upload failed.
        """
        if self._published == self._position:
            return
        if self._upload is None and not self._continues_large_object:
            with as_filesystem_error(self._location):
                self._client.put_object(**self._location.parameters, Body=bytes(self._buffer))
        else:
            if self._buffer:
                self._send_part()
            upload, self._upload = self._upload, None
            assert upload is not None
            upload.complete()
        self._published = self._position

    def close(self) -> None:
        """Write the remaining bytes. If that fails, the object stays as it was."""
        try:
            self.flush()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Discard the bytes that were not flushed."""
        self._buffer = bytearray()
        if self._upload is not None:
            upload, self._upload = self._upload, None
            upload.abort()

    @property
    def _continues_large_object(self) -> bool:
        """Whether the first bytes of the object are in S3, and no longer in the buffer."""
        return self._position > len(self._buffer)

    @property
    def _part_size(self) -> int:
        parts = self._upload.parts if self._upload is not None else 0
        return PART_SIZE * (1 + parts // _PARTS_PER_SIZE)

    def _send_part(self) -> None:
        if self._upload is None:
            copied = self._published if self._continues_large_object and self._published is not None else 0
            self._upload = _MultipartUpload(self._client, self._location)
            self._upload.copy(copied)
        data, self._buffer = self._buffer, bytearray()
        self._upload.send(data)

    def _take_over(self) -> None:
        """Continue behind the last byte of the existing object, if there is one."""
        try:
            with as_filesystem_error(self._location):
                found = self._client.head_object(**self._location.parameters)
                length = found["ContentLength"]
                if length < PART_SIZE:
                    answer = self._client.get_object(**self._location.parameters, IfMatch=found["ETag"])
                    self._buffer += answer["Body"].read()
        except FilesystemError as error:
            if error.code != NOT_FOUND:
                raise
            return
        self._position = self._published = length


class _MultipartUpload:
    """Multipart upload. Two parts are uploaded while the next part is filled."""

    def __init__(self, client: Any, location: Location) -> None:
        self._client = client
        self._location = location
        with as_filesystem_error(location):
            self._id = client.create_multipart_upload(**location.parameters)["UploadId"]
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="tidemill-s3-upload")
        self._sent: list[Future[str]] = []

    @property
    def parts(self) -> int:
        """Number of parts whose upload has begun."""
        return len(self._sent)

    def copy(self, length: int) -> None:
        """Copy the first bytes of the existing object into the first parts of the new object.

        The parts are about equal: S3 refuses an object with a part below 5 MiB that is not the last one.
        """
        count = -(-length // _MAX_COPY)
        ends = [length * part // count for part in range(1, count + 1)]
        for start, end in zip([0, *ends], ends):
            self._submit(self._copy_part, f"bytes={start}-{end - 1}")

    def send(self, data: bytearray) -> None:
        """Start the upload of the next part; first wait until fewer than two uploads are running.

        Raises:
            FilesystemError: The upload of an earlier part failed.
        """
        if self.parts >= _UPLOADS_AT_ONCE:
            self._sent[-_UPLOADS_AT_ONCE].result()
        self._submit(self._send_part, data)

    def complete(self) -> None:
        """Complete the upload, which makes one object of the parts.

        Raises:
            FilesystemError: The upload of a part failed, or S3 refuses. All parts are then removed.
        """
        try:
            parts = [{"PartNumber": number, "ETag": sent.result()} for number, sent in enumerate(self._sent, 1)]
            with as_filesystem_error(self._location):
                self._client.complete_multipart_upload(**self._parameters, MultipartUpload={"Parts": parts})
        except BaseException:
            self.abort()
            raise
        self._pool.shutdown()

    def abort(self) -> None:
        """Remove the uploaded parts. If that fails, log it, because nothing else removes them."""
        self._pool.shutdown(wait=True)
        try:
            with as_filesystem_error(self._location):
                self._client.abort_multipart_upload(**self._parameters)
        except FilesystemError as error:
            if error.code == NOT_FOUND:  # removed by someone else
                return
            # Logged, not raised: the caller raises the error that ended the upload.
            sys.stderr.write(
                f"tidemill: the unfinished upload {self._id} of {self._location} stays in S3 and takes space there:"
                f" {error}. Remove it with AbortMultipartUpload\n"
            )

    @property
    def _parameters(self) -> dict[str, str]:
        return {**self._location.parameters, "UploadId": self._id}

    def _submit(self, function: Any, argument: Any) -> None:
        self._sent.append(self._pool.submit(function, self.parts + 1, argument))

    def _send_part(self, number: int, data: bytearray) -> str:
        with as_filesystem_error(self._location):
            answer = self._client.upload_part(**self._parameters, PartNumber=number, Body=bytes(data))
        return answer["ETag"]

    def _copy_part(self, number: int, span: str) -> str:
        with as_filesystem_error(self._location):
            answer = self._client.upload_part_copy(
                **self._parameters, PartNumber=number, CopySource=self._location.parameters, CopySourceRange=span
            )
        return answer["CopyPartResult"]["ETag"]
