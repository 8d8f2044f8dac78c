"""Running one command of an instance to its end: output to the log, stop and time limit, nobody left behind."""

import contextlib
import ctypes
import os
import resource
import selectors
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.clock import Clock
from tidemill.executors.base import StopReason
from tidemill.executors.process_tree import descendants, kill_descendants, namespace_init
from tidemill.executors.sandbox import Launch
from tidemill.executors.shim.report import JobLog, LineSplitter
from tidemill.executors.shim.stopping import StopSignal

__all__ = ["Ended", "Limits", "Running", "adopt_orphans", "supervise"]

_READ_BYTES = 1 << 18
_TAIL_BYTES = 4096
_LONGEST_WAIT_S = 30.0  # select(2) does not count time asleep; CLOCK_BOOTTIME does
_OOM_SCORE = 500  # a job is killed before the service is
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When to end a command.

    Attributes:
        grace_s: Between asking and killing.
        deadline_s: On the clock's monotonic scale: when to ask by itself; None never.
    """

    grace_s: float
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended.

    Attributes:
        exit_code: Negative, or 128 + N, for signal N.
        stop: Why it was asked to stop, where it was before it ended.
        peak_rss_bytes: Of the largest of its processes.
        stderr_tail: The end of its standard error.
    """

    exit_code: int
    stop: StopReason | None
    peak_rss_bytes: int
    stderr_tail: str


class Running:
    """A command that runs: what it may be asked."""

    def __init__(self, pid: int, control_fd: int) -> None:
        self.pid = pid
        self.control_fd = control_fd

    def ask_runtime(self) -> None:
        """Ask tidemill-runtime to send SIGTERM to the script's process group."""
        with contextlib.suppress(OSError):
            os.write(self.control_fd, b"T")

    def terminate_command(self) -> None:
        """SIGTERM to the command itself, wherever the sandbox put it."""
        # Process 1 of a sandbox and the one around it are the sandbox's own: they would end it at once.
        first = namespace_init(self.pid)
        inner = descendants(first)[:1] if first else [self.pid]
        for pid in inner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; whoever is left below is killed when the end has been noticed."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """Become the parent of every orphan below this process, so that none gets away."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def supervise(
    launch: Launch,
    *,
    log: JobLog,
    stop: StopSignal,
    clock: Clock,
    limits: Limits,
    ask: Callable[[Running], None],
    control: tuple[int, int] | None = None,
    dies_with_shim: bool = True,
    started: Callable[[], None] = lambda: None,
) -> Ended:
    """Start a command and wait for its end; then end and reap everything below the shim.

    Args:
        launch: What to start. Its descriptors are closed here.
        log: Takes the lines of both its streams as they come.
        stop: Asks for an end.
        clock: Of the limits.
        limits: When to end it.
        ask: Is called once when the command shall end; SIGKILL follows after the grace time.
        control: Read and write end of the control pipe, both closed here.
        dies_with_shim: Let the kernel kill the command when the shim dies. Not wanted where the command itself is to
            notice by the control pipe, and to end its children.
        started: Is called once it runs.

    Raises:
        OSError: It cannot be started.
    """
    read_fd, write_fd = control or (-1, -1)
    try:
        try:
            process = _spawn(launch, inherit=read_fd, dies_with_shim=dies_with_shim)
        finally:
            if read_fd >= 0:
                os.close(read_fd)
        started()
        return _Supervision(process, Running(process.pid, write_fd), log=log).run(stop, clock, limits, ask)
    finally:
        for fd in launch.descriptors:
            os.close(fd)
        if write_fd >= 0:
            os.close(write_fd)


class _Supervision:
    """The loop around one process."""

    def __init__(self, process: subprocess.Popen[bytes], running: Running, *, log: JobLog) -> None:
        self._process = process
        self._running = running
        self._log = log
        self._splitters: dict[int, LineSplitter] = {}
        self._stderr_fd = -1
        self._tail = b""
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._splitters[stream.fileno()] = LineSplitter()
        if process.stderr is not None:
            self._stderr_fd = process.stderr.fileno()

    def run(self, stop: StopSignal, clock: Clock, limits: Limits, ask: Callable[[Running], None]) -> Ended:
        reason: StopReason | None = None
        kill_at_s: float | None = None
        pidfd = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for fd in (pidfd, stop.fileno(), *self._splitters):
                    selector.register(fd, selectors.EVENT_READ)
                while True:
                    now_s = clock.monotonic_s()
                    if reason is None:
                        due = limits.deadline_s is not None and now_s >= limits.deadline_s
                        reason = stop.reason or (StopReason.MAX_RUNTIME if due else None)
                        if reason is not None:
                            kill_at_s = now_s + limits.grace_s
                            ask(self._running)
                            with contextlib.suppress(KeyError):
                                selector.unregister(stop.fileno())
                    elif kill_at_s is not None and now_s >= kill_at_s:
                        self._running.kill()
                        kill_at_s = None
                    next_s = kill_at_s if reason else limits.deadline_s
                    wait_s = _LONGEST_WAIT_S if next_s is None else min(_LONGEST_WAIT_S, max(0.0, next_s - now_s))
                    ready = {key.fd for key, _ in selector.select(wait_s)}
                    for fd in ready & self._splitters.keys():
                        if not self._read(fd):
                            selector.unregister(fd)
                    if pidfd in ready:
                        return self._end(reason)
        finally:
            os.close(pidfd)
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()

    def _end(self, reason: StopReason | None) -> Ended:
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        kill_descendants()
        for fd, splitter in self._splitters.items():
            while self._read(fd):  # until the end, or until only a stranger holds the pipe open
                pass
            self._log.write(splitter.end())
        return Ended(
            exit_code=self._process.returncode,
            stop=reason,
            peak_rss_bytes=usage.ru_maxrss * 1024,
            stderr_tail=self._tail.decode(errors="replace"),
        )

    def _read(self, fd: int) -> bool:
        """Pass on what there is; False where nothing is left, now or for ever."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        self._log.write(self._splitters[fd].feed(data))
        if fd == self._stderr_fd:
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
        return bool(data)


def _spawn(launch: Launch, *, inherit: int, dies_with_shim: bool) -> subprocess.Popen[bytes]:
    shim = os.getpid()

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
        if dies_with_shim:
            _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != shim:
                os._exit(1)

    return subprocess.Popen(
        launch.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value.encode("utf-8", "surrogateescape") for name, value in launch.variables.items()},
        pass_fds=(*launch.descriptors, *((inherit,) if inherit >= 0 else ())),
        cwd=launch.directory,
        start_new_session=True,
        preexec_fn=prepare,
    )
