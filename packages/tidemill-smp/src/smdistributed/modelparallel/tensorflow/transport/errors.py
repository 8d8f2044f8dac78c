"""Converts the errors that TensorFlow raises for failed transport ops into the library's exceptions."""

from collections.abc import Generator
from contextlib import contextmanager

from smdistributed.modelparallel.backend.exceptions import (
    SMPDeadlockError,
    SMPError,
    SMPInputMismatchError,
    SMPPeerLostError,
)

LOST_MARK = "SMPPeerLostError: "
"""Start of an op's error text if a rank was lost. The text ends at `END_MARK`."""
DEADLOCK_MARK = "SMPDeadlockError: "
"""Start of an op's error text if a rank did not answer in time."""
END_MARK = " [smp]"
_MARKS: tuple[tuple[str, type[SMPError]], ...] = (
    (LOST_MARK, SMPPeerLostError),
    (DEADLOCK_MARK, SMPDeadlockError),
    ("SMPInputMismatchError: ", SMPInputMismatchError),
)


def as_library_error(error: BaseException) -> SMPError | None:
    """Return the library's exception for the error of a failed transport op; None for other errors.

    TensorFlow adds lines to the text of an op's error, and reports all errors of Python code in a graph as
    UnknownError. So the text is matched, not the class.

    Args:
        error: What TensorFlow raised.
    """
    text = str(error)
    for mark, kind in _MARKS:
        begin = text.find(mark)
        if begin >= 0:
            words = text[begin + len(mark) :]
            return kind(words.partition(END_MARK)[0].partition("\n")[0])
    return None


@contextmanager
def library_errors() -> Generator[None]:
    """Convert errors of transport ops inside this context into the library's exceptions."""
    try:
        yield
    except Exception as error:
        meant = None if isinstance(error, SMPError) else as_library_error(error)
        if meant is None:
            raise
        raise meant from error
