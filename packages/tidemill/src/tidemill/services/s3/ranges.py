"""Byte ranges: determines the requested slice of an object."""

import re
from dataclasses import dataclass

from tidemill.errors import AwsError
from tidemill.store.objects.errors import InvalidArgument
from tidemill.store.objects.index import ObjectInfo

_RANGE = re.compile(r"bytes=(?:(\d{1,19})-(\d{0,19})|-(\d{1,19}))", re.ASCII)
_COPY_RANGE = re.compile(r"bytes=(\d{1,19})-(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of an object's bytes; may be the whole object."""

    offset: int
    size_bytes: int

    def content_range(self, whole_bytes: int) -> str:
        """Return the ``Content-Range`` of a reply.

        Returns:
            For example ``bytes 0-99/1000``.
        """
        return f"bytes {self.offset}-{self.offset + self.size_bytes - 1}/{whole_bytes}"


def requested_slice(text: str | None, whole_bytes: int) -> Slice | None:
    """Return the slice that a ``Range`` header requests, or None for the whole object.

    Anything other than a single byte range is ignored.

    Raises:
        AwsError: InvalidRange (416): the object has no byte in the range.
    """
    match = _RANGE.fullmatch(text.replace(" ", "")) if text else None
    if text is None or match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        length = min(int(suffix), whole_bytes)
        start, end = whole_bytes - length, whole_bytes
    else:
        start = int(first)
        if last and int(last) < start:
            return None
        end = min(int(last) + 1, whole_bytes) if last else whole_bytes
    if start >= end:
        raise AwsError(
            f"the range {text!r} lies outside the object, which has {whole_bytes} bytes; ask for bytes below that",
            code="InvalidRange",
            headers={"content-range": f"bytes */{whole_bytes}"},
            members={"ActualObjectSize": whole_bytes, "RangeRequested": text},
        )
    return Slice(start, end - start)


def part_slice(info: ObjectInfo, part_number: int) -> Slice:
    """Return the byte range of a part of a multipart object; any other object is its own first part.

    Raises:
        AwsError: InvalidPartNumber (416).
    """
    sizes = info.part_sizes or (info.size_bytes,)
    if not 1 <= part_number <= len(sizes):
        raise AwsError(
            f"there is no part {part_number}; s3://{info.bucket}/{info.key} has {len(sizes)} parts",
            code="InvalidPartNumber",
            members={"ActualPartCount": len(sizes), "PartNumberRequested": part_number},
        )
    return Slice(sum(sizes[: part_number - 1]), sizes[part_number - 1])


def copy_range(text: str | None, whole_bytes: int) -> Slice:
    """Return the byte range of ``CopySourceRange``, or the whole object if it is absent.

    Raises:
        InvalidArgument: It does not have the form ``bytes=first-last``, or is outside the object.
    """
    if text is None:
        return Slice(0, whole_bytes)
    match = _COPY_RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (1, 0)
    if first > last or last >= whole_bytes:
        raise InvalidArgument(
            f"the copy source range {text!r} cannot be used; expected bytes=FIRST-LAST within the {whole_bytes} bytes"
            " of the source, both ends included"
        )
    return Slice(first, last - first + 1)
