"""Start, watch and end shims: which are alive, and which instances have new reports.

Datagrams of the shims announce reports, pidfds announce the end of a shim, and the files are read every two seconds in
case a datagram was lost. These only determine when to read: the state itself is in the files of the instances.
"""

import asyncio
import contextlib
import os
import select
import signal
import threading
import time
from pathlib import Path

from tidemill.core.instances import InstanceRef
from tidemill.executors.shim_process import await_end, send_signal, spawn_shim
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.notify import NotifySocket
from tidemill.instance.process_tree import kill_marked
from tidemill.instance.status import StopReason

_LOOK_S = 2.0


class ShimWatch:
    """Starts, watches and ends the shims below a state directory. Only one watch may use a state directory at a time.

    Methods may be called from several threads; `changed` from one event loop.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._notices = NotifySocket(state_dir)
        self._epoll = select.epoll()
        self._epoll.register(self._notices.fileno(), select.EPOLLIN)
        self._lock = threading.Lock()
        self._children: dict[InstanceRef, int] = {}
        self._pidfds: dict[int, InstanceRef] = {}
        self._seen: dict[InstanceRef, tuple[object, ...]] = {}
        self._next_look_s = 0.0

    def start(self, directory: InstanceDirectory) -> None:
        """Start a shim unless one has reported or has just been started.

        Raises:
            LaunchError: The process cannot be started.
        """
        ref = directory.ref
        with self._lock:
            if directory.read_run() is None and not self._child_lives(ref):
                self._children[ref] = spawn_shim(directory)
                self._register(self._children[ref], ref)

    def take_up(self, directory: InstanceDirectory) -> None:
        """Watch a running instance: by its files, and by the pidfd of its shim if another process started the shim."""
        ref = directory.ref
        with self._lock:
            if directory.read_exit() is None:
                self._seen.setdefault(ref, ())
            shim = directory.read_run()
            if shim and ref not in self._children and shim.alive:
                self._register(shim.pid, ref)
                # If the shim is still alive, the descriptor certainly belongs to it. If not, read its files at once.
                if not shim.alive:
                    self._next_look_s = 0.0

    def runs(self, directory: InstanceDirectory) -> bool:
        """Return whether the shim is alive, or was started a moment ago."""
        shim = directory.read_run()
        if shim is None:
            with self._lock:
                if self._child_lives(directory.ref):
                    return True
            # A child that finds another shim running exits as soon as that one has reported. That may have happened
            # after the first reading, so read again.
            shim = directory.read_run()
        return shim is not None and shim.alive

    def ask_to_stop(self, directory: InstanceDirectory, *, reason: StopReason) -> None:
        """Write why an instance must stop, and send SIGTERM to its shim. Repeated calls keep the first reason."""
        if not directory.spec_file.exists() or directory.read_exit():
            return
        if directory.read_stop() is None:
            directory.write_stop(reason)
        shim = directory.read_run()
        if shim:
            send_signal(shim, signal.SIGTERM)

    def kill(self, directory: InstanceDirectory) -> None:
        """Kill the shim and all processes of an instance, and wait for the end of the shim.

        Args:
            directory: Directory of the instance.
        """
        ref, shim = directory.ref, directory.read_run()
        if shim:
            send_signal(shim, signal.SIGKILL)
            await_end(shim)
        with self._lock:
            if self._child_lives(ref):  # it may not have reported yet
                os.kill(self._children[ref], signal.SIGKILL)
        kill_marked(ref.mark)

    def forget(self, ref: InstanceRef) -> None:
        """Stop reading the files of an instance.

        Args:
            ref: The attempt.
        """
        with self._lock:
            self._seen.pop(ref, None)

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        """Wait at most ``timeout_s`` seconds for new reports. Return the instances that reported; empty on time-out.

        Args:
            timeout_s: Longest wait in seconds.
        """
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

    def close(self) -> None:
        """Stop watching. Shims continue to run."""
        with self._lock:
            self._epoll.close()
            self._notices.close()
            for fd in self._pidfds:
                os.close(fd)
            self._pidfds.clear()

    def _child_lives(self, ref: InstanceRef) -> bool:
        """Return whether the shim started by this process is alive; reap it if not. The caller has the lock."""
        pid = self._children.get(ref)
        if pid is None:
            return False
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                return True
        del self._children[ref]
        return False

    def _register(self, pid: int, ref: InstanceRef) -> None:
        if ref in self._pidfds.values():
            return
        with contextlib.suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            self._pidfds[fd] = ref
            self._epoll.register(fd, select.EPOLLIN)

    def _take_news(self) -> set[InstanceRef]:
        """Return the instances that have reported since the last call, without waiting."""
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
        """Compare the files of every running instance with their previous state. The caller holds the lock."""
        news: set[InstanceRef] = set()
        for ref, before in list(self._seen.items()):
            directory = InstanceDirectory.of(self._state_dir, ref)
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
