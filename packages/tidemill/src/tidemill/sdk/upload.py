"""Upload local data to S3.

The prefix of an upload contains a digest of its content. So an unchanged directory is not uploaded twice, an
interrupted upload continues with the missing files, and no upload changes data that a running job reads.
"""

import hashlib
import os
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tidemill.core.names import INPUTS_PREFIX, S3Uri
from tidemill.sdk.console import Console

__all__ = ["LocalData", "upload"]

_REPORT_INTERVAL_S = 5.0
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LocalData:
    """A file, or the files below a directory, read once for their digest.

    Attributes:
        root: Path of the file or directory.
        is_directory: Whether ``root`` is a directory.
        files: Name below the root (``/``-separated) and path of each file, sorted.
        sizes: Bytes of each file.
        digest: SHA-256 over names and contents, hexadecimal.
    """

    root: Path
    is_directory: bool
    files: tuple[tuple[str, Path], ...]
    sizes: tuple[int, ...]
    digest: str

    @classmethod
    def read(cls, path: str | Path) -> "LocalData":
        """List the files of ``path`` and compute their digest.

        Raises:
            ValueError: ``path`` does not exist, has no files, or contains something other than regular files.
        """
        root = Path(path).expanduser()
        if not root.exists() and Path(unquote(str(path))).exists():
            root = Path(unquote(str(path)))  # `Path.as_uri` percent-encodes the path
        if not root.exists():
            raise ValueError(f"file://{path}: {root.absolute()} does not exist")
        files = _files_below(root) if root.is_dir() else ((root.name, root),)
        if not files:
            raise ValueError(f"file://{path}: {root.absolute()} holds no files")
        total = hashlib.sha256()
        for name, file in files:
            total.update(f"{name}\0{_sha256(file)}\n".encode())
        return cls(root, root.is_dir(), files, tuple(f.stat().st_size for _, f in files), total.hexdigest())

    @property
    def size_bytes(self) -> int:
        """Total size of all files in bytes."""
        return sum(self.sizes)


def upload(s3_client: Any, data: LocalData, *, bucket: str, console: Console) -> str:
    """Upload the files that ``bucket`` does not have yet. Return the S3 URI for a channel."""
    base = S3Uri(bucket, f"{INPUTS_PREFIX}{data.digest[:32]}")
    there = _existing(s3_client, base)
    missing = [
        (name, file, size)
        for (name, file), size in zip(data.files, data.sizes, strict=True)
        if there.get((base / name).key) != size
    ]
    target = f"{base}/" if data.is_directory else str(base / data.files[0][0])
    described = (
        f"{data.root} ({len(data.files)} {'file' if len(data.files) == 1 else 'files'}, {_size(data.size_bytes)})"
    )
    if not missing:
        console.say(f"Unchanged, not uploaded again: {described} -> {target}")
        return target
    progress = _Progress(console, sum(size for _, _, size in missing), f"Uploading {data.root}")
    for name, file, _ in missing:
        s3_client.upload_file(str(file), bucket, (base / name).key, Callback=progress)
    progress.finish()
    console.say(f"Uploaded {described} -> {target}")
    return target


class _Progress:
    """Shows the percentage of an upload: rewritten in place on a terminal, otherwise one line every few seconds."""

    def __init__(self, console: Console, total_bytes: int, label: str) -> None:
        self._console = console
        self._total = total_bytes
        self._label = label
        self._done = 0
        self._next_report_s = time.monotonic() + (0 if console.is_terminal else _REPORT_INTERVAL_S)
        self._lock = threading.Lock()  # boto3 calls from its transfer threads

    def __call__(self, count: int) -> None:
        with self._lock:
            self._done += count
            now = time.monotonic()
            if now < self._next_report_s:
                return
            text = f"{self._label}: {_size(self._done)} of {_size(self._total)} ({100 * self._done // self._total} %)"
            if self._console.is_terminal:
                self._console.rewrite(text)
                self._next_report_s = now + 0.1
            else:
                self._console.say(text)
                self._next_report_s = now + _REPORT_INTERVAL_S

    def finish(self) -> None:
        self._console.rewrite("")


def _existing(s3_client: Any, base: S3Uri) -> dict[str, int]:
    pages = s3_client.get_paginator("list_objects_v2").paginate(Bucket=base.bucket, Prefix=f"{base.key}/")
    return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}


def _files_below(root: Path) -> tuple[tuple[str, Path], ...]:
    files = []
    for directory, _, names in os.walk(root, followlinks=True):
        for name in names:
            file = Path(directory, name)
            if not stat.S_ISREG(file.stat().st_mode):
                raise ValueError(f"{file} is neither a file nor a directory; remove it or choose another directory")
            files.append((file.relative_to(root).as_posix(), file))
    return tuple(sorted(files))


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
