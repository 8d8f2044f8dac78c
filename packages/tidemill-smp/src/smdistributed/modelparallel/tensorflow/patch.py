"""Reversible replacement of one attribute."""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

_ABSENT: object = object()


@dataclass
class Patch:
    """`target.name = new`, until `undo`, or inside a ``with`` block."""

    target: Any
    """A module, a class, or the values of a thread."""
    name: str
    new: object
    _old: object = field(default=_ABSENT, init=False)

    def apply(self) -> None:
        """Set the attribute."""
        # Save only the target's own attribute: deleting the patch makes an inherited one visible again.
        self._old = vars(self.target).get(self.name, _ABSENT)
        setattr(self.target, self.name, self.new)

    def undo(self) -> None:
        """Restore the previous value, or delete the attribute."""
        if self._old is _ABSENT:
            delattr(self.target, self.name)
        else:
            setattr(self.target, self.name, self._old)

    def __enter__(self) -> None:
        self.apply()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()
