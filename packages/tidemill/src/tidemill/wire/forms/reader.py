"""Read a multipart/form-data body piece by piece: first the fields, then the bytes of the file, which comes last."""

import re

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import Receive

_MAX_FIELDS_BYTES = 20 * 1024
"""Maximum size of everything before the file, as on AWS."""
_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))', re.IGNORECASE)
_PARAMETER = re.compile(r';\s*(name|filename)=(?:"((?:[^"\\]|\\.)*)"|([^\s;]+))', re.IGNORECASE)
_MIN_PIECE_BYTES = 64 * 1024


class FormReader:
    """Reads one form.

    Args:
        receive: Receives the body.
        content_type: The Content-Type header of the request.

    Raises:
        AwsError: MalformedPOSTRequest (400), the header has no boundary.
    """

    def __init__(self, receive: Receive, content_type: str) -> None:
        found = _BOUNDARY.search(content_type)
        if found is None:
            raise _malformed("its Content-Type has no boundary")
        self._delimiter = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
        self._receive = receive
        self._buffer = bytearray(b"\r\n")  # the first boundary has no line end before it
        self._more = True
        self._left_bytes = _MAX_FIELDS_BYTES
        self._at_end = False

    async def fields(self) -> tuple[dict[str, str], str]:
        """Read all fields before the file.

        Returns:
            The values by name in lower case, and the name of the file as the browser sent it, without directories.

        Raises:
            AwsError: MalformedPOSTRequest, MaxPostPreDataLengthExceededError.
        """
        fields: dict[str, str] = {}
        await self._until(self._delimiter)
        while True:
            if await self._take(2) != b"\r\n":
                raise AwsError(
                    "POST requires exactly one file upload per request: the form has no field named file.",
                    code="InvalidArgument",
                )
            name, filename = _disposition(await self._until(b"\r\n\r\n"))
            if name == "file":
                return fields, filename.replace("\\", "/").rpartition("/")[2]
            if name in fields:
                raise _malformed(f"the field {name!r} occurs twice")
            try:
                fields[name] = (await self._until(self._delimiter)).decode("utf-8")
            except UnicodeDecodeError:
                raise _malformed(f"the field {name!r} is not UTF-8") from None

    async def receive_file(self) -> tuple[bytes, bool]:
        """Return the next bytes of the file and whether more follow; that is false when the whole request is read.

        Raises:
            AwsError: MalformedPOSTRequest: the body ends within the file.
        """
        while not self._at_end:
            at = self._buffer.find(self._delimiter)
            if at >= 0:
                piece, self._at_end = bytes(self._buffer[:at]), True
                return piece, True
            safe = len(self._buffer) - len(self._delimiter)
            if safe >= _MIN_PIECE_BYTES:
                piece = bytes(self._buffer[:safe])
                del self._buffer[:safe]
                return piece, True
            if not self._more:
                raise _malformed("it ends before the boundary after the file")
            await self._pull()
        while self._more:  # what stands behind the file is ignored, as on AWS
            self._buffer.clear()
            await self._pull()
        return b"", False

    async def _until(self, mark: bytes) -> bytes:
        """Read to ``mark``, and return the bytes before it."""
        start = 0
        while (at := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark) + 1)
            if not self._more:
                raise _malformed("it ends within a field")
            if len(self._buffer) > self._left_bytes + _MIN_PIECE_BYTES:
                raise self._too_long()
            await self._pull()
        if at > self._left_bytes:
            raise self._too_long()
        self._left_bytes -= at + len(mark)
        found = bytes(self._buffer[:at])
        del self._buffer[: at + len(mark)]
        return found

    async def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            if not self._more:
                raise _malformed("it ends after a boundary")
            await self._pull()
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def _pull(self) -> None:
        data, self._more = await self._receive()
        self._buffer += data

    @staticmethod
    def _too_long() -> AwsError:
        return AwsError(
            f"Your POST request fields preceding the upload file were too large: at most {_MAX_FIELDS_BYTES} bytes are"
            " allowed.",
            code="MaxPostPreDataLengthExceededError",
            close=True,
        )


def _disposition(head: bytes) -> tuple[str, str]:
    """Return the name in lower case and the file name of a part."""
    for line in head.decode("utf-8", "replace").split("\r\n"):
        header, _, value = line.partition(":")
        if header.strip().lower() == "content-disposition":
            found = {
                each[1].lower(): each[2].replace('\\"', '"') if each[2] is not None else each[3]
                for each in _PARAMETER.finditer(value)
            }
            if "name" in found:
                return found["name"].lower(), found.get("filename", "")
    raise _malformed("a part has no Content-Disposition with a name")


def _malformed(why: str) -> AwsError:
    return AwsError(
        f"The body of your POST request is not well-formed multipart/form-data: {why}.",
        code="MalformedPOSTRequest",
        close=True,
    )
