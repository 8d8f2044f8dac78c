"""On a rank: run with a configuration other than the one it was started with, and see what is logged."""

import contextlib
import dataclasses
import logging
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


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the warnings that the library logs inside this context."""
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
