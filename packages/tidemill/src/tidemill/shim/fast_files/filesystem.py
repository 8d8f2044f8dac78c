"""The FUSE file system of a channel: the operations that the kernel asks for."""

import errno
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mfusepy

from tidemill.instance.spec import ObjectFile, RemoteObject
from tidemill.instance.transfers import RemoteFault, TransfersClosed
from tidemill.shim.fast_files.cache import BLOCK_BYTES
from tidemill.shim.fast_files.reader import MAX_WAITING, BlockReader, FilePosition
from tidemill.shim.fast_files.tree import Tree
from tidemill.shim.objects import SEGMENT_MAX_BYTES

_UNIT_BYTES = 512  # of st_blocks, too
_KILL_BIT = 1 << 8  # signal 9, as /proc shows sets of signals


@dataclass(slots=True)
class _Open:
    """An open file."""

    entry: ObjectFile | RemoteObject
    number: int
    fd: int = -1
    position: FilePosition | None = None


class ChannelFiles(mfusepy.Operations):
    """The operations of a read-only file system.

    Args:
        reader: Reads remote objects.
        report: Called with the URI of each object that cannot be read and the reason, and with an empty reason if the
            object can be read again.
    """

    use_ns = True

    def __init__(self, tree: Tree, reader: BlockReader, report: Callable[[str, str], None]) -> None:
        self._tree = tree
        self._reader = reader
        self._report = report
        self._numbers = {path: number for number, path in enumerate(tree.files)}
        self._handles = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._lock = threading.Lock()
        self._reported: set[str] = set()
        owner = {"st_uid": os.getuid(), "st_gid": os.getgid(), "st_nlink": 1}
        now = time.time_ns()
        self._common = {**owner, "st_mtime": now, "st_ctime": now, "st_atime": now}

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:
        del config_3
        # The kernel sends no further reads, even of cached blocks, while this number waits.
        conn_info.max_background = conn_info.congestion_threshold = MAX_WAITING

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        del fh
        found = self._tree.files.get(path[1:])
        if found is not None:
            size = found.size_bytes
            return {**self._common, "st_mode": stat.S_IFREG | 0o644, "st_size": size, "st_blocks": -(-size // 512)}
        if path[1:] in self._tree.directories:
            return {**self._common, "st_mode": stat.S_IFDIR | 0o755, "st_size": 0}
        raise mfusepy.FuseOSError(errno.ENOENT)

    def readdir(self, path: str, fh: int) -> list[str]:
        del fh
        return [".", "..", *self._tree.directories[path[1:]]]

    def open(self, path: str, flags: int) -> int:
        del flags
        entry = self._tree.files[path[1:]]
        if isinstance(entry, ObjectFile) and entry.origin is not None:
            entry = entry.origin
        opened = _Open(entry, self._numbers[path[1:]])
        if isinstance(entry, ObjectFile):
            opened.fd = os.open(entry.file, os.O_RDONLY | os.O_CLOEXEC)
        else:
            opened.position = self._reader.open()
        handle = next(self._handles)
        self._open[handle] = opened
        return handle

    def release(self, path: str, fh: int) -> int:
        del path
        opened = self._open.pop(fh)
        if opened.fd >= 0:
            os.close(opened.fd)
        if opened.position is not None:
            self._reader.close(opened.position)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        del path
        # As on other file systems that cannot be written to, nothing is free.
        return {
            "f_bsize": BLOCK_BYTES,
            "f_frsize": _UNIT_BYTES,
            "f_blocks": -(-self._tree.size_bytes // _UNIT_BYTES),
            "f_files": len(self._tree.files) + len(self._tree.directories),
            "f_namemax": SEGMENT_MAX_BYTES,
        }

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        del path
        opened = self._open[fh]
        entry = opened.entry
        if isinstance(entry, ObjectFile) or opened.position is None:
            return os.pread(opened.fd, size, offset)
        task = mfusepy.fuse_get_context()[2]

        def check() -> None:
            if task and _is_killed(task):
                raise mfusepy.FuseOSError(errno.EINTR)

        try:
            data = self._reader.read(opened.number, entry, opened.position, offset, size, check=check)
        except (RemoteFault, TransfersClosed) as fault:
            self._note(entry.uri, str(fault))
        except mfusepy.FuseOSError:
            raise
        except Exception as error:  # noqa: BLE001 - the reader must get an error, and the log its cause
            self._note(entry.uri, f"{entry.uri} cannot be read: {type(error).__name__}: {error}")
        else:
            if entry.uri in self._reported and not self._reader.is_unreadable(opened.number):
                self._note(entry.uri, "")
            return data
        raise mfusepy.FuseOSError(errno.EIO)

    def _note(self, uri: str, reason: str) -> None:
        with self._lock:  # also during the report, so that reports have the order of their causes
            if bool(reason) == (uri in self._reported):
                return
            (self._reported.add if reason else self._reported.discard)(uri)
            self._report(uri, reason)


def _is_killed(task: int) -> bool:
    """Return whether a thread has ended or has got SIGKILL.

    The kernel lets no process end while it waits for an answer that was requested already. The answer is therefore
    given up, so that a job ends at once although its store is silent.
    """
    try:
        lines = Path(f"/proc/{task}/status").read_text().splitlines()
    except OSError:
        return True
    pending = [line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(each, 16) & _KILL_BIT for each in pending)
