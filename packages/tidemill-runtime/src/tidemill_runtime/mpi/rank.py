"""A rank: one process of the script, started by the supervisor, and its output as whole lines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

from tidemill_runtime.process import begin_afresh
from tidemill_runtime.tee import write_all

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from pathlib import Path

KEPT_BYTES = 16 << 10
LONGEST_LINE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16


class RankOutput:
    """A stream of one rank, passed on in whole lines with the rank's name before each; its end is kept.

    Args:
        read_fd: Descriptor of the rank's output; closed with this object.
        to_fd: Descriptor that the lines are written to; None only keeps the last lines.
    """

    def __init__(self, read_fd: int, *, to_fd: int | None, tag: str) -> None:
        self.fd = read_fd
        self._to_fd = to_fd
        self._tag = tag.encode()
        self._open_line = bytearray()
        self._kept = bytearray()

    def pass_on(self) -> bool:
        """Pass on the available output; return False at the end, when the descriptor is closed."""
        try:
            data = os.read(self.fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self._kept += data
        del self._kept[:-KEPT_BYTES]
        lines = (bytes(self._open_line) + data).split(b"\n")
        self._open_line = bytearray(lines.pop())
        if self._open_line and (not data or len(self._open_line) > LONGEST_LINE_BYTES):
            lines.append(bytes(self._open_line))
            self._open_line.clear()
        if lines:
            self._write(b"".join(self._tag + line + b"\n" for line in lines))
        return bool(data)

    def drain(self) -> None:
        """Pass on the output that has arrived, up to its end."""
        os.set_blocking(self.fd, False)
        while self._ready() and self.pass_on():
            pass
        if self._open_line:
            self._write(self._tag + bytes(self._open_line) + b"\n")
            self._open_line.clear()

    def text(self) -> str:
        """Return the end of the output."""
        return self._kept.decode("utf-8", "replace")

    def _ready(self) -> bool:
        return bool(select.select([self.fd], [], [], 0)[0])

    def _write(self, data: bytes) -> None:
        if self._to_fd is None:
            return
        try:
            write_all(self._to_fd, data)
        except BrokenPipeError:
            self._to_fd = None  # the reader has closed the descriptor


class Rank:
    """A process of the script.

    Args:
        tag: Text before the lines of its output, e.g. ``[1,mpirank:0,algo-1]``.
        argv: Argument vector.
        directory: Working directory.
        variables: The whole environment.
        cpus: Processors to which MPI bound the rank.
        pass_fds: Descriptors that the process inherits, under the same numbers.
        entry: Connection to the process that MPI takes for this rank.

    Raises:
        OSError: The operating system refused to start the process.
    """

    def __init__(
        self,
        number: int,
        *,
        tag: str,
        argv: Sequence[str],
        directory: Path,
        variables: Mapping[str, str],
        cpus: Sequence[int],
        pass_fds: Sequence[int],
        entry: socket.socket,
    ) -> None:
        self.number = number
        self.entry = entry
        self.exit_code: int | None = None
        self.left_by_mpi = False
        fresh = begin_afresh(os.getpid())

        def begin() -> None:
            with contextlib.suppress(OSError):  # the processors may have changed since MPI chose them
                os.sched_setaffinity(0, cpus)
            fresh()

        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=directory,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=out_write,
                stderr=err_write,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
                preexec_fn=begin,  # safe: the supervisor has one thread
            )
        except OSError:
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        self.pid = self._process.pid
        self.stdout = RankOutput(out_read, to_fd=1, tag=f"{tag}<stdout>:")
        self.stderr = RankOutput(err_read, to_fd=2, tag=f"{tag}<stderr>:")

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, when the process has ended, and kill the rest of its group."""
        if self.exit_code is None and self.has_ended:
            self.signal(signal.SIGKILL)  # before the process is reaped: then its number may be reused
            self.exit_code = self._process.wait()
        return self.exit_code

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended, even if `poll` has not reported it yet."""
        if self.exit_code is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        """Send a signal to the rank's process group, unless the rank has ended."""
        if self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
