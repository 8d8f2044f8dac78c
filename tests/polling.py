"""Waiting for a condition for which there is no notification."""

import time
from collections.abc import Callable
from typing import Any

import pytest

DEADLINE_S = 300.0


def poll(
    condition: Callable[[], Any],
    what: str | Callable[[], object] = "what the test waits for",
    *,
    timeout_s: float = DEADLINE_S,
) -> Any:
    """Wait until a condition holds, and return its value.

    Args:
        condition: Returns a true value once it holds.
        what: Description of the condition, or a function that returns the current state; shown on failure.
        timeout_s: Deadline, in seconds.
    """
    deadline, pause_s = time.monotonic() + timeout_s, 0.005
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(pause_s)
        pause_s = min(0.25, pause_s * 1.2)  # each check uses CPU time that the awaited process needs
    return value
