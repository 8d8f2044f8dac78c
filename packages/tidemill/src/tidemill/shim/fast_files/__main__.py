"""``python -I -m tidemill.shim.fast_files DIRECTORY CHANNEL SOCKET REPORT``: serve the files of one channel.

``SOCKET`` is the descriptor of a socket through which the descriptor of the mount comes, and ``REPORT`` that of a pipe
for lines about objects that cannot be read: JSON arrays of a URI and the reason, which is empty if the object can be
read again. The process ends when the mount does, that is, with the job.
"""

import ctypes
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from tidemill.core.files import read_json
from tidemill.core.kernel import end_with_parent
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import SpecRecord
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.transfers import Transfers
from tidemill.sandbox import fuse_library
from tidemill.shim.fast_files.cache import BlockCache, capacity_of
from tidemill.shim.fast_files.reader import MAX_WAITING, BlockReader
from tidemill.shim.fast_files.tree import Tree

_SWITCH_S = 0.0005
"""How long a thread may keep the interpreter. With Python's 5 ms, the threads that answer the kernel wait for those
that fetch (`docs/measurements/jobs.md`)."""
_UNCHANGED_S = 1 << 20  # the files never change
_LIMITS_THREADS = 312
"""First version of libfuse that limits the threads, to 10 by default. Each read that waits for a store occupies one."""


def main(arguments: list[str]) -> int:
    """Serve one mount to its end."""
    sys.setswitchinterval(_SWITCH_S)
    end_with_parent()
    directory, channel = InstanceDirectory(Path(arguments[0])), arguments[1]
    sock, report_fd = socket.socket(fileno=int(arguments[2])), int(arguments[3])
    os.environ["FUSE_LIBRARY_PATH"] = fuse_library()
    task = SpecRecord.from_json(read_json(directory.spec_file) or {})
    tree = Tree(directory.read_channel(channel), place=channel)
    capacity = capacity_of(
        directory.path,
        tree.size_bytes,
        objects=len(tree.files),
        caches=len(task.fast_files),
        max_bytes=task.site.fast_file_cache_max_bytes,
    )
    stores = RemoteStores(task.spec.remotes, task.spec.variables)
    reader = BlockReader(Transfers(stores), BlockCache(directory.path, capacity))

    import mfusepy  # reads FUSE_LIBRARY_PATH

    from tidemill.shim.fast_files.filesystem import ChannelFiles

    def report(uri: str, reason: str) -> None:
        os.write(report_fd, json.dumps([uri, " ".join(reason.split())]).encode() + b"\n")

    with sock:
        _, descriptors, _, _ = socket.recv_fds(sock, 1, 1)
    if not descriptors:  # the job was not started
        return 0
    mfusepy.FUSE(
        ChannelFiles(tree, reader, report),
        f"/dev/fd/{descriptors[0]}",
        foreground=True,
        fsname="tidemill",
        kernel_cache=True,
        entry_timeout=_UNCHANGED_S,
        attr_timeout=_UNCHANGED_S,
        negative_timeout=_UNCHANGED_S,
        **_thread_options(),
    )
    os._exit(0)  # without waiting for requests of the threads


def _thread_options() -> dict[str, Any]:
    """Return the options for libfuse with which many reads may wait for a store, and others still go on."""
    version = ctypes.CDLL(fuse_library()).fuse_version()
    return {"max_threads": MAX_WAITING} if version >= _LIMITS_THREADS else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
