"""Run one command of an instance to its end: log its output, enforce stops and time limit, end all its processes."""

import contextlib
import os
import resource
import selectors
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill._shared.descendants import descendants, kill_descendants
from tidemill.core.clock import Clock
from tidemill.core.kernel import end_with_parent
from tidemill.instance.process_tree import namespace_init
from tidemill.instance.status import StopReason
from tidemill.sandbox import Launch
from tidemill.sandbox.network import enter
from tidemill.shim.cgroup import Cgroup
from tidemill.shim.lines import LineSplitter
from tidemill.shim.report import Log
from tidemill.shim.stopping import StopRequest

_READ_BYTES = 1 << 18
_TAIL_BYTES = 4096
_LONGEST_WAIT_S = 30.0  # select(2) does not count the time of a suspend, but the clock of the limits does
_PEER_GRACE_S = 5.0
_OOM_SCORE = 500  # if memory runs out, the kernel kills a job before the service


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """When to end a command.

    Attributes:
        grace_s: Seconds between the request to end and SIGKILL.
        deadline_s: Time limit of the command, as a time on the monotonic clock. Default: none.
    """

    grace_s: float
    deadline_s: float | None = None

    def grace_of(self, reason: StopReason) -> float:
        """Return the seconds between the request to end and SIGKILL for a reason.

        At most 5 s if another instance of the job failed: the script then has nothing to save, and may hang in a
        collective operation.

        Args:
            reason: Why the instance has to stop.
        """
        return min(self.grace_s, _PEER_GRACE_S) if reason is StopReason.PEER_FAILED else self.grace_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        exit_code: Exit status; after signal N it is -N, or 128 + N if the command ran below another process.
        stop: Reason of the stop, if a stop was requested before the command ended; else None.
        peak_rss_bytes: Peak resident memory of the command's largest process.
        stderr_tail: The last 4 KiB of standard error.
        lost: Whether the command was killed because a process that it needs had ended.
    """

    exit_code: int
    stop: StopReason | None
    peak_rss_bytes: int
    stderr_tail: str
    lost: bool = False


class Running:
    """A running command, and the ways to end it.

    Args:
        pid: Process id of the command, or of the sandbox around it.
        control_fd: Write end of the control pipe to tidemill-runtime; -1 without one.
    """

    def __init__(self, pid: int, control_fd: int) -> None:
        self.pid = pid
        self.control_fd = control_fd

    def ask_runtime(self) -> None:
        """Ask tidemill-runtime to send SIGTERM to the script's process group."""
        with contextlib.suppress(OSError):
            os.write(self.control_fd, b"T")

    def terminate_command(self) -> None:
        """Send SIGTERM to the command itself, which may be below processes of the sandbox."""
        # Process 1 of the sandbox and its parent belong to the sandbox; SIGTERM to them would kill the command at once.
        first = namespace_init(self.pid)
        inner = descendants(first)[:1] if first else [self.pid]
        for pid in inner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the command. `supervise` kills its descendants when the command has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def supervise(
    launch: Launch,
    *,
    log: Log,
    stop: StopRequest,
    clock: Clock,
    limits: CommandLimits,
    ask: Callable[[Running], None],
    control: tuple[int, int] | None = None,
    dies_with_shim: bool = True,
    started: Callable[[], None] = lambda: None,
    ended: Callable[[], None] = lambda: None,
    needs: int | None = None,
    cpus: frozenset[int] | None = None,
    cgroup: Cgroup | None = None,
) -> CommandEnd:
    """Start a command and wait for its end; then kill and reap all descendants of the shim.

    Args:
        launch: The command. This function closes its descriptors.
        log: Stores the lines of standard output and standard error.
        clock: The clock of ``limits``.
        limits: Time limit and grace time of the command.
        ask: Called once to end the command; SIGKILL follows after the grace time.
        control: Read and write end of the control pipe, which this function closes. Default: no pipe.
        dies_with_shim: Whether the kernel kills the command when the shim dies. False if the command detects that
            through the control pipe, and ends its children. Default: true.
        started: Called when the command runs.
        ended: Called when the command has ended, before the other descendants of the shim are killed.
        needs: A pidfd of a process that the command needs. When that process ends, the command is killed. Default:
            none.
        cpus: Processors that the command may use. Default: those of this process.
        cgroup: The control group of the command. Default: that of this process.

    Raises:
        OSError: The command cannot be started.
    """
    read_fd, write_fd = control or (-1, -1)
    try:
        try:
            process = _spawn(launch, inherit=read_fd, dies_with_shim=dies_with_shim, cpus=cpus, cgroup=cgroup)
        finally:
            if read_fd >= 0:
                os.close(read_fd)
        started()
        supervision = _Supervision(process, Running(process.pid, write_fd), log=log, clock=clock, ended=ended)
        return supervision.run(stop, limits, ask, needs)
    finally:
        for fd in (*launch.descriptors, *launch.namespaces):
            os.close(fd)
        if write_fd >= 0:
            os.close(write_fd)


class _Supervision:
    """The loop around one process."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        running: Running,
        *,
        log: Log,
        clock: Clock,
        ended: Callable[[], None],
    ) -> None:
        self._ended = ended
        self._process = process
        self._running = running
        self._log = log
        self._clock = clock
        self._splitters: dict[int, LineSplitter] = {}
        self._stderr_fd = -1
        self._tail = b""
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self._splitters[stream.fileno()] = LineSplitter()
        if process.stderr is not None:
            self._stderr_fd = process.stderr.fileno()

    def run(
        self, stop: StopRequest, limits: CommandLimits, ask: Callable[[Running], None], needs: int | None = None
    ) -> CommandEnd:
        pidfd = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for fd in (pidfd, stop.fileno(), *self._splitters, *((needs,) if needs is not None else ())):
                    selector.register(fd, selectors.EVENT_READ)
                return self._watch(selector, pidfd, stop, limits, ask, needs)
        finally:
            os.close(pidfd)
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()

    def _watch(
        self,
        selector: selectors.BaseSelector,
        pidfd: int,
        stop: StopRequest,
        limits: CommandLimits,
        ask: Callable[[Running], None],
        needs: int | None,
    ) -> CommandEnd:
        reason: StopReason | None = None
        lost = False
        kill_at_s: float | None = None
        while True:
            now_s = self._clock.monotonic_s()
            if reason is None:
                due = limits.deadline_s is not None and now_s >= limits.deadline_s
                reason = stop.reason or (StopReason.MAX_RUNTIME if due else None)
                if reason is not None:
                    kill_at_s = now_s + limits.grace_of(reason)
                    ask(self._running)
                    selector.unregister(stop.fileno())
            elif kill_at_s is not None and now_s >= kill_at_s:
                self._running.kill()
                kill_at_s = None
            next_s = [kill_at_s if reason else limits.deadline_s]
            next_s += [splitter.due_s for splitter in self._splitters.values()]
            waits_s = [max(0.0, at_s - now_s) for at_s in next_s if at_s is not None]
            ready = {key.fd for key, _ in selector.select(min([_LONGEST_WAIT_S, *waits_s]))}
            self._pass_on_states()
            for fd in ready & self._splitters.keys():
                if not self._read(fd):
                    selector.unregister(fd)
            if needs in ready and needs is not None:
                selector.unregister(needs)
                self._running.kill()
                lost = True
            if pidfd in ready:
                return replace(self._end(reason), lost=lost)

    def _end(self, reason: StopReason | None) -> CommandEnd:
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._ended()
        kill_descendants()
        for fd, splitter in self._splitters.items():
            while self._read(fd):  # until end of file, or until an unrelated process keeps an empty pipe open
                pass
            self._log.write(splitter.end())
        return CommandEnd(
            exit_code=self._process.returncode,
            stop=reason,
            peak_rss_bytes=usage.ru_maxrss * 1024,
            stderr_tail=self._tail.decode(errors="replace"),
        )

    def _pass_on_states(self) -> None:
        """Log the states of progress bars that are due, even without new output."""
        for splitter in self._splitters.values():
            if splitter.due_s is not None:
                self._log.write(splitter.feed(b"", self._clock.monotonic_s()))

    def _read(self, fd: int) -> bool:
        """Log the available output. Return False if there is none now, or at end of file."""
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        self._log.write(self._splitters[fd].feed(data, self._clock.monotonic_s()))
        if fd == self._stderr_fd:
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
        return bool(data)


def _spawn(
    launch: Launch, *, inherit: int, dies_with_shim: bool, cpus: frozenset[int] | None, cgroup: Cgroup | None
) -> subprocess.Popen[bytes]:
    shim = os.getpid()

    def prepare() -> None:
        if cgroup is not None:
            cgroup.enter()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
        if cpus is not None:
            os.sched_setaffinity(0, cpus)
        enter(launch.namespaces)
        if dies_with_shim:
            end_with_parent()
            if os.getppid() != shim:
                os._exit(1)

    try:
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
    except subprocess.SubprocessError as error:
        # Python reports any error of `prepare` as this one, without its text.
        raise OSError("the process could not enter its control group, processors or namespaces") from error
