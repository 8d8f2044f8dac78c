"""On a rank: run with a configuration other than the one it was started with."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from smdistributed.modelparallel.tensorflow import session


@contextlib.contextmanager
def configured(**changes: Any) -> Iterator[None]:
    """Change the configuration for steps that are traced inside this context."""
    before = session.current()
    session.set_current(dataclasses.replace(before, config=dataclasses.replace(before.config, **changes)))
    try:
        yield
    finally:
        session.set_current(before)
