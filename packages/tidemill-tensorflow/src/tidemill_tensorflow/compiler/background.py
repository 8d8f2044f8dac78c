"""Run the compiler's work in one background thread, which ends with the process, even in the middle of its work."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

NICE = 3
"""What is added to the niceness of XLA's own threads in the first compilation for which no step waits. The thread that
runs Python keeps its priority: training waits for the interpreter lock while that thread has it, and a machine full of
other work would rarely let it go on."""

_NAME = "tidemill-xla"
"""Name that threads without a name of their own inherit if XLA starts them in the first compilation."""


class Background:
    """One daemon thread, which does work in order."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Callable[[], None], threading.Event]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_working = False
        self._is_closed = False

    def submit(self, work: Callable[[], None]) -> threading.Event:
        """Add work, which must not raise; return an event that is set when the work was done or dropped."""
        done = threading.Event()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tidemill-compiler", daemon=True)
            self._thread.start()
        self._work.put((work, done))
        return done

    def close(self) -> None:
        """Drop the work that has not begun. Do not wait for the work that has: the process ends without it."""
        self._is_closed = True
        if self._is_working:
            _end_at_exit()

    def _run(self) -> None:
        while True:
            work, done = self._work.get()
            self._is_working = True
            try:
                if not self._is_closed:
                    work()
            finally:
                self._is_working = False
                done.set()


def _end_at_exit() -> None:
    """Let the C library's `exit` end the process at once, with its status.

    Otherwise it would destroy LLVM's globals while XLA still compiles. Python has finished everything by then.
    """
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        library = ctypes.CDLL(None)
        library.on_exit(library._exit, None)
        library.fflush(None)


def first_compilation(compile: Callable[[], object]) -> None:
    """Run the first compilation of the process, so that the threads that XLA starts in it can be found later.

    Other threads that start meanwhile, such as those of gRPC, must keep their priority.
    """
    own = Path("/proc/thread-self/comm")
    name = _read(own)
    with contextlib.suppress(OSError):
        own.write_text(_NAME)
    try:
        compile()
    finally:
        with contextlib.suppress(OSError):
            own.write_text(name)


class _Waiting:
    """Steps that wait for the background thread now.

    Attributes:
        steps: Their number.
        lock: Held while the number or the cores of XLA's threads change.
    """

    steps = 0
    lock = threading.Lock()


@contextlib.contextmanager
def awaited() -> Generator[None]:
    """Let XLA generate code on all cores: a step of the script waits for that, so that it does not train meanwhile."""
    with _Waiting.lock:
        _Waiting.steps += 1
        _pin(xla_threads(), os.sched_getaffinity(0))
    try:
        yield
    finally:
        with _Waiting.lock:
            _Waiting.steps -= 1


@contextlib.contextmanager
def without_garbage_collection() -> Generator[None]:
    """Switch Python's cyclic garbage collection off.

    Graphs have so many Python objects that their creation starts full collections, which took a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def beside_training() -> Generator[None]:
    """Let XLA generate code on one core only, at low priority, until a step waits for that."""
    cores = os.sched_getaffinity(0)
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + NICE
    with _Waiting.lock:
        threads = [] if _Waiting.steps else xla_threads()
        for thread in threads:
            with contextlib.suppress(OSError):  # the thread has ended
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
        _pin(threads, {max(cores)})
    try:
        yield
    finally:
        _pin(threads, cores)


def xla_threads() -> list[int]:
    """Return the system ids of the threads in which XLA generates code, if the compiler caused their start."""
    paths = Path("/proc/self/task").glob("*/comm")
    return [int(path.parent.name) for path in paths if _read(path).strip() == _NAME]


def _pin(threads: list[int], cores: set[int]) -> None:
    for thread in threads:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cores)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # no such thread, or no Linux
        return ""
