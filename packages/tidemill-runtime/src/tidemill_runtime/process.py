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
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

FORWARDED = (signal.SIGTERM, signal.SIGINT)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """The script's process, however it was started.

    Attributes:
        pid: Process id in the runtime's pid namespace; also the id of its session and process group.
        helper_pids: Other processes that the child started and reaps itself.
    """

    pid: int
    helper_pids: tuple[int, ...] = ()

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the process may have ended; -1 if SIGCHLD reports it."""
        return -1

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal, and kill the rest of the group; None while the process runs."""
        raise NotImplementedError

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group; no effect after the end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def account(self, ended: Ended) -> Ended:
        """Return how the deciding process ended: this one, or one of those below it."""
        return ended


@dataclass(frozen=True)
class Ended:
    """How the script ended.

    Attributes:
        exit_code: Exit code, negative for a signal.
        stderr_tail: The last 16 KiB of standard error.
        pid: Process id of the process.
        where: The process of the script that decided, e.g. ``rank 1 on algo-1``; empty if there is only one.
        reports: File for reports of uncaught exceptions; None for the default file.
    """

    exit_code: int
    stderr_tail: str
    pid: int
    where: str = ""
    reports: Path | None = None


class ColdChild(Child):
    """A child process that starts a fresh interpreter.

    Args:
        argv: Argument vector; no shell is involved.
        directory: Working directory.
        variables: The whole environment.
        stderr_fd: Descriptor for its standard error.

    Raises:
        LaunchError: The operating system refused to start it.
    """

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

    def exit_code(self) -> int | None:
        """Return the exit code when the process has ended; None before."""
        if self._process.returncode is not None:
            return self._process.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        self.signal_group(signal.SIGKILL)  # before the process is reaped: then its number may be reused
        return self._process.wait()


def supervise(child: Child, *, signals_fd: int, stderr_fd: int, control_fd: int | None) -> Ended:
    """Wait until the script ends; then end all processes that it left behind.

    Args:
        signals_fd: Descriptor from ``signal_numbers``, created before the script was started.
        stderr_fd: Read end of the script's standard error; closed here.
        control_fd: The shim's pipe: ``T`` requests SIGTERM to the script, end of file the end of all processes.
    """
    tail = Tail()
    with selectors.DefaultSelector() as selector:
        selector.register(signals_fd, selectors.EVENT_READ, lambda: _forward(os.read(signals_fd, 4096), child))
        selector.register(stderr_fd, selectors.EVENT_READ, lambda: _forward_output(stderr_fd, tail))
        if control_fd is not None:
            selector.register(control_fd, selectors.EVENT_READ, lambda: _handle_message(os.read(control_fd, 64), child))
        if child.fileno() >= 0:
            selector.register(child.fileno(), selectors.EVENT_READ, lambda: True)  # wakes the loop
        while child.exit_code() is None:
            _handle_events(selector)
    exit_code = child.exit_code()
    kill_descendants()
    os.set_blocking(stderr_fd, False)
    with contextlib.suppress(BlockingIOError):  # a process that cannot be killed from here keeps it open
        while _forward_output(stderr_fd, tail):
            pass
    os.close(stderr_fd)
    return child.account(Ended(exit_code if exit_code is not None else 1, tail.text(), child.pid))


def exit_code_of(status: int) -> int:
    """Return the exit code of a wait status, negative for a signal.

    Args:
        status: As `os.waitpid` returns it.
    """
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def stop_requested(control_fd: int | None) -> bool:
    """Return whether the shim has requested a stop, before there is a script.

    Args:
        control_fd: Read end of the shim's pipe; None without a shim.

    Returns:
        True also if the shim has ended.
    """
    if control_fd is None:
        return False
    return bool(select.select([control_fd], [], [], 0)[0])


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent_pid: int) -> Callable[[], None]:
    """Return a function for a child to call before exec, so that the kernel kills the child when its parent dies.

    Args:
        parent_pid: Process id of the parent.
    """

    def arrange() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent_pid:
            os._exit(1)  # the parent died just before

    return arrange


def begin_afresh(parent_pid: int) -> Callable[[], None]:
    """Return a function for the script's process to call before exec: it dies with the runtime, and ignores no signals.

    A shell that starts a service in the background makes the service inherit ignored SIGINT and SIGQUIT.

    Args:
        parent_pid: Process id of the runtime.
    """
    arrange = die_with_parent(parent_pid)

    def begin() -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        arrange()

    return begin


@contextlib.contextmanager
def signal_numbers() -> Generator[int]:
    """Yield a descriptor from which the numbers of arriving signals can be read.

    Enter it before the script is started: a signal that arrives meanwhile is then passed on a little later.
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
    """Do nothing. Python writes to the wakeup descriptor only for signals that have a handler."""


def _handle_events(selector: selectors.BaseSelector) -> None:
    """Wait for descriptors, and call the function of each one, which returns whether to go on watching it."""
    for key, _ in selector.select():
        if not key.data():
            selector.unregister(key.fd)


def _forward(numbers: bytes, child: Child) -> bool:
    """Pass signals on to the script, and reap orphans; return True."""
    for number in numbers:
        if number in FORWARDED:
            child.signal_group(number)
    if signal.SIGCHLD in numbers:
        _reap_others({child.pid, *child.helper_pids})
    return True


def _reap_others(own_pids: set[int]) -> None:
    """Reap orphans that this process has adopted; each Child reaps the processes that it started."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own_pids:
            return
        os.waitpid(ended.si_pid, 0)


def _forward_output(fd: int, tail: Tail) -> bool:
    """Pass on the available bytes; return False at the end."""
    data = os.read(fd, 65536)
    if data:
        tail.pass_on(data)
    return bool(data)


def _handle_message(message: bytes, child: Child) -> bool:
    """Obey a message of the shim; return False when the shim is gone."""
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
