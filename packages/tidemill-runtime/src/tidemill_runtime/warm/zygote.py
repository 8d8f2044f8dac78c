"""The process that has imported TensorFlow, and the guards that it forks.

The zygote only accepts connections and forks. A guard talks to the requesting runtime, joins its sandbox, forks the
script, and waits. ``serve`` returns in the script's process only, so that the script runs at the bottom of an
interpreter that ends as usual: threads joined, atexit handlers called, streams flushed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tidemill_runtime import channel
from tidemill_runtime._shared.descendants import kill_descendants
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.events import emit
from tidemill_runtime.process import adopt_orphans, exit_code_of
from tidemill_runtime.warm import namespaces
from tidemill_runtime.warm.interpreter import Interpreter
from tidemill_runtime.warm.peer import Peer, WarmRefusal
from tidemill_runtime.warm.rights import Rights, enter_cgroup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

REQUEST_TIMEOUT_S = 10
PROTOCOL = 1


@dataclass(frozen=True)
class WarmScript:
    """The script, to be run in its own process.

    Attributes:
        interpreter: The interpreter, already reset.
    """

    interpreter: Interpreter
    file: str

    def run(self) -> int:
        """Run the script.

        Returns:
            0, the exit status of a script that ends without an exception.
        """
        self.interpreter.run(self.file)
        return 0


def serve(path: Path, *, modules: Sequence[str], variables: Mapping[str, str]) -> WarmScript:
    """Import, listen, and fork a script per request.

    Args:
        path: The unix socket to create; mode 0600.
        variables: Environment that a job must have to be served by this process.

    Returns:
        The script, in its own process. In the zygote this function does not return.

    Raises:
        ConfigurationError: The imports leave threads or a GPU open, so that forking is not safe.
    """
    interpreter = Interpreter(variables)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # close inherited descriptors: scripts must not have them
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a fork would lose its threads; every script gets its own
    for module in modules:
        importlib.import_module(module)
    interpreter.imported()
    _check_forkable()
    gc.collect()
    gc.freeze()  # otherwise the first collection in a child would copy every page that holds an object
    listener = _listen(path)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are reaped by the kernel
    emit("warm.ready", socket=str(path), pid=os.getpid(), modules=list(modules))
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _guard(connection, interpreter)
        connection.close()


def _check_forkable() -> None:
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise ConfigurationError(f"the imports left {threads - 1} threads running: a warm start would lose them")
    open_fds = len(list(Path("/proc/self/fd").iterdir())) - 1  # one of them lists the directory
    if open_fds != 3:
        raise ConfigurationError(f"the imports left {open_fds - 3} files open: a script would not have them")
    if "libcuda.so" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace"):
        raise ConfigurationError("the imports loaded the CUDA driver, which does not survive a fork")


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    previous = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(previous)
    listener.listen(64)
    return listener


def _guard(connection: socket.socket, interpreter: Interpreter) -> WarmScript:
    """Start one script. Returns in the script's process only; in the guard the process ends here."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # so that a signal to the zygote's process group does not end jobs
    try:
        connection.settimeout(REQUEST_TIMEOUT_S)
        script = _start(connection, interpreter)
    except WarmRefusal as refusal:
        with contextlib.suppress(OSError):
            channel.send(connection, {"refused": str(refusal)})
        os._exit(0)
    except (OSError, ValueError, KeyError, TypeError) as error:
        emit("warm.failed", error=f"{type(error).__name__}: {error}")
        os._exit(1)
    return script


def _start(connection: socket.socket, interpreter: Interpreter) -> WarmScript:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    peer = Peer.of(connection)
    channel.send(connection, {"protocol": PROTOCOL, "executable": sys.executable, "prefix": sys.prefix})
    request = channel.receive(connection)
    if request is None:
        os._exit(0)  # the runtime closed the connection without a request
    peer.confirm(request.sender_pid)
    content = request.content
    unlike = interpreter.difference(content["variables"])
    if unlike:
        raise WarmRefusal(unlike)
    rights = Rights.of(peer)
    kinds = namespaces.differing(peer)
    enter_cgroup(peer)
    namespaces.join(peer, kinds)
    if "pid" not in kinds:
        adopt_orphans()
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        return _become_script(content, interpreter, rights, request.descriptors, ready_fd=write_fd)
    os.close(write_fd)
    for fd in request.descriptors:
        os.close(fd)
    return _watch(connection, pid, read_fd, own_pid_namespace="pid" not in kinds)


def _become_script(
    content: Mapping[str, Any],
    interpreter: Interpreter,
    rights: Rights,
    descriptors: Sequence[int],
    *,
    ready_fd: int,
) -> WarmScript:
    """Turn this fork into the script's process. Writes the pid last, which informs the guard."""
    os.setsid()
    rights.take_on()
    for number, fd in enumerate(descriptors):
        os.dup2(fd, number)
    ready = os.dup(ready_fd)
    interpreter.become_fresh(argv=content["argv"], variables=content["variables"], directory=content["directory"])
    os.write(ready, b"%d" % os.getpid())
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    return WarmScript(interpreter, content["file"])


def _watch(connection: socket.socket, pid: int, ready_fd: int, *, own_pid_namespace: bool) -> NoReturn:
    """Report the script's state to the runtime until the script ends; end the script if the runtime is gone. Does not
    return."""
    ready = os.read(ready_fd, 32)
    if not ready:
        os.waitpid(pid, 0)
        raise WarmRefusal("the process could not be made like the job's own")
    with contextlib.suppress(OSError):
        channel.send(connection, {"pid": int(ready)})
    pid_fd = os.pidfd_open(pid)
    while pid_fd not in select.select([pid_fd, connection], [], [])[0]:
        with contextlib.suppress(OSError):
            if connection.recv(1):
                continue
        os.killpg(pid, signal.SIGKILL)
        break
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # the rest of its group, before the number may be reused
    _, status = os.waitpid(pid, 0)
    if own_pid_namespace:  # otherwise /proc shows other numbers for the job's processes; the sandbox ends them
        kill_descendants()
    with contextlib.suppress(OSError):
        channel.send(connection, {"exit_code": exit_code_of(status)})
    os._exit(0)
