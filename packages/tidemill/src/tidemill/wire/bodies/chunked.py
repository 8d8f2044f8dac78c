"""The ``aws-chunked`` form of S3 uploads: chunks, with or without a signature each, then trailers.

A decoder gets the bytes as they arrive and returns payload. It returns bytes before the signature of their chunk is
verified, so nothing may be published before ``finish`` has returned.
"""

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from tidemill.errors import AwsError

MAX_CHUNK_BYTES = 16 * 1024 * 1024
MAX_LINE_BYTES = 1024
MAX_TRAILERS = 16
TRAILER_SIGNATURE = "x-amz-trailer-signature"

_SIZE = re.compile(rb"[0-9a-fA-F]{1,8}")
_SIGNATURE = re.compile(rb"chunk-signature=([0-9a-f]{64})")
_TRAILER = re.compile(rb"([a-z0-9\-]{1,128}):[ \t]*([\x21-\x7e][\x20-\x7e]*?)[ \t]*")
_EMPTY_SHA256 = hashlib.sha256().hexdigest()


@dataclass(slots=True)
class ChunkSigner:
    """Computes the chain of signatures, each of which signs the previous one."""

    key: bytes
    stamp: str
    scope: str
    previous: str
    """The previous signature; at first that of the request's head."""

    def chunk(self, digest: str) -> str:
        """Return the signature of a chunk whose SHA-256 is ``digest``.

        Args:
            digest: 64 hexadecimal digits.

        Returns:
            64 hexadecimal digits.
        """
        return self._next("AWS4-HMAC-SHA256-PAYLOAD", f"{_EMPTY_SHA256}\n{digest}")

    def trailer(self, digest: str) -> str:
        """Return the signature of the trailer lines.

        Args:
            digest: SHA-256 of the lines, 64 hexadecimal digits.

        Returns:
            64 hexadecimal digits.
        """
        return self._next("AWS4-HMAC-SHA256-TRAILER", digest)

    def _next(self, kind: str, rest: str) -> str:
        text = f"{kind}\n{self.stamp}\n{self.scope}\n{self.previous}\n{rest}"
        self.previous = hmac.digest(self.key, text.encode("utf-8"), "sha256").hex()
        return self.previous


class ChunkedDecoder:
    """Decodes one body.

    Args:
        decoded_bytes: Announced size of the payload; None if the request did not announce it.
        signer: Signer of signed chunks; None for unsigned ones.
        trailers: Names of the announced trailers; None for the form without trailers.
    """

    def __init__(
        self, *, decoded_bytes: int | None, signer: ChunkSigner | None, trailers: frozenset[str] | None
    ) -> None:
        self._expected_bytes = decoded_bytes
        self._signer = signer
        self._announced = trailers
        self._received_bytes = 0
        self._line = bytearray()
        self._left_bytes = 0
        self._chunk_signature = ""
        self._digest = hashlib.sha256()
        self._trailers: list[tuple[str, str]] = []
        self._step: Callable[[bytes, int, list[bytes]], int] = self._read_head
        self._is_done = False

    def feed(self, data: bytes) -> list[bytes]:
        """Decode the next bytes of the body and return the payload in them.

        Raises:
            AwsError: The form, a size or a signature is wrong.
        """
        pieces: list[bytes] = []
        position = 0
        while position < len(data):
            if self._is_done:
                _refuse("InvalidRequest", "There are bytes after the last chunk of the body.")
            position = self._step(data, position, pieces)
        return pieces

    def finish(self) -> dict[str, str]:
        """Check that the body is complete at its end.

        Returns:
            The trailers by name.

        Raises:
            AwsError: The body ended too early, or announced and received trailers differ.
        """
        if not self._is_done:
            _refuse("IncompleteBody", "The body ended in the middle of a chunk, or before the last one.")
        if self._expected_bytes is not None and self._received_bytes != self._expected_bytes:
            self._refuse_length()
        return {name: value for name, value in self._trailers if name != TRAILER_SIGNATURE}

    def _read_head(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        line, position = self._take_line(data, position)
        if line is None:
            return position
        size_text, _, extension = line.partition(b";")
        if not _SIZE.fullmatch(size_text):
            shown = size_text[:32].decode("latin-1")
            _refuse("InvalidChunkSizeError", f"A chunk size is 1 to 8 hexadecimal digits; received {shown!r}.")
        self._left_bytes = int(size_text, 16)
        if self._left_bytes > MAX_CHUNK_BYTES:
            _refuse(
                "InvalidChunkSizeError",
                f"A chunk of {self._left_bytes} bytes; at most {MAX_CHUNK_BYTES} are allowed.",
            )
        if self._signer is not None:
            found = _SIGNATURE.fullmatch(extension)
            if not found:
                _refuse("SignatureDoesNotMatch", "A chunk carries no chunk-signature.")
            self._chunk_signature = found[1].decode("ascii")
            self._digest = hashlib.sha256()
        if self._left_bytes:
            self._step = self._read_data
        else:
            self._end_chunk()
            self._step = self._read_end if self._announced is None else self._read_trailer
        return position

    def _read_data(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        end = min(position + self._left_bytes, len(data))
        piece = data[position:end]
        self._left_bytes -= len(piece)
        self._received_bytes += len(piece)
        if self._expected_bytes is not None and self._received_bytes > self._expected_bytes:
            self._refuse_length()
        if self._signer is not None:
            self._digest.update(piece)
        pieces.append(piece)
        if not self._left_bytes:
            self._end_chunk()
            self._step = self._read_data_end
        return end

    def _read_data_end(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        position = self._take_line_end(data, position)
        if not self._line:
            self._step = self._read_head
        return position

    def _read_end(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        position = self._take_line_end(data, position)
        self._is_done = not self._line
        return position

    def _read_trailer(self, data: bytes, position: int, pieces: list[bytes]) -> int:
        line, position = self._take_line(data, position)
        if line is None:
            return position
        if line:
            found = _TRAILER.fullmatch(line)
            if not found or len(self._trailers) >= MAX_TRAILERS:
                _refuse("MalformedTrailerError", f"The trailer line {line[:64].decode('latin-1')!r} cannot be read.")
            self._trailers.append((found[1].decode("ascii"), found[2].decode("ascii")))
        else:
            self._end_trailers()
            self._is_done = True
        return position

    def _end_chunk(self) -> None:
        if self._signer is None:
            return
        expected = self._signer.chunk(self._digest.hexdigest())
        if not hmac.compare_digest(expected, self._chunk_signature):
            _refuse("SignatureDoesNotMatch", "The signature of a chunk does not match its bytes.")

    def _end_trailers(self) -> None:
        names = [name for name, _ in self._trailers]
        wanted = set(self._announced or ())
        if self._signer is not None:
            wanted.add(TRAILER_SIGNATURE)
        if set(names) != wanted or len(names) != len(wanted):
            _refuse(
                "MalformedTrailerError",
                f"The trailers announced and received differ: expected {sorted(wanted)}, received {sorted(names)}.",
            )
        if self._signer is None:
            return
        text = "".join(f"{name}:{value}\n" for name, value in self._trailers if name != TRAILER_SIGNATURE)
        expected = self._signer.trailer(hashlib.sha256(text.encode("ascii")).hexdigest())
        if not hmac.compare_digest(expected, dict(self._trailers)[TRAILER_SIGNATURE]):
            _refuse("SignatureDoesNotMatch", "The signature of the trailers does not match.")

    def _take_line(self, data: bytes, position: int) -> tuple[bytes | None, int]:
        """Return the line up to the next CRLF, or None until it is complete."""
        end = data.find(b"\n", position, position + MAX_LINE_BYTES + 2)
        stop = len(data) if end < 0 else end + 1
        if len(self._line) + stop - position > MAX_LINE_BYTES + 2:
            _refuse("InvalidRequest", f"A line between chunks is longer than {MAX_LINE_BYTES} bytes.")
        self._line += data[position:stop]
        if end < 0:
            return None, stop
        if not self._line.endswith(b"\r\n"):
            _refuse("InvalidRequest", "A line between chunks must end in CR LF.")
        line = bytes(self._line[:-2])
        self._line.clear()
        return line, stop

    def _take_line_end(self, data: bytes, position: int) -> int:
        """Consume a CRLF; while only its CR has arrived, the CR stays in the line buffer."""
        taken = data[position : position + 2 - len(self._line)]
        self._line += taken
        if not b"\r\n".startswith(self._line):
            _refuse("InvalidRequest", "A chunk's bytes must be followed by CR LF.")
        if len(self._line) == 2:
            self._line.clear()
        return position + len(taken)

    def _refuse_length(self) -> NoReturn:
        _refuse(
            "IncompleteBody",
            f"You did not provide the number of bytes specified by x-amz-decoded-content-length:"
            f" {self._expected_bytes} announced, {self._received_bytes} received.",
        )


def _refuse(code: str, message: str) -> NoReturn:
    raise AwsError(message, code=code)
