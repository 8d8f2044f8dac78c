"""Upload local data to S3.

The prefix of a channel's upload contains a digest of its content. So an unchanged directory is not uploaded twice, an
interrupted upload continues with the missing files, and no upload changes data that a running job reads.

A tidemill service takes many small files as one tar archive, which it extracts and makes durable in one step, and a
large file of this machine as an open descriptor, which it copies. Other services, and keys with a policy, get one
request per file. Requests run in parallel.
"""

import contextlib
import hashlib
import io
import os
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tidemill.core.handed_files import SOCKET_HEADER, media_type
from tidemill.core.names import INPUTS_PREFIX, S3Uri
from tidemill.sdk.console import Console
from tidemill.sdk.handed_file import handed_over

_REPORT_INTERVAL_S = 5.0
_CHUNK_BYTES = 1024 * 1024
_THREADS = 8
_SMALL_BYTES = 256 * 1024
_ARCHIVE_FILES = 4096
_ARCHIVE_BYTES = 16 * 1024 * 1024
_PUT_MAX_BYTES = 5 * 1024**3
_PARTS_FROM_BYTES = 64 * 1024 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ARCHIVE_TYPE = "application/vnd.tidemill.files+tar"
_EXTRACTED = "x-tidemill-extracted"
_SUMMARY = ("x-tidemill-prefix-objects", "x-tidemill-prefix-bytes")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file to upload.

    Attributes:
        name: Its name below the root, ``/``-separated.
        path: Its path.
        size_bytes: Its size.
    """

    name: str
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LocalData:
    """A file, or the files below a directory, read once for their digest.

    Attributes:
        root: Path of the file or directory.
        is_directory: Whether ``root`` is a directory.
        files: The files, sorted by name.
        digest: SHA-256 over names and contents, hexadecimal.
    """

    root: Path
    is_directory: bool
    files: tuple[LocalFile, ...]
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
        files = files_below(root)
        if not files:
            raise ValueError(f"file://{path}: {root.absolute()} holds no files")
        total = hashlib.sha256()
        for file in files:
            total.update(f"{file.name}\0{_sha256(file.path)}\n".encode())
        return cls(root, root.is_dir(), files, total.hexdigest())

    @property
    def size_bytes(self) -> int:
        """Total size of all files in bytes."""
        return sum(file.size_bytes for file in self.files)

    def base(self, bucket: str) -> S3Uri:
        """Return the prefix below which the files are uploaded; equal content has an equal one.

        Args:
            bucket: Name of the bucket.
        """
        return S3Uri(bucket, f"{INPUTS_PREFIX}{self.digest[:32]}")

    def uri(self, bucket: str) -> str:
        """Return the S3 URI for a channel.

        Args:
            bucket: Name of the bucket.
        """
        base = self.base(bucket)
        return f"{base}/" if self.is_directory else str(base / self.files[0].name)


def files_below(root: Path) -> tuple[LocalFile, ...]:
    """Return the file ``root``, or all files below the directory ``root``, sorted by name. Links are followed.

    Raises:
        ValueError: There is something other than files and directories.
    """
    if not root.is_dir():
        return (LocalFile(root.name, root, root.stat().st_size),)
    files: list[LocalFile] = []
    top = str(root)
    for directory, _, names in os.walk(top, followlinks=True):
        below = "" if directory == top else f"{os.path.relpath(directory, top)}/"
        for name in names:
            path = Path(directory, name)
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{path} is neither a file nor a directory; remove it or choose another directory")
            files.append(LocalFile(f"{below}{name}", path, status.st_size))
    return tuple(sorted(files, key=lambda file: file.name))


def upload(s3_client: Any, data: LocalData, *, bucket: str, console: Console) -> str:
    """Upload the files that ``bucket`` does not have yet. Return the S3 URI for a channel.

    Args:
        s3_client: Client of boto3.
        data: What was found below the local path, with its digest.
        bucket: Name of the bucket.
        console: Where the progress is shown.
    """
    base, target = data.base(bucket), data.uri(bucket)
    described = f"{data.root} ({_count(len(data.files))}, {_size(data.size_bytes)})"
    missing = _missing(s3_client, data, base)
    if not missing:
        console.say(f"Unchanged, not uploaded again: {described} -> {target}")
        return target
    progress = _UploadProgress(console, missing, f"Uploading {data.root}")
    upload_files(s3_client, missing, base, progress=progress.add_bytes, finished=progress.add_files)
    progress.finish()
    console.say(f"Uploaded {described} -> {target}")
    return target


def upload_files(
    s3_client: Any,
    files: Sequence[LocalFile],
    base: S3Uri,
    *,
    progress: Callable[[int], None] | None = None,
    finished: Callable[[int], None] | None = None,
    extra_args: Mapping[str, Any] | None = None,
) -> None:
    """Upload files as objects below a prefix.

    Args:
        s3_client: boto3's ``s3`` client.
        files: The files.
        base: Bucket and prefix.
        progress: Called with the number of bytes of each transferred part, from several threads. Default: none.
        finished: Called with the number of files that were sent, from several threads. Default: none.
        extra_args: boto3's ``ExtraArgs`` of each object; with them, each file has a request of its own. Default: none.

    Raises:
        S3UploadFailedError: boto3's error for a file that the service refused. Later requests are not sent.
    """
    single, archives = list(files), list[list[LocalFile]]()
    small = [file for file in files if file.size_bytes <= _SMALL_BYTES]
    wants_archives = len(small) > 1 and not extra_args
    is_near = (urlsplit(s3_client.meta.endpoint_url).hostname or "") in _LOOPBACK
    service = _summary(s3_client, base) if wants_archives or (is_near and len(small) < len(files)) else None
    transfer = _Transfer(
        s3_client,
        base,
        progress or _ignore,
        finished or _ignore,
        dict(extra_args or {}),
        is_near=is_near,
        socket_path=service.socket_path if service is not None and is_near else "",
    )
    if wants_archives and service is not None:
        first, *others = _archives(small)
        if transfer.send_archive(first):  # shows whether this key may send archives
            single = [file for file in files if file.size_bytes > _SMALL_BYTES]
            archives = others
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="upload") as pool:
        tasks: list[Future[Any]] = [pool.submit(transfer.send_small, each) for each in archives]
        tasks.extend(pool.submit(transfer.send, each) for each in single)
        done, unfinished = wait(tasks, return_when=FIRST_EXCEPTION)
        for task in unfinished:
            task.cancel()
        for task in done:
            task.result()


@dataclass(frozen=True, slots=True)
class _Transfer:
    """Sends files below one prefix.

    Attributes:
        client: boto3's ``s3`` client.
        base: Bucket and prefix.
        progress: Called with the number of bytes that were sent.
        finished: Called with the number of files that were sent.
        extra_args: Further arguments of each object.
        is_near: Whether the endpoint is on this machine.
        socket_path: Socket of the service for open files; empty if it has none.
    """

    client: Any
    base: S3Uri
    progress: Callable[[int], None]
    finished: Callable[[int], None]
    extra_args: dict[str, Any]
    is_near: bool
    socket_path: str

    def send(self, file: LocalFile) -> None:
        """Send one file."""
        if self.socket_path and file.size_bytes > _SMALL_BYTES and self._hand_over(file):
            self.finished(1)
            return
        from boto3.s3.transfer import TransferConfig

        place = self.base / file.name
        # On one machine, in one request: the service would write the parts of an upload twice.
        parts_from_bytes = _PUT_MAX_BYTES + 1 if self.is_near else _PARTS_FROM_BYTES
        self.client.upload_file(
            str(file.path),
            place.bucket,
            place.key,
            Callback=self.progress,
            ExtraArgs=self.extra_args or None,
            Config=TransferConfig(multipart_threshold=parts_from_bytes, use_threads=file.size_bytes > parts_from_bytes),
        )
        self.finished(1)

    def send_small(self, files: Sequence[LocalFile]) -> None:
        """Send files as one archive, or one by one if the service does not extract this one."""
        if not self.send_archive(files):
            for file in files:
                self.send(file)

    def _hand_over(self, file: LocalFile) -> bool:
        """Hand one file to the service; return whether it has stored the file. If not, an ordinary upload tells why."""
        from botocore.exceptions import BotoCoreError, ClientError

        if any(name == "ContentType" or name.startswith(("Checksum", "ContentMD5")) for name in self.extra_args):
            return False
        place, counted_bytes, stored = self.base / file.name, 0, False

        def count(copied_bytes: int) -> None:
            nonlocal counted_bytes
            self.progress(copied_bytes - counted_bytes)
            counted_bytes = copied_bytes

        with handed_over(file.path, self.socket_path, copied=count) as ticket:
            if ticket is not None:
                with contextlib.suppress(BotoCoreError, ClientError):
                    self.client.put_object(
                        Bucket=place.bucket,
                        Key=place.key,
                        Body=b"",
                        ContentType=media_type(ticket),
                        **self.extra_args,
                    )
                    stored = True
        count(file.size_bytes if stored else 0)
        return stored

    def send_archive(self, files: Sequence[LocalFile]) -> bool:
        """Send files as one archive; return whether the service has extracted it."""
        from botocore.exceptions import ClientError

        place = self.base / f".files-{hashlib.sha256(files[0].name.encode()).hexdigest()[:16]}.tar"
        body = io.BytesIO()
        with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for file in files:
                member = tarfile.TarInfo(file.name)
                member.size = file.size_bytes
                with file.path.open("rb", buffering=0) as content:
                    archive.addfile(member, content)
        try:
            reply = self.client.put_object(
                Bucket=place.bucket, Key=place.key, Body=body.getvalue(), ContentType=_ARCHIVE_TYPE
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "AccessDenied":
                return False
            raise
        if _EXTRACTED not in reply["ResponseMetadata"]["HTTPHeaders"]:
            self.client.delete_object(Bucket=place.bucket, Key=place.key)
            return False
        self.progress(sum(file.size_bytes for file in files))
        self.finished(len(files))
        return True


class _UploadProgress:
    """Shows files and bytes of an upload: rewritten in place on a terminal, otherwise one line every few seconds."""

    def __init__(self, console: Console, files: Sequence[LocalFile], label: str) -> None:
        self._console = console
        self._label = label
        self._total_bytes = sum(file.size_bytes for file in files)
        self._total_files = len(files)
        self._sent_bytes = 0
        self._sent_files = 0
        self._next_report_s = time.monotonic() + (0 if console.is_terminal else _REPORT_INTERVAL_S)
        self._lock = threading.Lock()

    def add_bytes(self, count: int) -> None:
        """Record sent bytes."""
        with self._lock:
            self._sent_bytes += count
            self._show()

    def add_files(self, count: int) -> None:
        """Record completed files."""
        with self._lock:
            self._sent_files += count
            self._show()

    def finish(self) -> None:
        """Remove the line from a terminal."""
        self._console.rewrite("")

    def _show(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_report_s:
            return
        part = self._sent_bytes / self._total_bytes if self._total_bytes else self._sent_files / self._total_files
        text = (
            f"{self._label}: {self._sent_files} of {_count(self._total_files)}, {_size(self._sent_bytes)} of"
            f" {_size(self._total_bytes)} ({100 * part:.0f} %)"
        )
        if self._console.is_terminal:
            self._console.rewrite(text)
            self._next_report_s = now_s + 0.1
        else:
            self._console.say(text)
            self._next_report_s = now_s + _REPORT_INTERVAL_S


def _ignore(count: int) -> None:
    del count


def _missing(s3_client: Any, data: LocalData, base: S3Uri) -> list[LocalFile]:
    """Return the files that the bucket does not have, by their size."""
    found = _summary(s3_client, base)
    if found is not None and (found.objects, found.size_bytes) == (len(data.files), data.size_bytes):
        return []
    pages = s3_client.get_paginator("list_objects_v2").paginate(Bucket=base.bucket, Prefix=f"{base.key}/")
    there = {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}
    return [file for file in data.files if there.get(f"{base.key}/{file.name}") != file.size_bytes]


@dataclass(frozen=True, slots=True)
class _Summary:
    """What a tidemill service tells of a prefix: number and bytes of its objects, and its socket for open files."""

    objects: int
    size_bytes: int
    socket_path: str


def _summary(s3_client: Any, base: S3Uri) -> _Summary | None:
    """Return the summary of a prefix; None if the service does not tell: it is no tidemill, or the key may not list."""
    from botocore.exceptions import ClientError

    try:
        reply = s3_client.list_objects_v2(Bucket=base.bucket, Prefix=f"{base.key}/", MaxKeys=0)
    except ClientError:
        return None  # the next request shows what is wrong
    headers = reply["ResponseMetadata"]["HTTPHeaders"]
    if _SUMMARY[0] not in headers:
        return None
    return _Summary(int(headers[_SUMMARY[0]]), int(headers[_SUMMARY[1]]), unquote(headers.get(SOCKET_HEADER, "")))


def _archives(files: Sequence[LocalFile]) -> Iterator[list[LocalFile]]:
    archive: list[LocalFile] = []
    size_bytes = 0
    for file in files:
        if archive and (len(archive) == _ARCHIVE_FILES or size_bytes + file.size_bytes > _ARCHIVE_BYTES):
            yield archive
            archive, size_bytes = list[LocalFile](), 0
        archive.append(file)
        size_bytes += file.size_bytes
    yield archive


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _count(files: int) -> str:
    return f"{files} {'file' if files == 1 else 'files'}"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
