"""What the compiler knows of the job around its process."""

from __future__ import annotations

import json
import os
from typing import Any

__all__ = ["has_several_processes"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SMP_SIZE")


def has_several_processes() -> bool:
    """Return whether other processes train the same model: under MPI, tidemill's launcher of ranks, or by
    ``TF_CONFIG``.

    Copies of a model that were updated by differing variants of a step would drift apart.
    """
    if any(os.environ.get(name, "").isdigit() and int(os.environ[name]) > 1 for name in _SIZES):
        return True
    return len(_tasks("TF_CONFIG")) > 1


def _tasks(name: str) -> list[Any]:
    try:
        cluster = json.loads(os.environ.get(name, "")).get("cluster", {})
        return [task for tasks in cluster.values() for task in tasks]
    except (ValueError, AttributeError, TypeError):
        return []
