"""Run the script below the runtime: own session, signals passed on, standard error passed through, no process left
behind.

The runtime is the script's parent, the reaper of its orphans, and often process 1 of the job. It is single-threaded:
one selector watches standard error, the shim's control pipe and the signals.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import selectors
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill_runtime._shared.descendants import kill_descendants
from tidemill_runtime.errors import LaunchError
from tidemill_runtime.tee import Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType
    from typing import Protocol
else:
    Protocol = object  # missing in Python 3.7, and only needed by type checkers

__all__ = [
    "Child",
    "ColdChild",
    "Ended",
    "adopt_orphans",
    "begin_afresh",
    "die_with_parent",
    "exit_code_of",
    "signal_numbers",
    "stop_requested",
    "supervise",
]

FORWARDED = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class Child(Protocol):
    """The script's process, however it was started.

    Attributes:
        pid: In the runtime's pid namespace; also the id of its session and process group.
        helper_pids: Other processes that it started and reaps itself.
    """

    pid: int
    helper_pids: tuple[int, ...]

    def fileno(self) -> int:
        """A descriptor that becomes readable when the process may have ended; -1 where SIGCHLD says so."""

    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs. Ends what is left of its group."""

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group."""

    def account(self, ended: Ended) -> Ended:
        """How the process that decides ended: this one, or one of those below it."""


@dataclass(frozen=True)
class Ended:
    """How the script ended.

    Attributes:
        exit_code: Negative for a signal.
        stderr_tail: The last 16 KiB of standard error.
        pid: Of the process.
        where: Which of the script's processes it was, e.g. ``rank 1 on algo-1``; empty if there is only one.
        reports: File for reports of uncaught exceptions; None for the default file.
    """

    exit_code: int
    stderr_tail: str
    pid: int
    where: str = ""
    reports: Path | None = None


class ColdChild:
    """A child process that starts a fresh interpreter.

    Args:
        argv: Argument vector; no shell is involved.
        directory: Working directory.
        variables: Whole environment.
        stderr_fd: Its standard error.

    Raises:
        LaunchError: The operating system refused.
    """

    helper_pids: tuple[int, ...] = ()

    def __init__(self, argv: Sequence[str], *, directory: Path, variables: Mapping[str, str], stderr_fd: int) -> None:
        # always UTF-8, regardless of the locale: a value must arrive as it was sent.
        vector = [argument.encode("utf-8", "surrogateescape") for argument in argv]
        environment = {_encoded(name): _encoded(value) for name, value in variables.items()}
        try:
            self._process = subprocess.Popen(
                vector,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=stderr_fd,
                start_new_session=True,
                preexec_fn=begin_afresh(os.getpid()),  # safe: the runtime has one thread
            )
        except OSError as error:
            raise _launch_error(error, vector, environment) from error
        self.pid = self._process.pid

    def fileno(self) -> int:
        """No descriptor: SIGCHLD tells."""
        return -1

    def exit_code(self) -> int | None:
        """The exit code once the process has ended."""
        if self._process.returncode is not None:
            return self._process.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        self.signal_group(signal.SIGKILL)  # while its number cannot be given to anybody else
        return self._process.wait()

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def account(self, ended: Ended) -> Ended:
        """This process decides."""
        return ended


def supervise(child: Child, *, signals_fd: int, stderr_fd: int, control_fd: int | None) -> Ended:
    """Wait until the script ends; then end everything that it left behind.

    Args:
        child: The script.
        signals_fd: From ``signal_numbers``, entered before the script was started.
        stderr_fd: Read end of its standard error; closed here.
        control_fd: The shim's pipe: ``T`` asks for SIGTERM to the script, end of file for the end of everything.
    """
    tail = Tail()
    with selectors.DefaultSelector() as selector:
        selector.register(signals_fd, selectors.EVENT_READ)
        selector.register(stderr_fd, selectors.EVENT_READ)
        for fd in (control_fd, child.fileno()):
            if fd is not None and fd >= 0:
                selector.register(fd, selectors.EVENT_READ)
        while child.exit_code() is None:
            for key, _ in selector.select():
                if key.fd == signals_fd:
                    _forward(os.read(signals_fd, 4096), child)
                elif key.fd == stderr_fd and not _pass_on(stderr_fd, tail):
                    selector.unregister(stderr_fd)
                elif key.fd == control_fd and not _obey(os.read(key.fd, 64), child):
                    selector.unregister(key.fd)
    exit_code = child.exit_code()
    kill_descendants()
    os.set_blocking(stderr_fd, False)
    with contextlib.suppress(BlockingIOError):  # a process outside our reach holds it open
        while _pass_on(stderr_fd, tail):
            pass
    os.close(stderr_fd)
    return child.account(Ended(exit_code if exit_code is not None else 1, tail.text(), child.pid))


def exit_code_of(status: int) -> int:
    """The exit code of a wait status, negative for a signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def stop_requested(control_fd: int | None) -> bool:
    """Whether the shim wants no script any more: asked before there is one."""
    if control_fd is None:
        return False
    return bool(select.select([control_fd], [], [], 0)[0])


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent_pid: int) -> Callable[[], None]:
    """What a child calls before exec, so that the kernel kills it when its parent dies."""

    def arrange() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(1)  # it died just before

    return arrange


def begin_afresh(parent_pid: int) -> Callable[[], None]:
    """What the script's process calls before exec: it dies with the runtime, and ignores nothing that others ignore.

    A shell that starts a service in the background makes it inherit ignored SIGINT and SIGQUIT.
    """
    arrange = die_with_parent(parent_pid)

    def begin() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        arrange()

    return begin


@contextlib.contextmanager
def signal_numbers() -> Iterator[int]:
    """A descriptor from which the numbers of arriving signals can be read.

    To be entered before there is a script: a signal that comes while it starts is then passed on a little later.
    """
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    previous_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    watched = (*FORWARDED, signal.SIGCHLD)
    previous = {number: signal.signal(number, _nothing) for number in watched}
    try:
        yield read_fd
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(previous_fd)
        os.close(read_fd)
        os.close(write_fd)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Python needs a handler for the wakeup descriptor to hear of a signal."""


def _forward(numbers: bytes, child: Child) -> None:
    for number in numbers:
        if number in FORWARDED:
            child.signal_group(number)
    if signal.SIGCHLD in numbers:
        _reap_others({child.pid, *child.helper_pids})


def _reap_others(own_pids: set[int]) -> None:
    """Reap orphans that were handed to us; what a Child started is reaped by it."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own_pids:
            return
        os.waitpid(ended.si_pid, 0)


def _pass_on(fd: int, tail: Tail) -> bool:
    """Pass on what there is; False at the end."""
    data = os.read(fd, 65536)
    if data:
        tail.pass_on(data)
    return bool(data)


def _obey(message: bytes, child: Child) -> bool:
    """Do what the shim wants; False when it is gone."""
    if not message:
        child.signal_group(signal.SIGKILL)
        return False
    if b"T" in message:
        child.signal_group(signal.SIGTERM)
    return True


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _launch_error(error: OSError, vector: list[bytes], environment: Mapping[bytes, bytes]) -> LaunchError:
    if error.errno != errno.E2BIG:
        return LaunchError(f"cannot start {os.fsdecode(vector[0])!r}: {error.strerror}")
    arguments = sum(len(argument) + 1 for argument in vector)
    variables = sum(len(name) + len(value) + 2 for name, value in environment.items())
    return LaunchError(
        f"E2BIG: the script's arguments take {arguments} bytes and its variables {variables}; one of them may have "
        "131071 bytes, all together about 2 MB. Every hyperparameter counts four times (argument, SM_HP_*, SM_HPS, "
        "SM_TRAINING_ENV): hand over big values in a channel"
    )
