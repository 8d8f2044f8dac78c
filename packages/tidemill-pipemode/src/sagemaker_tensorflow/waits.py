"""Interrupt the readers' waits on Ctrl-C, on SIGTERM, and when the interpreter exits.

While `next()` waits for a record, Python's main thread is inside TensorFlow and cannot run Python signal handlers.
The C-level handler does write the signal's number to a file descriptor (`signal.set_wakeup_fd`); a thread reads it and
notifies both readers, which end their wait with an error. The main thread returns, and Python runs the handler:
KeyboardInterrupt for Ctrl-C.

First complication: TensorFlow's C++ creates its exception object by calling Python code, and a KeyboardInterrupt raised
inside that code surfaces as a RuntimeError. So the handler of Ctrl-C inspects its frame, and inside that code it waits
until TensorFlow's exception has reached Python.

Second: TensorFlow's C++ reads attributes of Python objects and ignores any exception. A KeyboardInterrupt raised there
is lost, and the wait begins. So the thread checks whether the main thread is still in the call in which the handler
ran, and if so sends the signal again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_TENSORFLOW = "/tensorflow/python/"
_EXCEPTION_SOURCE = "tensorflow/python/eager/core.py"
_GRACE_S = 0.05
_INTERVAL_S = 0.2
_LATENCY_S = 0.1  # the handler may run before the thread has read the signal
_WATCHED = frozenset((signal.SIGINT, signal.SIGTERM))
_interrupt_listeners: list[Callable[[], object]] = []
_stop_listeners: list[Callable[[], object]] = []


class _WaitState:
    interrupts = 0
    stopping = False
    write_end = -1
    chained = -1
    served_s = float("-inf")  # when the handler of SIGINT ran last
    served_in: tuple[tuple[FrameType, int], ...] = ()  # the frames it ran in, and the instruction of each


def watch_signals() -> None:
    """Install the handlers that let signals end waits. No effect outside the main thread, which alone can do so."""
    if threading.current_thread() is not threading.main_thread():
        return
    if _WaitState.write_end < 0:
        read_end, _WaitState.write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(read_end, True)
        threading.Thread(target=_forward, args=(read_end,), name="pipemode-signals", daemon=True).start()
    before = signal.set_wakeup_fd(_WaitState.write_end, warn_on_full_buffer=False)
    if before != _WaitState.write_end:
        _WaitState.chained = before
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_keyboard_interrupt)


def interrupts() -> int:
    """Return the number of signals so far."""
    return _WaitState.interrupts


def is_stopping() -> bool:
    """Return whether the interpreter is exiting."""
    return _WaitState.stopping


def on_interrupt(listener: Callable[[], object]) -> None:
    """Call `listener` in a thread on each signal.

    Args:
        listener: Called without arguments; its result is ignored.
    """
    _interrupt_listeners.append(listener)


def on_stop(listener: Callable[[], object]) -> None:
    """Call `listener` when the interpreter exits.

    Args:
        listener: Called without arguments; its result is ignored.
    """
    _stop_listeners.append(listener)


def _forward(read_end: int) -> None:
    while True:
        numbers = os.read(read_end, 512)
        if _WaitState.chained >= 0:
            # Forward to the previous owner of the wakeup descriptor, e.g. an event loop.
            with contextlib.suppress(OSError):
                os.write(_WaitState.chained, numbers)
        if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is _raise_keyboard_interrupt:
            _interrupt_until_served()
        elif _WATCHED.intersection(numbers):
            _interrupt()


def _interrupt_until_served() -> None:
    """Interrupt waits repeatedly until Python's main thread runs the handler of SIGINT.

    Once is not enough: the main thread may be about to enter a wait.
    """
    received_s = time.monotonic()
    time.sleep(_GRACE_S)  # if Python code runs, no wait has to be interrupted
    while _WaitState.served_s < received_s - _LATENCY_S:
        _interrupt()
        time.sleep(_INTERVAL_S)
    time.sleep(_INTERVAL_S)
    if _was_swallowed():
        if sys.version_info >= (3, 8):
            signal.raise_signal(signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)


def _was_swallowed() -> bool:
    """Return whether the main thread is still in the TensorFlow call in which the handler of SIGINT ran."""
    served_in, _WaitState.served_in = _WaitState.served_in, ()
    now = sys._current_frames().get(threading.main_thread().ident or 0)
    if now is None or _TENSORFLOW not in now.f_code.co_filename:
        return False
    return any(frame is now and place == now.f_lasti for frame, place in served_in)


def _interrupt() -> None:
    _WaitState.interrupts += 1
    for listener in _interrupt_listeners:
        listener()


def _raise_keyboard_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, as the default handler does, except inside TensorFlow's exception construction."""
    _WaitState.served_in = tuple((one, one.f_lasti) for one in _frames(frame))
    _WaitState.served_s = time.monotonic()
    inside = frame is not None and frame.f_code.co_filename.endswith(_EXCEPTION_SOURCE)
    caller = frame.f_back if frame is not None and inside else None
    if caller is None or sys.gettrace() is not None:
        raise KeyboardInterrupt

    def at_next_event(*_: object) -> None:
        sys.settrace(None)
        caller.f_trace = None
        raise KeyboardInterrupt

    def trace_nothing_else(*_: object) -> Any:
        return None

    caller.f_trace = at_next_event
    sys.settrace(trace_nothing_else)


def _frames(innermost: FrameType | None) -> Iterator[FrameType]:
    while innermost is not None:
        yield innermost
        innermost = innermost.f_back


def _stop() -> None:
    _WaitState.stopping = True
    for listener in _stop_listeners:
        listener()


def _forget_in_child() -> None:
    # The pipe belongs to the parent's thread, which must not receive a child's signals.
    if _WaitState.write_end >= 0:
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
        os.close(_WaitState.write_end)
        _WaitState.write_end = _WaitState.chained = -1


atexit.register(_stop)
os.register_at_fork(after_in_child=_forget_in_child)
