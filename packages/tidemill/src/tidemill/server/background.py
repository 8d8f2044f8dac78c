"""Start the service in the background and end it, for `tidemill up` and `tidemill down`."""

import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

from tidemill.core.files import make_directory
from tidemill.core.process import ProcessId
from tidemill.errors import ConfigurationError
from tidemill.server.discovery import ServiceRecord, find_service
from tidemill.server.state import StateDirectory
from tidemill.settings import Settings

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0

Serve = Callable[[Settings, int], NoReturn]
"""Runs the service in this process and exits; the descriptor is the ``ready_fd`` of `tidemill.server.run.serve`."""

_IN_USE = 3


def start_in_background(
    settings: Settings, *, timeout_s: float = START_TIMEOUT_S, fork: Serve | None = None
) -> ServiceRecord:
    """Start a service detached from this process and its terminal, and return when it answers.

    If several processes call this at once, one starts the service and all return the same one.

    Args:
        timeout_s: Time limit of the start, in seconds.
        fork: Function that serves in a fork of this process, which saves half a second of imports; this process must
            have a single thread. None starts a new process.

    Raises:
        ConfigurationError: The service did not start; the message contains its output.
    """
    state = StateDirectory(settings.state_dir.absolute())
    _make_root(state)
    deadline_s = time.monotonic() + timeout_s
    while True:
        started = _attempt(settings, state=state, timeout_s=deadline_s - time.monotonic(), fork=fork)
        record = _other_service(state, deadline_s=deadline_s) if started.status == _IN_USE else find_service(state)
        if record is not None:
            return record
        # Retry only if the process that held the lock was ending.
        if started.status != _IN_USE or time.monotonic() > deadline_s:
            raise ConfigurationError(_failure(state, started))


def service_command(settings: Settings, *, ready_fd: int) -> list[str]:
    """Return the command line of a service in the foreground, with absolute paths.

    Args:
        ready_fd: Descriptor on which the service reports that it answers.
    """
    # -P: a file in the caller's directory must not shadow a module of the service.
    return [
        *(sys.executable, "-P", "-m", "tidemill.cli", "up", "--foreground"),
        *("--ready-fd", str(ready_fd)),
        *("--state-dir", str(settings.state_dir.absolute())),
        *("--host", settings.host),
        *(("--port", str(settings.port)) if settings.port_is_chosen else ()),
        *("--isolation", settings.isolation),
        *(("--warm",) if settings.warm else ()),
        *(("--tls-certificate", str(settings.tls_certificate)) if settings.tls_certificate else ()),
        *(("--tls-key", str(settings.tls_key)) if settings.tls_key else ()),
    ]


def end_service(record: ServiceRecord, *, timeout_s: float = END_TIMEOUT_S) -> None:
    """Stop the service, and wait until its process has ended. Jobs keep running.

    Raises:
        ConfigurationError: The process is still running after ``timeout_s``.
    """
    if not record.process.certainly_alive:
        return
    os.kill(record.pid, signal.SIGTERM)
    if not wait_for_end(record.process, timeout_s=timeout_s):
        raise ConfigurationError(
            f"the service (pid {record.pid}, {record.url}) did not end within {timeout_s:g} s; its log says what it"
            f" waits for. `kill -9 {record.pid}` ends it at once: jobs and stored state survive that"
        )


def wait_for_end(process: ProcessId, *, timeout_s: float) -> bool:
    """Wait until a process has ended, without polling; return whether it has.

    Args:
        process: The process.
        timeout_s: Longest wait in seconds.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        # The process id may have been reused between the caller's check and pidfd_open.
        return not process.alive or bool(select.select([fd], [], [], timeout_s)[0])
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class _Start:
    """One attempt: exit status of the child (None while it serves) and the offset of its part of the log."""

    status: int | None
    log_offset: int


class _ServiceProcess(Protocol):
    def wait(self) -> int: ...

    def kill(self) -> None: ...


def _attempt(settings: Settings, *, state: StateDirectory, timeout_s: float, fork: Serve | None) -> _Start:
    fd = os.open(state.service_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "ab") as log:
        offset = log.seek(0, os.SEEK_END)
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb", buffering=0) as ready:
            try:
                process: _ServiceProcess = (
                    _spawn(settings, log_fd=log.fileno(), ready_fd=writer)
                    if fork is None
                    else _Forked.serving(fork, settings, log_fd=log.fileno(), ready_fd=writer)
                )
            finally:
                os.close(writer)
            answered = bool(select.select([ready], [], [], timeout_s)[0])
            if answered and ready.read(4096):
                return _Start(None, offset)
    if not answered:
        # No answer within the time limit: it must not become ready after the caller has given up.
        process.kill()
    return _Start(process.wait(), offset)


def _make_root(state: StateDirectory) -> None:
    try:
        make_directory(state.root, mode=0o700)
    except OSError as error:
        raise ConfigurationError(
            f"state directory {state.root} cannot be made: {error.strerror}; name another with --state-dir"
        ) from error


def _spawn(settings: Settings, *, log_fd: int, ready_fd: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        service_command(settings, ready_fd=ready_fd),
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        cwd=settings.state_dir.absolute(),
        env=_absolute_environment(settings),
        pass_fds=[ready_fd],
        start_new_session=True,
    )


class _Forked:
    """A service that was forked from this process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @classmethod
    def serving(cls, serve: Serve, settings: Settings, *, log_fd: int, ready_fd: int) -> "_Forked":
        """Fork the service; returns in the parent only."""
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _run_detached(serve, settings, log_fd=log_fd, ready_fd=ready_fd)
        return cls(pid)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


def _run_detached(serve: Serve, settings: Settings, *, log_fd: int, ready_fd: int) -> NoReturn:
    """Run the service in the forked child, detached from the caller's terminal, directory and files. Never returns."""
    status = 1
    try:
        os.setsid()
        for number, fd in enumerate((os.open(os.devnull, os.O_RDONLY), log_fd, log_fd)):
            os.dup2(fd, number)
        os.closerange(3, ready_fd)
        os.closerange(ready_fd + 1, os.sysconf("SC_OPEN_MAX"))
        settings = _absolute(settings)
        os.environ.update(_absolute_environment(settings))
        os.chdir(settings.state_dir)
        serve(settings, ready_fd)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001 - every error belongs into the service's log
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _absolute(settings: Settings) -> Settings:
    return settings.model_copy(
        update={
            "state_dir": settings.state_dir.absolute(),
            "environments_dir": settings.environments_dir.absolute(),
        }
    )


def _absolute_environment(settings: Settings) -> dict[str, str]:
    """Return the caller's environment, with paths relative to its directory made absolute."""
    variables = os.environ | {"TIDEMILL_ENVIRONMENTS_DIR": str(settings.environments_dir.absolute())}
    config = os.environ.get("TIDEMILL_CONFIG")
    return variables | ({"TIDEMILL_CONFIG": str(Path(config).absolute())} if config else {})


def _other_service(state: StateDirectory, *, deadline_s: float) -> ServiceRecord | None:
    """Return the service that holds the lock when it listens; None if it has ended instead."""
    while time.monotonic() < deadline_s:
        record, holder = find_service(state), state.holder()
        if record is not None or holder is None or not holder.alive:
            return record
        time.sleep(0.05)
    return None


def _failure(state: StateDirectory, started: _Start) -> str:
    # A log that was full has become the second one, and the new one is shorter.
    log = state.service_log.read_bytes()
    said = (
        log[started.log_offset if started.log_offset <= len(log) else 0 :].decode(errors="replace").strip().splitlines()
    )
    # An expected error is one line in tidemill's format; for anything else the end of the output is shown.
    ours = [line.removeprefix("tidemill: ") for line in said if line.startswith("tidemill: ")]
    if ours:
        return f"{ours[-1]} (log: {state.service_log})"
    text = said[-1].strip() if said else f"it ended with status {started.status} and said nothing"
    return f"the service did not start: {text} (log: {state.service_log})"
