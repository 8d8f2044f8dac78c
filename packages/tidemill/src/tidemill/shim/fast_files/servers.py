"""The shim's side of FastFile mode: start the process of each channel, report its errors, and end it."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import replace

from tidemill.sandbox import FuseMount, View, fuse_fault
from tidemill.shim.failures import ClientFailure, InstanceFailure, InternalFailure
from tidemill.shim.fast_files.tree import Tree
from tidemill.shim.session import InstanceSession

_MAX_LINES = 20
"""Maximum number of log lines per channel about objects that cannot be read."""


def prepare_fast_files(session: InstanceSession) -> "FastFiles":
    """Check the channels whose objects are read from a remote S3 when the script reads them, and create their mount
    points.

    Raises:
        ClientFailure: The machine cannot mount them, or a key is not a path below its channel.
    """
    names = session.task.fast_files
    if not names:
        return FastFiles(session)
    fault = fuse_fault(session.sandbox)
    if fault:
        raise ClientFailure(
            f"channel {names[0]!r}: input mode FastFile cannot read a remote S3 on this machine: {fault}. Or use File,"
            " which downloads the objects before the script starts"
        )
    for name in names:
        Tree(session.directory.read_channel(name), place=f"{session.base_dir}/input/data/{name}")
        session.stop.check()
        (session.directory.ml / "input/data" / name).mkdir(parents=True, exist_ok=True)
        session.log.note(f"tidemill: channel {name} is read from the remote S3 when the script reads it (FUSE)")
    return FastFiles(session)


class FastFiles:
    """The channels of an instance that are served by FUSE.

    Attributes:
        failure: Why the last script that ran did not get all its data (the first failure); None if it got all.
    """

    def __init__(self, session: InstanceSession) -> None:
        self._session = session
        self.failure: InstanceFailure | None = None

    def cause_of(self, failure: InstanceFailure) -> InstanceFailure:
        """Return the failure of a script, preceded by the reason why it did not get its data, if it did not."""
        cause = self.failure
        return failure if cause is None else type(cause)(f"{cause.reason}. The script then failed: {failure}")

    @contextlib.contextmanager
    def running(self) -> Generator["Serving"]:
        """Start the processes; end them when the context is left.

        Raises:
            OSError: A process cannot be started.
        """
        self.failure = None
        with contextlib.ExitStack() as stack:
            servers = [
                stack.enter_context(_Server.started(self._session, each)) for each in self._session.task.fast_files
            ]
            serving = Serving(servers)
            yield serving
            serving.ended()
            for server in servers:
                server.join()
                self.failure = self.failure or server.failure


class Serving:
    """The running processes of an instance's channels, for one command."""

    def __init__(self, servers: "list[_Server]") -> None:
        self._servers = servers

    def added_to(self, view: View) -> View:
        """Return the command's view with the mounts, which are read-only for the command."""
        mounts = tuple(server.mount for server in self._servers)
        covers = tuple((each.target, str(each.target.relative_to(view.ml))) for each in mounts)
        return replace(view, fuse=mounts, covers=(*view.covers, *covers))

    def start(self) -> None:
        """Start the threads that log errors. Called when the command runs; see `Feeder.running`."""
        for server in self._servers:
            server.follow()

    def ended(self) -> None:
        """Note which processes have ended too early. Called when the command has ended, before the processes end."""
        for server in self._servers:
            server.note_end()


class _Server:
    """The process of one channel."""

    def __init__(
        self, session: InstanceSession, channel: str, process: subprocess.Popen[bytes], report: int, sock: int
    ) -> None:
        self._session = session
        self._channel = channel
        self._process = process
        self._report = report
        self._pidfd = os.pidfd_open(process.pid)
        self._thread = threading.Thread(target=self._log_reports, name=f"fast file {channel}", daemon=True)
        self._noted = False
        self.mount = FuseMount(target=session.directory.ml / "input/data" / channel, socket=sock)
        self._killed: InstanceFailure | None = None
        self._unreadable: dict[str, str] = {}  # the reason by URI

    @property
    def failure(self) -> InstanceFailure | None:
        """Why the script did not get its data; None if it got everything, perhaps later.

        Read it after `join`.
        """
        reason = next(iter(self._unreadable.values()), None)
        return ClientFailure(f"channel {self._channel!r}: {reason}") if reason else self._killed

    @classmethod
    @contextlib.contextmanager
    def started(cls, session: InstanceSession, channel: str) -> "Generator[_Server]":
        argv = [sys.executable, "-I", "-m", "tidemill.shim.fast_files", str(session.directory.path), channel]
        with contextlib.ExitStack() as unless_started, contextlib.ExitStack() as always:
            ours, theirs = socket.socketpair()
            unless_started.enter_context(ours)
            always.enter_context(theirs)
            read_fd, write_fd = os.pipe()
            unless_started.callback(os.close, read_fd)
            always.callback(os.close, write_fd)
            process = subprocess.Popen(
                [*argv, str(theirs.fileno()), str(write_fd)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), write_fd),
                start_new_session=True,
            )
            unless_started.pop_all()
        server = cls(session, channel, process, read_fd, ours.detach())  # the starter of the command closes `ours`
        try:
            yield server
        finally:
            server._close()

    def follow(self) -> None:
        self._thread.start()

    def note_end(self) -> None:
        """If the process was killed or failed while the command ran, note it."""
        if self._noted:
            return
        self._noted = True
        if not select.select([self._pidfd], [], [], 0)[0]:
            return
        with contextlib.suppress(ChildProcessError):  # reaped already, when the command had ended
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
            if ended is None or (ended.si_code == os.CLD_EXITED and ended.si_status == 0):
                return
            how = f"status {ended.si_status}" if ended.si_code == os.CLD_EXITED else f"signal {ended.si_status}"
            text = f"channel {self._channel!r}: the process that reads it from the remote S3 has ended with {how}"
            self._session.log.note(f"tidemill: {text}")
            self._killed = InternalFailure(text)

    def join(self) -> None:
        """End the process, and wait until all its reports are logged."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._thread.ident is not None:
            self._thread.join()

    def _close(self) -> None:
        self.join()
        self._process.wait()
        os.close(self._pidfd)
        os.close(self._report)

    def _log_reports(self) -> None:
        # Signals must reach the main thread, and wake its select(2).
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with os.fdopen(os.dup(self._report), encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines):
                if not line.endswith("\n"):  # the process was killed while it wrote
                    break
                uri, reason = json.loads(line)
                if reason:
                    self._unreadable[uri] = reason
                else:
                    self._unreadable.pop(uri, None)
                if number < _MAX_LINES:
                    text = reason or f"{uri} can be read again"
                    self._session.log.note(f"tidemill: channel {self._channel!r}: {text}")
                elif number == _MAX_LINES:
                    self._session.log.note(f"tidemill: channel {self._channel!r}: more objects cannot be read")
