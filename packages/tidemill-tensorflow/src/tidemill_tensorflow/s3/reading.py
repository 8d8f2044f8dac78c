"""Read an object by ranged requests, with a growing read-ahead while reads are sequential."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

from tidemill_tensorflow.s3.failures import OUT_OF_RANGE, UNAVAILABLE, FilesystemError, as_filesystem_error
from tidemill_tensorflow.s3.location import Location

MIN_AHEAD = 256 * 1024
MAX_AHEAD = 8 * 1024 * 1024
"""Size of a read-ahead request, in bytes: the first one, and the largest one."""
_CHUNK = 1024 * 1024
_ATTEMPTS = 5
_NOTHING = memoryview(b"")


class ObjectReader:
    """Open object. TensorFlow reads it from several threads at once.

    Requests after the first one require the same ETag, so that a reader never mixes an old object with a new one.
    """

    def __init__(self, client: Any, location: Location) -> None:
        self._client = client
        self._location = location
        self._lock = threading.Lock()
        self._etag: str | None = None
        self._size: int | None = None
        self._window = _NOTHING
        self._window_start = 0
        self._ahead = MIN_AHEAD

    def read_into(self, offset: int, target: memoryview) -> int:
        """Read bytes from `offset` into `target`, and return their number: less than its size only at the end.

        Raises:
            FilesystemError: The object does not exist, was replaced after the first read, or S3 does not answer.
        """
        if len(target) > MAX_AHEAD:
            return self._fetch(offset, target)
        with self._lock:
            done = self._copy_from_window(offset, target)
            if done < len(target) and not self._is_end(offset + done):
                self._move_window(offset + done, len(target) - done)
                done += self._copy_from_window(offset + done, target[done:])
            return done

    def discard(self) -> None:
        """Discard the bytes that were read ahead."""
        self._window = _NOTHING

    def _is_end(self, offset: int) -> bool:
        return self._size is not None and offset >= self._size

    def _copy_from_window(self, offset: int, target: memoryview) -> int:
        start = offset - self._window_start
        if not 0 <= start < len(self._window):
            return 0
        found = self._window[start : start + len(target)]
        target[: len(found)] = found
        return len(found)

    def _move_window(self, offset: int, wanted: int) -> None:
        """Fetch the read-ahead window at `offset`. The window doubles if it directly follows the last one."""
        goes_on = len(self._window) > 0 and offset == self._window_start + len(self._window)
        self._ahead = min(2 * self._ahead, MAX_AHEAD) if goes_on else MIN_AHEAD
        length = max(wanted, self._ahead)
        if self._size is not None:
            length = min(length, self._size - offset)
        room = memoryview(bytearray(length))
        self._window, self._window_start = room[: self._fetch(offset, room)], offset

    def _fetch(self, offset: int, target: memoryview) -> int:
        """Read from S3 into `target`. After a broken connection, continue behind the last byte received."""
        done = 0
        for attempt in range(_ATTEMPTS):
            try:
                for piece in self._pieces(offset + done, len(target) - done):
                    target[done : done + len(piece)] = piece
                    done += len(piece)
                break
            except FilesystemError as error:
                if error.code != UNAVAILABLE or attempt == _ATTEMPTS - 1:
                    raise
        return done

    def _pieces(self, offset: int, length: int) -> Any:
        """Yield the bytes of a range as they arrive; nothing if the range is behind the end of the object."""
        if length <= 0 or self._is_end(offset):
            return
        parameters = {**self._location.parameters, "Range": f"bytes={offset}-{offset + length - 1}"}
        if self._etag is not None:
            parameters["IfMatch"] = self._etag
        try:
            with as_filesystem_error(self._location):
                answer = self._client.get_object(**parameters)
        except FilesystemError as error:
            if error.code != OUT_OF_RANGE:
                raise
            return  # an empty object, or a position behind its end
        self._etag = answer["ETag"]
        self._size = int(answer.get("ContentRange", f"/{answer['ContentLength']}").rpartition("/")[2])
        with closing(answer["Body"]) as body, as_filesystem_error(self._location):
            yield from body.iter_chunks(_CHUNK)
