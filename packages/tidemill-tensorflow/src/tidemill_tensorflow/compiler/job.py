"""What the compiler knows of the job around its process."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

__all__ = ["has_several_processes"]

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SMP_SIZE")


def has_several_processes() -> bool:
    """Return whether other processes train the same model: under MPI, tidemill's launcher of ranks, by ``TF_CONFIG``,
    or by the script's settings of Horovod or of a strategy.

    Copies of a model that were updated by differing variants of a step would drift apart.
    """
    if any(os.environ.get(name, "").isdigit() and int(os.environ[name]) > 1 for name in _SIZES):
        return True
    return len(_tasks("TF_CONFIG")) > 1 or _horovod_ranks() > 1 or _strategy_tasks() > 1


def _tasks(name: str) -> list[Any]:
    try:
        cluster = json.loads(os.environ.get(name, "")).get("cluster", {})
        return [task for tasks in cluster.values() for task in tasks]
    except (ValueError, AttributeError, TypeError):
        return []


def _horovod_ranks() -> int:
    horovod: Any = sys.modules.get("horovod.tensorflow")
    return int(horovod.size()) if horovod is not None and horovod.is_initialized() else 1


def _strategy_tasks() -> int:
    """Return the number of tasks of the cluster that TensorFlow is connected to."""
    module: Any = sys.modules.get("tensorflow.python.eager.context")
    if module is None:
        return 1
    context = module.context()
    servers = (context.get_server_def(), getattr(context, "_collective_ops_server_def", None))
    return max((sum(len(job.tasks) for job in each.cluster.job) for each in servers if each is not None), default=1)
