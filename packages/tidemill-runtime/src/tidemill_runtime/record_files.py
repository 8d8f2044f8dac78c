"""Recognizes files that are not TFRecords, from their first bytes, after a job failed to read them as TFRecords.

TensorFlow reports "corrupted record at 0" both for compressed files and for RecordIO. The files are still in the job's
channels when the job fails, so the cause can be determined.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tidemill_runtime.user_files import files_below

if TYPE_CHECKING:
    from pathlib import Path

_SIGNS = ("DataLossError", "corrupted record at")
_MOST_FILES = 1000
_GZIP = b"\x1f\x8b\x08"
_RECORDIO = (0xCED7230A).to_bytes(4, "little")


def cause_of_corrupt_records(text: str, *, channels: Path) -> str:
    """Return which file of the channels is not in TFRecord format, and its likely format; empty if unknown.

    Args:
        text: Type and message of the script's exception.
        channels: Directory of the input channels. The first bytes of up to 1,000 files are read.
    """
    if not any(sign in text for sign in _SIGNS):
        return ""
    for path in islice(files_below(channels), _MOST_FILES):
        start = _first_bytes(path)
        if start.startswith(_GZIP):
            return f'{path} holds gzip: read it with compression_type="GZIP", or store it decompressed'
        if start == _RECORDIO:
            return f"{path} holds RecordIO, which no TFRecord reader reads: store TFRecords, or use a Pipe channel"
    return ""


def _first_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4)
    except OSError:
        return b""
