"""Files that clients of the service's own user hand over as open descriptors, instead of sending their bytes.

The socket accepts one descriptor of a regular file per connection, and never a path. The service copies the file, so
that nobody can change the object by writing to the file, and gives the client a ticket for the copy. The copy becomes
an object only by a signed PutObject with the ticket, once, while the connection is open; otherwise it is removed.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
import socket
import stat
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from tidemill.core.handed_files import GREETING, MESSAGE_MAX_BYTES, MULTIPART_BYTES
from tidemill.errors import ServiceUnavailable
from tidemill.services.s3.checksums import base64_of, begin
from tidemill.store.objects.disk_place import DiskPlace
from tidemill.store.objects.draft import Content
from tidemill.store.objects.errors import InvalidArgument

CONNECTIONS_MAX = 64
COPIES_MAX = 4
GREETING_TIMEOUT_S = 10.0
TICKET_TIMEOUT_S = 60.0
PROGRESS_INTERVAL_S = 0.5
LOCAL_FILESYSTEMS = frozenset(
    ("bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "ntfs3", "overlay", "tmpfs", "vfat", "xfs", "zfs")
)
"""Reading from others may never end: a network that is gone, a FUSE process that does not answer."""

_CREDENTIALS = struct.Struct("3i")
_log = structlog.get_logger("tidemill.s3")


@dataclass(slots=True)
class HandedFile:
    """The durable copy of a file.

    Attributes:
        crc32: CRC-32 of the copy in base64.
        is_taken: Whether a request has redeemed the ticket.
        done: Set when that request has ended.
    """

    content: Content
    crc32: str
    is_taken: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


class HandedFiles:
    """Receives files at a socket, and keeps their copies until a request redeems their tickets.

    Args:
        disk: Stores the copies.
        limit_bytes: Maximum size of a file.

    Attributes:
        path: Path of the socket; None while it is not open.
    """

    def __init__(self, disk: DiskPlace, *, limit_bytes: int) -> None:
        self.path: Path | None = None
        self._disk = disk
        self._limit_bytes = limit_bytes
        self._held: dict[str, HandedFile] = {}
        self._turns = asyncio.Semaphore(COPIES_MAX)
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncGenerator[None]:
        """Listen at ``path`` until the block ends. Without such sockets, clients send the bytes of all files.

        Args:
            path: Path of the unix socket.
        """
        with contextlib.ExitStack() as stack:
            try:
                sock = stack.enter_context(_listener(path))
            except OSError as error:
                _log.warning("files.no_socket", path=str(path), reason=str(error))
                yield
                return
            stack.callback(path.unlink, missing_ok=True)
            accepting = asyncio.create_task(self._accept(sock), name="handed files")
            self.path = path
            try:
                yield
            finally:
                self.path = None
                tasks = [accepting, *self._connections]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def redeem(self, ticket: str) -> AsyncGenerator[HandedFile]:
        """Yield the copy that belongs to a ticket, which is valid once.

        Raises:
            InvalidArgument: There is no such ticket: it was used, it has expired, or its client has left.
        """
        held = self._held.pop(ticket, None)
        if held is None:
            raise InvalidArgument(
                "the ticket in the media type names no file: it was used, it has expired, or the connection that"
                " handed the file over has ended; send the bytes of the file"
            )
        held.is_taken = True
        try:
            yield held
        finally:
            held.done.set()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:  # out of descriptors
                _log.warning("files.not_accepted", reason=str(error))
                await asyncio.sleep(1)
                continue
            if len(self._connections) >= CONNECTIONS_MAX or _peer_uid(sock) != os.geteuid():
                sock.close()
                continue
            task = asyncio.create_task(self._serve(sock))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _serve(self, sock: socket.socket) -> None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(sock)
            try:
                async with asyncio.timeout(GREETING_TIMEOUT_S):
                    fd = await _descriptor(sock)
                stack.callback(os.close, fd)
                status = os.fstat(fd) if _is_local(fd) else None
                reason = _refusal(fd, status, limit_bytes=self._limit_bytes)
                if status is None or reason:
                    _send(sock, f"refused {reason}")
                else:
                    await self._attend(sock, fd, status)
            except (OSError, EOFError, ServiceUnavailable) as error:
                _send(sock, f"refused {error or 'it took too long'}")

    async def _attend(self, sock: socket.socket, fd: int, status: os.stat_result) -> None:
        """Hand a file over while the client is connected, and report how much is copied."""
        copied = [0]
        handing = asyncio.create_task(self._hand_over(sock, fd, status, copied))
        leaving = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(sock, 1))
        try:
            while not handing.done() and not leaving.done():
                await asyncio.wait({handing, leaving}, timeout=PROGRESS_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
                _send(sock, f"copied {copied[0]}")
            if handing.done():
                handing.result()
        finally:
            leaving.cancel()
            handing.cancel()
            await asyncio.gather(leaving, handing, return_exceptions=True)

    async def _hand_over(self, sock: socket.socket, fd: int, status: os.stat_result, copied: list[int]) -> None:
        checksum, size_bytes = begin("CRC32"), status.st_size

        def note(count: int) -> None:
            copied[0] = count

        async with contextlib.AsyncExitStack() as stack:
            async with self._turns:
                content = await stack.enter_async_context(
                    self._disk.copy(
                        fd,
                        size_bytes=size_bytes,
                        digests=[checksum],
                        has_md5=size_bytes < MULTIPART_BYTES,
                        copied=note,
                    )
                )
            after = os.fstat(fd)
            if (after.st_size, after.st_mtime_ns) != (size_bytes, status.st_mtime_ns):
                raise EOFError("the file was changed while it was copied")
            ticket, held = secrets.token_urlsafe(24), HandedFile(content, base64_of(checksum))
            self._held[ticket] = held
            _send(sock, f"ticket {ticket}")
            try:
                async with asyncio.timeout(TICKET_TIMEOUT_S):
                    await held.done.wait()
            finally:
                self._held.pop(ticket, None)
                if held.is_taken:  # the request decides whether the copy becomes an object
                    await held.done.wait()


def _listener(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # of a service that was killed; only one uses the state directory
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.bind(str(path))
        path.chmod(0o600)
        sock.listen(CONNECTIONS_MAX)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _peer_uid(sock: socket.socket) -> int:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return int(uid)


async def _descriptor(sock: socket.socket) -> int:
    """Return the descriptor in the first message of a client.

    Raises:
        EOFError: The client has left, or the message is another one.
    """
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sock)
    message, fds, flags, _ = socket.recv_fds(sock, len(GREETING) + 1, 1, socket.MSG_CMSG_CLOEXEC)
    if message == GREETING and len(fds) == 1 and not flags & socket.MSG_CTRUNC:
        return fds[0]
    for fd in fds:
        os.close(fd)
    raise EOFError(f"the first message has to be {GREETING.decode()!r} with one descriptor")


def _is_local(fd: int) -> bool:
    """Return whether a file is on a local file system that is mounted here. Asks only the kernel, so it never waits."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines())
    mount = fields.get("mnt_id", "").strip()
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        if line.split(" ", 1)[0] == mount:
            return line.partition(" - ")[2].split(" ", 1)[0] in LOCAL_FILESYSTEMS
    return False


def _refusal(fd: int, status: os.stat_result | None, *, limit_bytes: int) -> str:
    """Return why a file is not taken; empty if it is."""
    if status is None:
        return f"the file is on none of the local file systems {', '.join(sorted(LOCAL_FILESYSTEMS))}"
    if not stat.S_ISREG(status.st_mode):
        return "the descriptor is not that of a regular file"
    if fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_PATH | os.O_ACCMODE) not in (os.O_RDONLY, os.O_RDWR):
        return "the descriptor is not open for reading"
    if status.st_size > limit_bytes:
        return f"the file has {status.st_size} bytes; at most {limit_bytes} are allowed"
    return ""


def _send(sock: socket.socket, message: str) -> None:
    """Send a message unless the client has left, or has not read the ones before."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        sock.send(message.encode()[:MESSAGE_MAX_BYTES])
