"""The local executor: instances as processes of this machine.

It writes a spec and starts a shim, which is then on its own: it outlives this process. Everything that is said of an
instance is read from its files; what stays in memory only makes that quicker (pidfds, a socket, an epoll).
"""

import asyncio
import contextlib
import os
import select
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

from tidemill.core.files import read_json, sync_directory, write_json
from tidemill.core.process import ProcessId
from tidemill.errors import LaunchError
from tidemill.executors.base import InstanceRef, InstanceSpec, InstanceStatus, Isolation, StopReason
from tidemill.executors.build_lock import remove_tree
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.environments import Environments
from tidemill.executors.notify import NotifySocket
from tidemill.executors.process_tree import MARK, kill_marked
from tidemill.executors.records import Site, SpecRecord
from tidemill.executors.remote_s3 import remote_variables
from tidemill.executors.sandbox import detect
from tidemill.executors.uv_command import installer_variables
from tidemill.executors.warm import WarmProcesses

__all__ = ["LocalExecutor"]

_LOOK_S = 2.0
_KILL_TIMEOUT_S = 10.0
_ADDRESS_MAX_BYTES = 107
_PASSED_ON = ("HOME", "PATH", "LD_LIBRARY_PATH", "TIDEMILL_FAULTS", "TIDEMILL_FAULTS_LOG", "TIDEMILL_FAULTS_SEED")


class LocalExecutor:
    """Runs instances on this machine. One per state directory at a time.

    Args:
        state_dir: Where jobs lie; made where it is missing. Hidden from jobs.
        environments_dir: Where environments are built.
        isolation: ``auto``, ``mount`` or ``plain``; or the name of a sandbox backend.

    Raises:
        ConfigurationError: The isolation asked for does not work here.

    Methods may be called from several threads; `changed` from one event loop.
    """

    def __init__(self, *, state_dir: Path, environments_dir: Path, isolation: str = "auto") -> None:
        self._state_dir = state_dir.resolve()
        self._environments_dir = environments_dir.resolve()
        (self._state_dir / "jobs").mkdir(parents=True, mode=0o700, exist_ok=True)
        self._detection = detect(isolation)
        self._warm = WarmProcesses(self._state_dir, Environments(self._environments_dir))
        self._notices = NotifySocket(self._state_dir)
        self._epoll = select.epoll()
        self._epoll.register(self._notices.fileno(), select.EPOLLIN)
        self._lock = threading.Lock()
        self._children: dict[InstanceRef, int] = {}
        self._pidfds: dict[int, InstanceRef] = {}
        self._seen: dict[InstanceRef, tuple[object, ...]] = {}
        self._sockets: dict[InstanceRef, int] = {}
        self._next_look_s = 0.0

    @property
    def isolation(self) -> Isolation:
        return self._detection.sandbox.isolation

    @property
    def isolation_reason(self) -> str:
        """Which sandbox is in force and why, in words."""
        return self._detection.reason

    def launch(self, spec: InstanceSpec) -> None:
        directory = self._directory(spec.ref)
        if directory.spec_file.exists():
            self.relaunch(spec.ref)
            return
        try:
            self._write_spec(directory, spec)
        except OSError as error:
            raise LaunchError(f"the directory of the instance cannot be written: {error}") from error
        self.relaunch(spec.ref)

    def relaunch(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        if not directory.spec_file.exists() or directory.read_exit():
            return
        with self._lock:
            if directory.read_run() is None and not self._child_lives(ref):
                self._children[ref] = self._spawn(directory)
                self._watch(self._children[ref], ref)
        self._take_up(directory)

    def recover(self) -> list[InstanceRef]:
        """Every instance on disk. Shims that still run are watched from now on."""
        found = list(InstanceDirectory.all_below(self._state_dir))
        for directory in found:
            self._take_up(directory)
        return [directory.ref for directory in found]

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        directory = self._directory(ref)
        launched = directory.spec_file.exists()
        # In this order: a shim writes its exit before it ends, so that one seen dead has written what it ever will.
        running = launched and self._runs(directory)
        ended = directory.read_exit()
        return InstanceStatus(
            launched=launched, running=running and ended is None, phases=directory.read_phases(), exit=ended
        )

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        directory = self._directory(ref)
        if not directory.spec_file.exists() or directory.read_exit():
            return
        if directory.read_stop() is None:
            directory.write_stop(reason)
        shim = directory.read_run()
        if shim:
            _send(shim, signal.SIGTERM)

    def kill(self, ref: InstanceRef) -> None:
        directory = self._directory(ref)
        shim = directory.read_run()
        if shim:
            _send(shim, signal.SIGKILL)
            _await_end(shim)
        with self._lock:
            child = self._children.get(ref)
            if child is not None and self._child_lives(ref):
                os.kill(child, signal.SIGKILL)
        kill_marked(f"{ref.job_id}/{ref.instance_index}")

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        loop = asyncio.get_running_loop()
        deadline_s = time.monotonic() + timeout_s
        while True:
            news = self._take_news()
            left_s = deadline_s - time.monotonic()
            if news or left_s <= 0:
                return news
            ready = asyncio.Event()
            loop.add_reader(self._epoll.fileno(), ready.set)
            try:
                async with asyncio.timeout(min(left_s, _LOOK_S)):
                    await ready.wait()
            except TimeoutError:
                pass
            finally:
                loop.remove_reader(self._epoll.fileno())

    def socket_path(self, ref: InstanceRef) -> Path:
        """Unix socket of an endpoint's server. Where its real path is too long for an address, one through a
        descriptor of this process, which works in this process only."""
        path = self._directory(ref).private / "serving.sock"
        if len(os.fsencode(path)) <= _ADDRESS_MAX_BYTES:
            return path
        with self._lock:
            if ref not in self._sockets:
                path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
                self._sockets[ref] = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            return Path(f"/proc/self/fd/{self._sockets[ref]}/{path.name}")

    def reap(self, job_id: str) -> None:
        for directory in InstanceDirectory.all_below(self._state_dir, job_id):
            ref = directory.ref
            self.kill(ref)
            with self._lock:
                self._seen.pop(ref, None)
                fd = self._sockets.pop(ref, None)
            if fd is not None:
                os.close(fd)
            for big in (directory.ml, directory.home, directory.tmp, directory.artifacts):
                with contextlib.suppress(FileNotFoundError):
                    remove_tree(big)

    def warm_up(self, framework_version: str) -> None:
        """Start the process from which warm jobs of that TensorFlow version are forked, if its environment is built."""
        self._warm.socket(f"tf-{framework_version}")

    def close(self) -> None:
        """Stop watching, and end the warm processes. Instances run on."""
        self._warm.close()
        with self._lock:
            self._epoll.close()
            self._notices.close()
            for fd in (*self._pidfds, *self._sockets.values()):
                os.close(fd)
            self._pidfds.clear()
            self._sockets.clear()

    def _directory(self, ref: InstanceRef) -> InstanceDirectory:
        return InstanceDirectory.of(self._state_dir, ref)

    def _write_spec(self, directory: InstanceDirectory, spec: InstanceSpec) -> None:
        for channel in spec.channels:
            if "/" in channel.name or "\0" in channel.name:
                raise LaunchError(f"channel name {channel.name!r} cannot name a file")
        directory.channels.mkdir(parents=True, mode=0o700, exist_ok=True)
        for made in (directory.path.parent.parent, directory.path.parent, directory.path):
            sync_directory(made)
        for channel in spec.channels:
            directory.write_channel(channel.name, channel.objects)
        record = SpecRecord(
            spec=replace(spec, channels=()),
            channels=tuple(channel.name for channel in spec.channels if channel.input_mode == "File"),
            pipes=tuple(replace(channel, objects=()) for channel in spec.channels if channel.input_mode == "Pipe"),
            site=Site(
                state_dir=self._state_dir,
                environments_dir=self._environments_dir,
                backend=self._detection.sandbox.name,
                warm_socket=self._warm.socket(f"tf-{spec.framework_version}") if spec.warm else None,
            ),
        )
        write_json(directory.spec_file, record.to_json())

    def _spawn(self, directory: InstanceDirectory) -> int:
        """Start a shim in a session of its own, with an environment built from nothing. Its pid."""
        ref = directory.ref
        variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        variables |= installer_variables(os.environ)
        if (read_json(directory.spec_file) or {}).get("remotes"):
            # In its environment alone, never in a file: what the job itself gets is built from nothing.
            variables |= remote_variables(os.environ)
        variables |= {"LANG": "C.UTF-8", MARK: f"{ref.job_id}/{ref.instance_index}"}
        log = os.open(directory.shim_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            return os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-m", "tidemill.executors.shim", str(directory.path)],
                variables,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, null, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
                # An event loop may have blocked or ignored some.
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGHUP],
            )
        except OSError as error:
            raise LaunchError(f"the shim cannot be started: {error}") from error
        finally:
            os.close(log)
            os.close(null)

    def _runs(self, directory: InstanceDirectory) -> bool:
        shim = directory.read_run()
        if shim:
            return shim.alive
        with self._lock:
            return self._child_lives(directory.ref)

    def _child_lives(self, ref: InstanceRef) -> bool:
        """Whether the shim that this process started lives; one that ended is reaped. The lock is held."""
        pid = self._children.get(ref)
        if pid is None:
            return False
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                return True
        del self._children[ref]
        return False

    def _take_up(self, directory: InstanceDirectory) -> None:
        """Watch an instance: by its shim's pidfd where the shim is not a child, and by looking now and then."""
        ref = directory.ref
        with self._lock:
            if directory.read_exit() is None:
                self._seen.setdefault(ref, ())
            shim = directory.read_run()
            if shim and ref not in self._children and shim.alive:
                self._watch(shim.pid, ref)
                # Only now is it sure that the descriptor is of that very process: it lived before and lives after.
                if not shim.alive:
                    self._next_look_s = 0.0

    def _watch(self, pid: int, ref: InstanceRef) -> None:
        if ref in self._pidfds.values():
            return
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            self._pidfds[fd] = ref
            self._epoll.register(fd, select.EPOLLIN)

    def _take_news(self) -> set[InstanceRef]:
        """What has been reported since the last call, without waiting."""
        news: set[InstanceRef] = set()
        with self._lock:
            for fd, _ in self._epoll.poll(0):
                ref = self._pidfds.pop(fd, None)
                if ref is None:
                    news |= self._notices.receive()
                    continue
                self._epoll.unregister(fd)
                os.close(fd)
                self._child_lives(ref)
                news.add(ref)
            if time.monotonic() >= self._next_look_s:
                self._next_look_s = time.monotonic() + _LOOK_S
                news |= self._look()
        return news

    def _look(self) -> set[InstanceRef]:
        """Compare the files of every instance that has not ended with what they were. The lock is held."""
        news: set[InstanceRef] = set()
        for ref, before in list(self._seen.items()):
            directory = self._directory(ref)
            shim = directory.read_run()
            lives = shim.alive if shim else self._child_lives(ref)
            now = (lives, _stamp(directory.status_file), _stamp(directory.exit_file))
            if now != before:
                self._seen[ref] = now
                news.add(ref)
            if not lives:
                del self._seen[ref]
        return news


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _send(process: ProcessId, signum: int) -> None:
    """Send a signal to exactly this process: the descriptor is opened before its identity is checked."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if process.alive:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signum)
    finally:
        os.close(fd)


def _await_end(process: ProcessId) -> None:
    """Wait until a process that was killed is gone."""
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
