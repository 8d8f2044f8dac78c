"""The run whose ``with`` block is being executed: jobs that are created within it belong to it."""

from collections.abc import Mapping
from typing import Any

_runs: list[Any] = []


def current_run() -> Any:
    """Return the run whose block is being executed, or None."""
    return _runs[-1] if _runs else None


def current_config() -> Mapping[str, str] | None:
    """Return the ExperimentConfig of jobs that are created now, or None outside a run."""
    return _runs[-1].experiment_config if _runs else None


def enter_run(run: Any) -> None:
    """Begin the block of a run.

    Args:
        run: The run.
    """
    _runs.append(run)


def leave_run(run: Any) -> None:
    """End the block of a run.

    Args:
        run: The run.
    """
    _runs.remove(run)
