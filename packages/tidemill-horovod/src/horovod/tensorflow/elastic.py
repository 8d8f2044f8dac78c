"""Elastic training, which this package does not have: every use is refused, with what to do instead.

The import works, because scripts of Horovod have it beside code that needs no elastic training.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "ObjectState",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def run(func: object) -> NoReturn:
    """Refuse `@hvd.elastic.run`.

    Args:
        func: The function to train.

    Raises:
        NotImplementedError: Always.
    """
    del func
    _refuse("run")


class _Unsupported:
    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        _refuse(type(self).__name__)


class State(_Unsupported):
    """Refused."""


class ObjectState(State):
    """Refused."""


class TensorFlowState(ObjectState):
    """Refused."""


class TensorFlowKerasState(ObjectState):
    """Refused."""


class KerasState(ObjectState):
    """Refused."""


class CommitStateCallback(_Unsupported):
    """Refused."""


class UpdateBatchStateCallback(_Unsupported):
    """Refused."""


class UpdateEpochStateCallback(_Unsupported):
    """Refused."""


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"hvd.elastic.{name}: elastic training is not supported: the number of ranks is fixed. Call the training "
        "function directly, write checkpoints on rank 0, and begin with the latest one (hvd.broadcast_object, "
        "hvd.broadcast_variables): a job that lost a rank fails with HorovodInternalError and can be started again"
    )
