"""Print the user's log lines unchanged, and the SDK's own lines between them.

If the output is not a terminal, it is plain text, and with several instances each line begins with the name of its
instance, e.g. ``[algo-2]``. On a terminal the SDK's lines are dim and, with several instances, each instance's lines
have a color instead; ``NO_COLOR`` disables both, and the names appear. Escape bytes in log lines are dropped on a
terminal unless requested, so that a job's output cannot move the user's cursor.

A log line that ends with a carriage return is the state of a progress bar. On a terminal and in a notebook the next
line overwrites it. Elsewhere it is printed like any line, except that tidemill's own progress is limited to one line
every 10 seconds.
"""

import functools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from tidemill.errors import printable

_DIM = "\x1b[2m"
_RESET = "\x1b[0m"
_COLORS = ("\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m")
_RETURN = "\r"
_ESCAPES = dict.fromkeys((0x1B, 0x9B))
_OWN_PREFIX = "tidemill: "
_OWN_STATES_EVERY_S = 10.0


class Console:
    """Writes lines to standard output, or to another stream.

    Args:
        stream: The stream; None means ``sys.stdout`` at the time of each write, since notebooks replace it.
        variables: Environment variables, read for ``NO_COLOR``.
        keep_escapes: Keep escape bytes in log lines on a terminal. Default: False.
        clock: Monotonic time in seconds.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        variables: Mapping[str, str] | None = None,
        keep_escapes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given = stream
        self._variables = os.environ if variables is None else variables
        self._keep_escapes = keep_escapes
        self._clock = clock
        self._next_own_state_s = clock() + _OWN_STATES_EVERY_S
        self._drawn = ""
        """The progress bar in the current line, or empty."""

    @property
    def is_terminal(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def say(self, text: str) -> None:
        """Write one of the SDK's own lines, without control characters: it may quote a job.

        Args:
            text: One or more lines.
        """
        text = printable(text)
        self._write(f"{_DIM}{text}{_RESET}" if self._colored else text)

    def ask(self, question: str) -> None:
        """Write a question on a new line, without a line end, so that the answer is typed after it.

        Args:
            question: Text without a line end.
        """
        self._put(f"{self._erased()}\n{question}")
        self._drawn = ""

    def log(self, message: str, *, instance: str | None = None) -> None:
        """Write one log line of a job. ``instance`` is the name of its instance if there are several.

        Args:
            message: Without LF.
            instance: Default: no name in front of the line.
        """
        self.log_all([(message, instance)])

    def log_all(self, lines: Iterable[tuple[str, str | None]], *, named: bool = False) -> None:
        """Write log lines, each with its instance, in one call, because a job may have written a million of them.

        Args:
            lines: Lines, each with the name of its instance, or None if the job has one instance.
            named: Whether lines begin with the instance's name even if colors tell the instances apart.
        """
        named = named or not self._colored
        if not self._redraws:
            shown = (line for line in lines if not (line[0].endswith(_RETURN) and self._leaves_out(line[0])))
            # No function call per line: most jobs have one instance and may write many lines.
            named_lines = [message if name is None else f"[{name}] {message}" for message, name in shown]
            self._put("".join([f"{message.removesuffix(_RETURN)}\n" for message in named_lines]))
            return
        clean = self.is_terminal and not self._keep_escapes
        cleaned = ((message.translate(_ESCAPES) if clean else message, name) for message, name in lines)
        self._put("".join([self._line(_label(name, named) + message, name) for message, name in cleaned]))

    def rewrite(self, text: str) -> None:
        """Replace the current line of a terminal; do nothing if the stream is not a terminal.

        Args:
            text: One line.
        """
        if self.is_terminal:
            self._put(self._drawing(text, None))

    @property
    def _stream(self) -> TextIO:
        return self._given or sys.stdout

    @property
    def _colored(self) -> bool:
        return self.is_terminal and not self._variables.get("NO_COLOR")

    @property
    def _redraws(self) -> bool:
        return self.is_terminal or type(self._stream).__module__.startswith("ipykernel.")

    def _in_color(self, text: str, instance: str | None) -> str:
        if instance is None or not self._colored:
            return text
        return f"{_color_of(instance)}{text}{_RESET}"

    def _leaves_out(self, state: str) -> bool:
        """Return whether a progress line is tidemill's own and follows another one too soon."""
        now_s = self._clock()
        if not state.startswith(_OWN_PREFIX):
            return False
        if now_s < self._next_own_state_s:
            return True
        self._next_own_state_s = now_s + _OWN_STATES_EVERY_S
        return False

    def _line(self, message: str, instance: str | None) -> str:
        """Return the text that prints a log line on a stream whose current line can be overwritten."""
        if message.endswith(_RETURN):
            return self._drawing(message[:-1], instance)
        erased, self._drawn = self._erased(), ""
        return f"{erased}{self._in_color(message, instance)}\n"

    def _drawing(self, text: str, instance: str | None) -> str:
        """Return the text that overwrites the current line, cut to the screen's width so that it can be overwritten."""
        text = text[: shutil.get_terminal_size().columns - 1]
        erased, self._drawn = self._erased(), text
        return f"{erased}{self._in_color(text, instance)}"

    def _erased(self) -> str:
        """Return the text that erases the current line, or an empty text if nothing is drawn there."""
        if not self._drawn:
            return ""
        return "\r\x1b[K" if self._colored else f"\r{' ' * len(self._drawn)}\r"

    def _write(self, text: str) -> None:
        self._put(f"{self._erased()}{text}\n")
        self._drawn = ""

    def _put(self, text: str) -> None:
        stream = self._stream
        try:
            stream.write(text)
        except UnicodeEncodeError:
            # Characters that the terminal's encoding cannot show are replaced by a mark instead of being lost.
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()


def _label(instance: str | None, named: bool) -> str:
    return f"[{instance}] " if named and instance is not None else ""


@functools.cache
def _color_of(instance: str) -> str:
    """Return the color of an instance: by its number, or by the characters of a name without a number."""
    number = instance.removeprefix("algo-")
    return _COLORS[(int(number) - 1 if number.isdecimal() else sum(map(ord, instance))) % len(_COLORS)]
