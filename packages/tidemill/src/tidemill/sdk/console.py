"""What the SDK prints: the user's log lines unchanged, its own lines beside them.

Plain text where the output is not a terminal. On a terminal our own lines are dim and, with several instances, each
instance's lines have a colour; ``NO_COLOR`` switches that off. Escape bytes in log lines are dropped on a terminal
unless asked for: a job's output is not to move a user's cursor.
"""

import os
import sys
from collections.abc import Mapping
from typing import TextIO

__all__ = ["Console"]

_DIM = "\x1b[2m"
_RESET = "\x1b[0m"
_COLOURS = ("\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m")
_ESCAPES = dict.fromkeys((0x1B, 0x9B))


class Console:
    """Lines to standard output, or to another stream.

    Args:
        stream: Where lines go; None means whatever ``sys.stdout`` is when a line is written (notebooks replace it).
        variables: The environment, for ``NO_COLOR``.
        keep_escapes: Pass escape bytes of log lines to a terminal.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        variables: Mapping[str, str] | None = None,
        keep_escapes: bool = False,
    ) -> None:
        self._given = stream
        self._variables = os.environ if variables is None else variables
        self._keep_escapes = keep_escapes

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees the lines directly."""
        return self._stream.isatty()

    def say(self, text: str) -> None:
        """Write a line of our own."""
        self._write(f"{_DIM}{text}{_RESET}" if self._coloured else text)

    def log(self, message: str, *, colour: int | None = None) -> None:
        """Write one log line of a job. ``colour`` numbers the instance where there are several."""
        if self.is_terminal and not self._keep_escapes:
            message = message.translate(_ESCAPES)
        if colour is not None and self._coloured:
            message = f"{_COLOURS[colour % len(_COLOURS)]}{message}{_RESET}"
        self._write(message)

    def rewrite(self, text: str) -> None:
        """Replace the current line of a terminal; nothing elsewhere."""
        if self.is_terminal:
            self._stream.write(f"\r\x1b[K{text}" if self._coloured else f"\r{text}")
            self._stream.flush()

    @property
    def _stream(self) -> TextIO:
        return self._given or sys.stdout

    @property
    def _coloured(self) -> bool:
        return self.is_terminal and not self._variables.get("NO_COLOR")

    def _write(self, text: str) -> None:
        stream = self._stream
        try:
            stream.write(f"{text}\n")
        except UnicodeEncodeError:
            # A log line may hold what the terminal's encoding cannot show: better marked than lost.
            encoding = stream.encoding or "ascii"
            stream.write(f"{text.encode(encoding, 'backslashreplace').decode(encoding)}\n")
        stream.flush()
