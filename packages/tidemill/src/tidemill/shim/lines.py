"""Split a stream of output into lines, and pass on the states of progress bars from time to time.

A program redraws a progress bar with a carriage return. The text between two carriage returns is a *state*; only the
last state before a line feed is a line. To show progress, the latest state is passed on too, at most every
`STATE_EVERY_S` seconds, with a carriage return at its end, so that a terminal overwrites it with the next line. Escape
sequences and backspaces are dropped; all other bytes are passed on unchanged.
"""

import re

from tidemill.core.segments import MESSAGE_MAX_BYTES

STATE_EVERY_S = 0.5

_MOVES_CURSOR = re.compile(rb"[\r\x08\x1b]")
_CONTROLS = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor, erasing
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    rb"|\x1b[ -/]*[0-~]?"
    rb"|\x08"
)


_UP_AND_DOWN = re.compile(rb"((?:\x1b\[A)+)(\n+)")


class LineSplitter:
    """Splits a stream of bytes into lines. Buffers an unfinished line, up to the maximum size of a log event."""

    def __init__(self) -> None:
        self._rest = b""
        self._passed_state = b""
        self._passed_s = float("-inf")
        self._last_of_bar: bytes | None = None

    @property
    def due_s(self) -> float | None:
        """Time, on the clock of ``now_s``, at which to call `feed` even without data; None if no state waits."""
        waits = b"\r" in self._rest and _state(self._rest) not in (b"", self._passed_state)
        return self._passed_s + STATE_EVERY_S if waits else None

    def feed(self, data: bytes, now_s: float) -> list[bytes]:
        """Return the lines that ``data`` completes, and a state if one is due.

        Args:
            data: The next bytes; may be empty.
            now_s: Monotonic time in seconds.
        """
        text = self._rest + data
        if b"\x1b[A" in text:
            text = _UP_AND_DOWN.sub(_moved, text)
        *complete, self._rest = text.split(b"\n")
        lines: list[bytes] = []
        for line in complete:
            if _MOVES_CURSOR.search(line):
                lines += self._end_of_bar(line)
            else:
                self._last_of_bar = None
                lines.append(line)
        if b"\r" in self._rest[:-1]:
            # Older states are never shown. A single CR at the end may be half of CR LF.
            self._rest = b"\r" + _last_piece(self._rest) + (b"\r" if self._rest.endswith(b"\r") else b"")
        if len(self._rest) >= MESSAGE_MAX_BYTES:
            lines.append(_CONTROLS.sub(b"", self._rest))
            self._rest = b""
        return lines + self._state_if_due(now_s)

    def end(self) -> list[bytes]:
        """Return the last line if it has no line feed; else an empty list."""
        rest, self._rest = self._rest, b""
        if not _MOVES_CURSOR.search(rest):
            return [rest] if rest else []
        return [line for line in self._end_of_bar(rest) if line]

    def _end_of_bar(self, line: bytes) -> list[bytes]:
        """Return the last state as a line; nothing if it repeats the last bar, as the outer of nested bars does."""
        line = line.removesuffix(b"\r")
        self._passed_state = b""
        if b"\r" not in line:
            self._last_of_bar = None
            return [_CONTROLS.sub(b"", line)]
        state = _state(line)
        if state == self._last_of_bar:
            return []
        self._last_of_bar = state
        return [state]

    def _state_if_due(self, now_s: float) -> list[bytes]:
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return []
        self._passed_s = now_s
        self._passed_state = _state(self._rest)
        return [self._passed_state + b"\r"]


def _moved(match: re.Match[bytes]) -> bytes:
    """Return the text without pairs of a line feed and a move up.

    Programs draw the lower of two nested bars between these two.
    """
    down = len(match[2]) - len(match[1]) // len(b"\x1b[A")
    return b"\n" * down if down > 0 else b"\x1b[A" * -down + b"\r"


def _state(line: bytes) -> bytes:
    """Return a line with carriage returns as a screen shows it, or nothing if it is blank."""
    state = _CONTROLS.sub(b"", _last_piece(line))
    return b"" if state.isspace() else state


def _last_piece(line: bytes) -> bytes:
    """Return the text after the last carriage return, not counting one at the end."""
    return line.removesuffix(b"\r").rpartition(b"\r")[2]
