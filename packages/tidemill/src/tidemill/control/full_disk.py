"""Let accepted jobs and endpoints wait for space on the disk instead of failing."""

import contextlib
import errno
from collections.abc import Generator

from tidemill.errors import LaunchError, ServiceUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def delayed_by_full_disk(what: str) -> Generator[None]:
    """Turn a full disk in the block, which starts ``what``, into an error after which the caller tries again later.

    Everything in the block must be safe to repeat. Without this, all queued jobs would fail within seconds, one after
    the other, while new ones are refused with the advice to try again.

    Raises:
        ServiceUnavailable: The disk of the state directory is full.
    """
    try:
        yield
    except (OSError, LaunchError) as error:
        cause = error.__cause__ if isinstance(error, LaunchError) else error
        if isinstance(cause, OSError) and cause.errno in _FULL:
            raise ServiceUnavailable(
                f"{what} cannot be started: no space left on the disk of the state directory. It is started as soon as"
                " there is; delete objects or jobs, or free space on the disk"
            ) from error
        raise
