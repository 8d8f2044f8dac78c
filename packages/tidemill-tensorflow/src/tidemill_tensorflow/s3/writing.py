"""Writing an object: parts are uploaded while the script goes on, and the object appears whole or not at all."""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from tidemill_tensorflow.s3.failures import NOT_FOUND, FilesystemError, as_filesystem_error
from tidemill_tensorflow.s3.location import Location

__all__ = ["ObjectWriter"]

PART_SIZE = 16 * 1024 * 1024
"""Bytes of the first parts of a multipart upload; an object that is not larger is put by one request."""
_PARTS_PER_SIZE = 1000
"""After so many parts they get larger by `PART_SIZE`: S3 takes 10,000 of them, so an object may have 880 GB."""
_MAX_COPY = 4 * 1024 * 1024 * 1024
_UPLOADS_AT_ONCE = 2


class ObjectWriter:
    """One object that is being written.

    What was flushed is an object that others can read. Writing more after that keeps it until the next flush or the
    close, which replace it: a large one is not sent again, the service copies it.

    One thread writes at a time: TensorFlow sees to that.
    """

    def __init__(self, client: Any, location: Location, *, append: bool) -> None:
        """Begin with an empty object, or with the existing content.

        Raises:
            FilesystemError: What is there cannot be read.
        """
        self._client = client
        self._location = location
        self._buffer = bytearray()
        self._upload: _MultipartUpload | None = None
        self._position = 0
        self._published: int | None = None
        """Length of the object that others can see, None if there is none of this writer's."""
        if append:
            self._take_over()

    @property
    def position(self) -> int:
        """How many bytes the object has so far."""
        return self._position

    def append(self, data: memoryview) -> None:
        """Add bytes.

        Raises:
            FilesystemError: An upload failed, of these or of earlier bytes.
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
        """Make everything so far an object that others can read.

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
        """Write the rest. If that fails, the object stays as it was."""
        try:
            self.flush()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Discard the data that was not flushed."""
        self._buffer = bytearray()
        if self._upload is not None:
            upload, self._upload = self._upload, None
            upload.abort()

    @property
    def _continues_large_object(self) -> bool:
        """Whether the beginning of the object is only in S3, not in the buffer."""
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
        """Go on behind the last byte of the object that is there."""
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
    """One multipart upload. Two parts are on their way while the next is filled."""

    def __init__(self, client: Any, location: Location) -> None:
        self._client = client
        self._location = location
        with as_filesystem_error(location):
            self._id = client.create_multipart_upload(**location.parameters)["UploadId"]
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="tidemill-s3-upload")
        self._sent: list[Future[str]] = []

    @property
    def parts(self) -> int:
        """How many parts were begun."""
        return len(self._sent)

    def copy(self, length: int) -> None:
        """Make the first bytes of the object that is there the first parts of the new one."""
        for start in range(0, length, _MAX_COPY):
            last = min(start + _MAX_COPY, length) - 1
            self._submit(self._copy_part, f"bytes={start}-{last}")

    def send(self, data: bytearray) -> None:
        """Begin to upload the next part, as soon as there is room for it.

        Raises:
            FilesystemError: An earlier part could not be uploaded.
        """
        if self.parts >= _UPLOADS_AT_ONCE:
            self._sent[-_UPLOADS_AT_ONCE].result()
        self._submit(self._send_part, data)

    def complete(self) -> None:
        """Make the parts one object.

        Raises:
            FilesystemError: A part could not be uploaded, or S3 refuses. Nothing is left of the upload then.
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
        """Remove what was uploaded. If that fails, say so: nothing else will remove the parts."""
        self._pool.shutdown(wait=True)
        try:
            with as_filesystem_error(self._location):
                self._client.abort_multipart_upload(**self._parameters)
        except FilesystemError as error:
            if error.code == NOT_FOUND:  # removed by someone else
                return
            # A line, not an error: the caller is about to learn of the failure that made the upload end.
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
