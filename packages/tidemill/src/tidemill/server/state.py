"""The state directory: its tree, its permissions, and the lock that keeps a second service out.

One service owns one directory. The lock is an `flock` on a file that contains the process id of its holder, so that a
refusal can name the holder. The kernel releases the lock when the process ends. Only this module defines the paths.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.core.files import make_directory, read_json, write_json
from tidemill.core.handed_files import SOCKET_NAME
from tidemill.core.process import ProcessId
from tidemill.errors import ConfigurationError

STATE_VERSION = 1
_LOCK_PAUSE_S = 0.05

_NETWORK_FILESYSTEMS = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB",
    0x01021997: "9P",
    0x5346414F: "AFS",
}


class StateInUse(ConfigurationError):
    """Another running service has locked the state directory.

    Attributes:
        pid: Its process ID; None if the lock file does not contain one.
        url: Its URL; None if it has not published one yet.
    """

    def __init__(self, root: Path, *, pid: int | None, url: str | None) -> None:
        holder = f"pid {pid}" if pid is not None else "a process that has not yet said who it is"
        super().__init__(
            f"{root} is in use by {holder} ({url or 'it does not listen yet'}); talk to that service, end it with"
            " `tidemill down`, or give this one a directory of its own with --state-dir"
        )
        self.pid = pid
        self.url = url


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The state directory: its paths and its lock. Creating this object does not access the file system."""

    root: Path

    @property
    def lock_file(self) -> Path:
        """File that the service locks with flock as long as it runs; contains its process ID."""
        return self.root / "lock"

    @property
    def service_file(self) -> Path:
        """File with the URL of the running service; exists only while it listens."""
        return self.root / "service.json"

    @property
    def keys_file(self) -> Path:
        return self.root / "keys.json"

    @property
    def database(self) -> Path:
        return self.root / "state.db"

    @property
    def database_owner(self) -> Path:
        """File with the identifier that this directory and its database share, and the kind of the database."""
        return self.root / "database.json"

    @property
    def backups(self) -> Path:
        """Hourly copies of the file database."""
        return self.root / "backups"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def client(self) -> Path:
        """Files to which `tidemill env` points clients."""
        return self.root / "client"

    @property
    def proxy_tokens(self) -> Path:
        """Secret and port of the proxy of `tidemill env --sts`; exists once a shell has asked for it."""
        return self.client / "aws-proxy.json"

    @property
    def authority(self) -> tuple[Path, Path]:
        """Certificate and key of the authority that signs certificates for AWS's host names."""
        return self.client / "aws-authority.pem", self.client / "aws-authority.key"

    @property
    def service_log(self) -> Path:
        """Standard error of a detached service."""
        return self.root / "service.log"

    @property
    def files_socket(self) -> Path:
        """Socket at which clients of this user hand files over."""
        return self.root / SOCKET_NAME

    def create(self, *, magic: Callable[[Path], int] | None = None) -> None:
        """Create the tree with mode 0700, or check an existing one.

        Args:
            magic: Returns the file system type of a path. Default: asks the kernel.

        Raises:
            ConfigurationError: The tree cannot be created, belongs to another user, is accessible to other users, is on
                a network file system, contains other files, or was written by a newer version.
        """
        try:
            make_directory(self.root, mode=0o700)
            self._check_owner()
            self._check_filesystem(magic)
            self._claim()
            for directory in (self.objects, self.jobs, self.logs, self.client):
                make_directory(directory, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"state directory {self.root} cannot be used: {error.strerror or error};"
                " name a directory that you may write with --state-dir or TIDEMILL_STATE_DIR"
            ) from error

    @contextlib.contextmanager
    def locked(self, *, within_s: float = 0) -> Generator[None]:
        """Hold the directory for this process.

        Args:
            within_s: How long to try, in seconds. Default: once.

        Raises:
            StateInUse: Another process holds the directory.
        """
        fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline_s = time.monotonic() + within_s
            while not _lock(fd):
                if time.monotonic() >= deadline_s:
                    raise self._in_use()
                time.sleep(_LOCK_PAUSE_S)
            own = ProcessId.own()
            record = {"version": 1, "pid": own.pid, "boot_id": own.boot_id, "start_ticks": own.start_ticks}
            # Written in place: a rename would replace the locked file with an unlocked one.
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(record).encode(), 0)
            yield
        finally:
            os.close(fd)

    def holder(self) -> ProcessId | None:
        """Return the last process that wrote its id into the lock file; it may have ended."""
        record = _read_record(self.lock_file) or {}
        try:
            return ProcessId(record["boot_id"], record["pid"], record["start_ticks"])
        except KeyError:
            return None

    def holdings(self) -> list[str]:
        """Return what earlier services have left that only records explain, in words for messages."""
        found = {
            "contents of objects": [*self.objects.glob("content/*"), *self.objects.glob("trash/*")],
            "directories of jobs": [self.jobs, self.root / "cluster" / "jobs"],
        }
        held = [what for what, directories in found.items() if any(map(_has_entries, directories))]
        return held + (["backups of the database"] if any(self.backups.glob("*.db")) else [])

    def _check_owner(self) -> None:
        status = self.root.stat()
        if status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"state directory {self.root} belongs to user {status.st_uid}, you are user {os.geteuid()};"
                " name one of your own with --state-dir"
            )

    def _check_filesystem(self, magic: Callable[[Path], int] | None) -> None:
        kind = network_filesystem(self.root, magic=magic)
        if kind is not None:
            raise ConfigurationError(
                f"state directory {self.root} lies on {kind}: locks and the database's shared memory do not hold"
                " there; name a directory on a local disk with --state-dir"
            )

    def _claim(self) -> None:
        marker = self.root / "state.json"
        record = _read_record(marker)
        if record is None:
            self._claim_empty(marker)
        elif record.get("version") != STATE_VERSION:
            raise ConfigurationError(
                f"state directory {self.root} has version {record.get('version')!r}, this tidemill reads version"
                f" {STATE_VERSION}; update tidemill, or name another directory with --state-dir"
            )
        mode = stat.S_IMODE(self.root.stat().st_mode)
        if mode & 0o077:
            raise ConfigurationError(
                f"state directory {self.root} has mode {mode:04o}: others on this machine could read keys and data;"
                f" close it with `chmod 700 {self.root}`"
            )

    def _claim_empty(self, marker: Path) -> None:
        # The detached start opens the log before the service claims the directory.
        strange = sorted(
            entry.name for entry in self.root.iterdir() if not entry.name.startswith(self.service_log.name)
        )
        # An interrupted first start leaves only the temporary file of the marker.
        strange = [name for name in strange if not name.startswith(f".{marker.name}.")]
        if strange:
            raise ConfigurationError(
                f"state directory {self.root} holds files that are not tidemill's ({', '.join(strange[:3])});"
                " name an empty or new directory with --state-dir"
            )
        self.root.chmod(0o700)
        write_json(marker, {"version": STATE_VERSION})

    def _in_use(self) -> StateInUse:
        holder = _read_record(self.lock_file) or {}
        service = _read_record(self.service_file) or {}
        pid = holder.get("pid")
        url = service.get("url") if service.get("pid") == pid else None
        return StateInUse(self.root, pid=pid, url=url)


def network_filesystem(path: Path, *, magic: Callable[[Path], int] | None = None) -> str | None:
    """Return the name of the network file system that holds ``path``, or None if the file system is local.

    Args:
        path: Any path of the file system.
        magic: Returns the type of a path's file system. Default: that of the kernel.
    """
    return _NETWORK_FILESYSTEMS.get((magic or _filesystem_magic)(path))


def _has_entries(directory: Path) -> bool:
    return directory.is_dir() and any(True for _ in directory.iterdir())


def _filesystem_magic(path: Path) -> int:
    """Return the kernel's number for the type of the file system that holds ``path``; 0 if it is unknown."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    # struct statfs begins with f_type, a machine word on every 64-bit Linux; the buffer has room for the other members.
    buffer = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(path), buffer) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return int.from_bytes(buffer.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        value = read_json(path)
    except ValueError:
        # The holder is writing the file at this moment.
        return {}
    return value if isinstance(value, dict) else None
