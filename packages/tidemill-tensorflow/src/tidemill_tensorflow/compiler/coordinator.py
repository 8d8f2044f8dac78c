"""Interface of the session for traced functions: compilation in the background, stored decisions and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidemill_tensorflow.compiler.payback import Ledger

__all__ = ["Coordinator"]


class Coordinator(Protocol):
    """Methods of the session that all kinds of traced functions use.

    A step is a `Step` or a `SharedStep`, and a shape is a `Shape`; their modules import this one.

    Attributes:
        ledger: Times of all functions, which decide when work may begin.
    """

    ledger: Ledger

    @property
    def is_compiling(self) -> bool:
        """Whether the background thread is compiling. Times that are measured meanwhile must not count."""
        ...

    @property
    def is_deterministic(self) -> bool:
        """Whether no decision may depend on times."""
        ...

    def note(self, text: str) -> None:
        """Write a line to the log."""

    def run_in_background(self, step: Any, work: Callable[[], None], *, wait: bool = False) -> None:
        """Run work in the background thread; return after it if `wait` is set. If it fails, the step runs plain."""

    def stored_decision(self, key: str) -> str | None:
        """Return the variant that an earlier job chose."""

    def note_decision(self, step: Any, shape: Any, key: str) -> None:
        """Store a decision and log it."""

    def note_fallback(self, step: Any, reason: str, *, how: str = "plain") -> None:
        """Log that a function runs plain, or `how` else it runs, and why."""
