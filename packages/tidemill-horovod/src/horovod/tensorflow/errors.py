"""Errors of collectives. As in Horovod, `horovod.common.exceptions` provides them too."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

_MARK, _END = "HorovodInternalError: ", " [horovod]"
"""Marks around the message in the text of a failed op's error."""


class HorovodInternalError(RuntimeError):
    """A collective failed: a rank has ended or hangs.

    Collectives inside a `tf.function` fail with `tf.errors.AbortedError`, whose text contains the same message. Calls
    of ranks that do not match are `tf.errors.FailedPreconditionError`, eagerly too, as in Horovod; later calls work.
    """


@contextmanager
def horovod_errors() -> Generator[None]:
    """Convert errors of the engine's eager ops inside this context into `HorovodInternalError`."""
    try:
        yield
    except Exception as error:
        text = str(error)
        begin = text.find(_MARK)
        if begin < 0 or isinstance(error, HorovodInternalError):
            raise
        raise HorovodInternalError(text[begin + len(_MARK) :].partition(_END)[0]) from error
