"""From the errors that TensorFlow raises for a failed op to the library's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from smdistributed.modelparallel.backend.exceptions import (
    SMPDeadlockError,
    SMPError,
    SMPInputMismatchError,
    SMPPeerLostError,
)

__all__ = ["DEADLOCK_MARK", "END_MARK", "LOST_MARK", "as_library_error", "library_errors"]

LOST_MARK = "SMPPeerLostError: "
"""What the text of an op's error begins with if a rank is gone. It ends at `END_MARK`."""
DEADLOCK_MARK = "SMPDeadlockError: "
"""The same if a rank did not answer in time."""
END_MARK = " [smp]"
_MARKS: tuple[tuple[str, type[SMPError]], ...] = (
    (LOST_MARK, SMPPeerLostError),
    (DEADLOCK_MARK, SMPDeadlockError),
    ("SMPInputMismatchError: ", SMPInputMismatchError),
)


def as_library_error(error: BaseException) -> SMPError | None:
    """What a failed op of a transport means; None if the error is something else.

    TensorFlow wraps the text of an op's error in lines of its own, and errors of Python code in a graph all come as
    UnknownError. So the text is looked for, not the class.
    """
    text = str(error)
    for mark, kind in _MARKS:
        begin = text.find(mark)
        if begin >= 0:
            words = text[begin + len(mark) :]
            return kind(words.partition(END_MARK)[0].partition("\n")[0])
    return None


@contextmanager
def library_errors() -> Iterator[None]:
    """Raise the library's exceptions where an op of a transport fails inside."""
    try:
        yield
    except Exception as error:
        meant = None if isinstance(error, SMPError) else as_library_error(error)
        if meant is None:
            raise
        raise meant from error
