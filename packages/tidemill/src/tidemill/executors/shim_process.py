"""The processes of shims: start one, send it signals, and wait for its end.

A shim runs in a separate session and outlives this process. Its identity includes its start time, so that a signal
never reaches another process that got the same number later.
"""

import contextlib
import os
import select
import signal
import sys

from tidemill.core.files import read_json
from tidemill.core.process import ProcessId
from tidemill.environments.uv_command import installer_variables
from tidemill.errors import LaunchError
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import MARK
from tidemill.instance.remote_s3 import remote_variables

_KILL_TIMEOUT_S = 10.0
_PASSED_ON = ("HOME", "PATH", "LD_LIBRARY_PATH", "TIDEMILL_FAULTS", "TIDEMILL_FAULTS_LOG", "TIDEMILL_FAULTS_SEED")


def spawn_shim(directory: InstanceDirectory) -> int:
    """Start the shim of an instance with only the environment variables that it needs. Return its pid.

    Raises:
        LaunchError: The process cannot be started.
    """
    variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    variables |= installer_variables(os.environ)
    if (read_json(directory.spec_file) or {}).get("remotes"):
        # Credentials are passed in the shim's environment, never in a file. The job does not get these variables.
        variables |= remote_variables(os.environ)
    variables |= {"LANG": "C.UTF-8", MARK: directory.ref.mark}
    log = os.open(directory.shim_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-m", "tidemill.shim", str(directory.path)],
            variables,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, null, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
            # The service's event loop may have blocked or ignored signals, and children inherit that.
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP],
        )
    except OSError as error:
        raise LaunchError(f"the shim cannot be started: {error}") from error
    finally:
        os.close(log)
        os.close(null)


def send_signal(process: ProcessId, signum: int) -> None:
    """Send a signal to exactly this process: the descriptor is opened before its identity is checked.

    Args:
        process: The process; one that has ended is no error.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.certainly_alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signum)
    finally:
        os.close(fd)


def await_end(process: ProcessId) -> None:
    """Wait until a process that was killed has ended.

    Args:
        process: The process. The wait ends after a time limit, too.
    """
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll(_KILL_TIMEOUT_S * 1000)
    finally:
        os.close(fd)
