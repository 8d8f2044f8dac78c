"""Restore checkpoints, and upload the synced directories of a job while its script runs and after it has ended.

A thread scans the directories repeatedly, and uploads the current content of each new or changed file. If an upload
fails, for example because the service cannot be reached, it is repeated. No link is followed, and nothing is deleted in
the bucket.

A checkpoint consists of several files, and becomes valid with the last one written (TensorFlow's ``checkpoint``).
Complete files are therefore uploaded in the order of their age, each after all older ones, and a file that changes
while it is read is not stored. So if the instance is lost, the bucket has the directory as it was at some moment.
"""

import contextlib
import os
import stat
import threading
import time
from collections.abc import Generator, Iterator
from typing import IO, Any, BinaryIO, cast

from tidemill._shared.trees import Entry, walk
from tidemill.core.names import KEY_MAX_BYTES, S3Uri
from tidemill.instance.records import RESTORED
from tidemill.instance.remote_s3 import UploadRefused, upload, upload_client
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import SyncedDirectory
from tidemill.shim.beneath import long_path_note, open_beneath
from tidemill.shim.channels import downloading
from tidemill.shim.failures import ClientFailure, InstanceFailure, InternalFailure, of_os_error
from tidemill.shim.objects import copy_channel
from tidemill.shim.session import InstanceSession

_LOOK_EVERY_S = 1.0
_LONGEST_PAUSE_S = 10.0
_SHARE = 4
"""The pause after a scan of the directories, as a multiple of the scan's duration, within the two limits above."""
_LAST_TRIES_S = 600.0
_NOTES_MAX = 20

_Stamp = tuple[int, int, int]
"""Inode, size and modification time of a file. If they differ from those of the last scan, the file has changed."""


def restore(session: InstanceSession, stores: RemoteStores) -> None:
    """Download the checkpoints of the bucket to the script's checkpoint directory.

    Raises:
        ClientFailure: A key is not a path below the directory, or the disk is full.
        InternalFailure: A file of the store is missing or damaged.
        Stopped: A stop was requested.
    """
    for wanted in session.spec.synced:
        if not wanted.restored:
            continue
        place = _place(session, wanted)
        target = session.directory.root_of(wanted) / wanted.path
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise of_os_error(error, place=place) from error
        with downloading(session, stores, place=place) as download:
            entries = session.directory.read_channel(RESTORED)
            files, size_bytes = copy_channel(entries, target, place=place, check=session.stop.check, download=download)
        if files:
            session.log.note(f"tidemill: {files} files ({size_bytes:,} bytes) restored from {wanted.uri} to {place}")


class UploadOutcome:
    """What a script's end means for its uploads, and their own end.

    Attributes:
        keeps_outputs: Whether directories are uploaded that are uploaded only at the end; set before the block ends.
        failure: Why a required file was not uploaded; None if all were. Set when the block has ended.
    """

    def __init__(self) -> None:
        self.keeps_outputs = True
        self.failure: InstanceFailure | None = None


@contextlib.contextmanager
def synced(session: InstanceSession) -> Generator[UploadOutcome]:
    """Upload the directories of the spec during the block, and after it the files that changed since the last scan.

    Yields:
        What the caller says about the end of the script, and what it gets to know about the uploads.
    """
    uploads = UploadOutcome()
    if not session.spec.synced:
        yield uploads
        return
    for each in session.spec.synced:
        (session.directory.root_of(each) / each.path).mkdir(parents=True, exist_ok=True)
    synchronization = _Synchronization(session, uploads)
    thread = threading.Thread(target=synchronization.run, name="synchronization", daemon=True)
    thread.start()
    try:
        yield uploads
    finally:
        synchronization.ended.set()
        thread.join()


class _Synchronization:
    """The upload loop, and the record of uploaded files.

    Attributes:
        ended: Set when the script has ended.
    """

    def __init__(self, session: InstanceSession, uploads: UploadOutcome) -> None:
        self.ended = threading.Event()
        self._session = session
        self._uploads = uploads
        self._folders = [_Folder(session, each) for each in session.spec.synced]

    def run(self) -> None:
        """Upload until the script has ended and every file is uploaded, or the uploads are given up after 600 s."""
        try:
            while not self.ended.is_set():
                began_s = time.monotonic()
                self._look(is_last=False)
                pause_s = _SHARE * (time.monotonic() - began_s)
                self.ended.wait(min(max(_LOOK_EVERY_S, pause_s), _LONGEST_PAUSE_S))
            deadline_s = time.monotonic() + _LAST_TRIES_S
            while (left := self._look(is_last=True)) and time.monotonic() < deadline_s:
                time.sleep(_LOOK_EVERY_S)
            if left:
                self._session.log.note(f"tidemill: {left} files were not uploaded: the service did not answer")
            self._uploads.failure = self._failure(left)
        except Exception as error:  # noqa: BLE001 - must not fail the script, but must appear in its log
            self._session.log.note(f"tidemill: uploads have ended: {type(error).__name__}: {error}")
            if any(folder.is_required for folder in self._folders):
                self._uploads.failure = InternalFailure(f"uploads have ended: {type(error).__name__}: {error}")

    def _look(self, *, is_last: bool) -> int:
        """Upload changed files. Return the number of files whose upload must be repeated."""
        due = (each for each in self._folders if not each.is_at_end or (is_last and self._uploads.keeps_outputs))
        return sum(folder.look(is_last=is_last) for folder in due)

    def _failure(self, left: int) -> InstanceFailure | None:
        required = [folder for folder in self._folders if folder.is_required]
        faults = [folder.fault for folder in required if folder.fault]
        if faults:
            return ClientFailure(faults[0])
        if required and left:
            return InternalFailure(f"{left} files were not uploaded: the service did not answer")
        return None


class _Folder:
    """One synced directory."""

    def __init__(self, session: InstanceSession, wanted: SyncedDirectory) -> None:
        self._session = session
        self._wanted = wanted
        self._target = S3Uri.parse(wanted.uri)
        self._client: Any = None
        self._root = session.directory.root_of(wanted)
        self._place = _place(session, wanted)
        self.is_at_end, self.is_required = wanted.at_end, wanted.required
        self.fault = ""
        self._notes = 0
        self._noted_long_path = False
        # Files that exist before the script starts were restored from the bucket.
        self._uploaded: dict[str, _Stamp] = dict(self._files()) if wanted.restored else {}
        self._seen: dict[str, _Stamp] = {}

    def look(self, *, is_last: bool) -> int:
        """Upload files that have changed. Return the number of files whose upload must be repeated.

        Args:
            is_last: Whether all processes of the script have ended, so that no file is being written.
        """
        before, self._seen = self._seen, dict(self._files())
        changed = [
            (stamp, relative)
            for relative, stamp in self._seen.items()
            if self._uploaded.get(relative) != stamp
            and (is_last or not self._wanted.whole or before.get(relative) == stamp)
        ]
        if self._wanted.whole:
            changed.sort(key=lambda each: (each[0][2], each[1]))
        left = 0
        for stamp, relative in changed:
            waits = self._wanted.whole and left > 0
            left += waits or not self._upload(relative, stamp)
        return left

    def _files(self) -> Iterator[tuple[str, _Stamp]]:
        try:
            top = open_beneath(self._root, self._wanted.path, directory=True)
        except OSError:
            return  # the script has removed or replaced the directory
        try:
            yield from self._files_below(top)
        finally:
            os.close(top)

    def _files_below(self, top: int) -> Iterator[tuple[str, _Stamp]]:
        key_max_bytes = KEY_MAX_BYTES - len(f"{self._target.key}/".encode())
        # The script may remove or replace any file meanwhile.
        for entry in walk(top, max_path_bytes=key_max_bytes, left_out=self._leave_out, on_error=lambda error: None):
            with contextlib.suppress(OSError):
                status = entry.status()
                if stat.S_ISREG(status.st_mode):
                    yield entry.path, _stamp_of(status)

    def _leave_out(self, entry: Entry) -> None:
        if not self._noted_long_path:
            self._noted_long_path = True
            self._note(long_path_note(self._place, entry))

    def _upload(self, relative: str, stamp: _Stamp) -> bool:
        """Upload one file. Return False if the upload must be repeated."""
        try:
            key = f"{self._target.key}/{relative}".encode().decode()
            fd = open_beneath(self._root, f"{self._wanted.path}/{relative}")
        except FileNotFoundError:
            return True
        except (OSError, UnicodeEncodeError) as error:
            return self._give_up(relative, stamp, error)
        with os.fdopen(fd, "rb") as file:
            source = cast("BinaryIO", _Whole(file, stamp) if self._wanted.whole else _Beginning(file, stamp[1]))
            try:
                self._client = self._client or upload_client(self._session.spec.variables)
                upload(self._client, source, bucket=self._target.bucket, key=key)
            except UploadRefused as error:
                return self._give_up(relative, stamp, error)
            except OSError:
                return False
        self._uploaded[relative] = stamp
        return True

    def _give_up(self, relative: str, stamp: _Stamp, error: Exception) -> bool:
        """Log why a file is not uploaded. The upload is repeated only if the file changes."""
        self._uploaded[relative] = stamp
        if self._notes < _NOTES_MAX:
            self._note(f"tidemill: {relative!r} is not uploaded to {self._wanted.uri}: {error}")
        self._notes += 1
        return True

    def _note(self, line: str) -> None:
        self.fault = self.fault or line.removeprefix("tidemill: ")
        self._session.log.note(line)


class _Beginning:
    """Reads the first bytes of a file that may be growing."""

    def __init__(self, file: IO[bytes], size_bytes: int) -> None:
        self._file = file
        self._left_bytes = size_bytes

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left_bytes if size < 0 else min(size, self._left_bytes))
        self._left_bytes -= len(data)
        return data


class _Whole:
    """Reads a file that should not change any more. If it changes nevertheless, reading and so the upload fail."""

    def __init__(self, file: IO[bytes], stamp: _Stamp) -> None:
        self._file = file
        self._stamp = stamp

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if _stamp_of(os.fstat(self._file.fileno())) != self._stamp:
            raise OSError("the file has changed while it was read")
        return data


def _place(session: InstanceSession, wanted: SyncedDirectory) -> str:
    """Return the path of a synced directory as the job sees it."""
    return wanted.mounted_at or f"{session.base_dir}/{wanted.path}"


def _stamp_of(status: os.stat_result) -> _Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns)
