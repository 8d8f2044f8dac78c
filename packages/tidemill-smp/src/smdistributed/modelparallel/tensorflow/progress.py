"""Reports what the library does before the first step of a function, if that takes long.

Rank 0 prints a line to stderr after 3 s, and again whenever the time has doubled. The report ends when the call that
traced the step returns: TensorFlow optimizes the graph and runs the first step inside this call.
"""

import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from tensorflow.python.eager.polymorphic_function import polymorphic_function

FIRST_S = 3.0
"""Time after which the first line is printed."""
GROWTH = 2.0
"""Ratio of the times of two lines."""
_LOOK_S = 0.25
"""Longest time for which the report keeps a call that has returned, and all that it has made, from being freed."""
_local = threading.local()


class Progress:
    """Report of one preparation, from a thread of its own."""

    def __init__(self, step: str, *, first_s: float = FIRST_S) -> None:
        self._step = step
        self._thread = threading.get_ident()
        self._call = _outermost_call(self._thread)
        """The call of the `tf.function` that traces the step; None if it is traced without being called."""
        self._begin_s = self._since_s = time.monotonic()
        self._what = "starting"
        self._ended = threading.Event()
        self._first_s = self._next_s = first_s
        self.reporter = threading.Thread(target=self._report, name="smp-progress", daemon=True)
        self.reporter.start()

    def goes_on_in(self, step: str) -> bool:
        """Go on with another step, or another trace of this step, if that is a part of the same call.

        Args:
            step: Name of the step.
        """
        if self._ended.is_set() or self._call is None or self._call is not _outermost_call(self._thread):
            return False
        self._step = step
        return True

    def doing(self, what: str) -> None:
        """Set what is reported from now on.

        Args:
            what: What is done now, as a clause.
        """
        self._what, self._since_s = what, time.monotonic()

    def end(self) -> None:
        """End the report."""
        self._ended.set()
        self._call = None

    def hand_over(self) -> None:
        """Report TensorFlow's part from now on, and end with the call that traces the step."""
        if self._call is None:
            self.end()
        else:
            self.doing("TensorFlow finishes and optimizes the graph, and runs the first step")

    def _report(self) -> None:
        while not self._ended.wait(min(_LOOK_S, max(0.0, self._begin_s + self._next_s - time.monotonic()))):
            if self._call is not None and _outermost_call(self._thread) is not self._call:
                self.end()
                return
            now_s = time.monotonic()
            if now_s < self._begin_s + self._next_s:
                continue
            say(
                f"smp: preparing the step {self._step!r}: {self._what} (for {now_s - self._since_s:.0f} s); "
                f"{now_s - self._begin_s:.0f} s in total so far"
            )
            self._next_s = max(GROWTH * (now_s - self._begin_s), now_s - self._begin_s + self._first_s)


@contextmanager
def preparing(step: str, *, is_reported: bool) -> Generator[None]:
    """Report on the preparation of a step that is done inside this context, and what follows in the same call.

    Args:
        is_reported: Whether this rank prints anything.
    """
    if not is_reported:
        yield
        return
    latest: Progress | None = getattr(_local, "progress", None)
    progress = latest if latest is not None and latest.goes_on_in(step) else Progress(step, first_s=FIRST_S)
    _local.progress = progress
    try:
        yield
    except BaseException:
        progress.end()
        raise
    progress.hand_over()


def doing(what: str) -> None:
    """Set what the preparation in progress on this thread does now, if there is one.

    Args:
        what: What is done now, as a clause.
    """
    progress: Progress | None = getattr(_local, "progress", None)
    if progress is not None:
        progress.doing(what)


def say(line: str) -> None:
    """Print a line, regardless of how the script configures logging: otherwise the job would seem to hang.

    Args:
        line: Without a line end.
    """
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def _outermost_call(thread: int) -> FrameType | None:
    """Return the outermost call of a `tf.function` in progress on a thread, if any."""
    found = None
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code is _CALL:
            found = frame
        frame = frame.f_back
    return found


_CALL = polymorphic_function.Function._call.__code__
