"""What callbacks decide for all ranks: that `fit` stops.

A callback may go by a clock, or by the logs of a batch, which each replica has of its own share. A rank that stopped by
itself would leave the others waiting for it, so one that wants to stop stops all, at the same batch or epoch.
Where a rank has fewer batches than another it would be as long a wait, so that is refused at the beginning.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.session import Session, current
from smdistributed.modelparallel.tensorflow.world.communicator import Group

__all__ = ["stopping_together"]


def stopping_together(model: Any, callbacks: Any) -> Any:
    """The callbacks of a `fit`, and one behind them that has all ranks stop when one of them wants to.

    Args:
        model: What is trained.
        callbacks: As `fit` takes them: None, one, several, or a `CallbackList`.
    """
    group = _group(current())
    if group.size == 1:
        return callbacks
    is_list = isinstance(callbacks, tf.keras.callbacks.CallbackList)
    given = list(callbacks.callbacks) if is_list else [one for one in tf.nest.flatten(callbacks) if one is not None]
    # Ranks may have other callbacks, such as one that writes a file on the first rank only.
    acting = group.allgather_objects(any(map(_acts_on_batches, given)), what="whether callbacks act on batches")
    last = (_Batchwise if any(acting) else _Epochwise)(group)
    if not is_list:
        return [*given, last]
    callbacks.append(last)
    last.set_model(model)
    return callbacks


class _Epochwise(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Asks the other ranks at the end of an epoch, and at the beginning how many batches they have."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop here if any rank does."""
        del epoch, logs
        self._agree()

    def on_train_begin(self, logs: Any = None) -> None:
        """Refuse data of which one rank has more batches than another, where it is known."""
        del logs
        steps = self._group.allgather_objects((self.params or {}).get("steps"), what="how many batches fit has")
        if len({count for count in steps if count is not None}) > 1:
            counts = {f"rank {rank}": count for rank, count in zip(self._group.ranks, steps, strict=True)}
            raise SMPUsageError(
                f"fit was given different numbers of batches: {counts}. A rank that has one more would wait for the "
                "others: give all ranks as many, by dataset.take, repeat, or fit(steps_per_epoch=...)"
            )

    def _agree(self) -> None:
        wishes = self._group.allgather_objects(bool(self.model.stop_training), what="whether fit stops")
        self.model.stop_training = any(wishes)


class _Batchwise(_Epochwise):
    """Asks them after each batch, too."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Stop here if any rank does."""
        del batch, logs
        self._agree()


def _group(session: Session) -> Group:
    """The ranks that wait for each other: without `ddp` replicas do not, or it is the script's affair."""
    return session.world_group if session.config.ddp else session.mp_group


def _acts_on_batches(callback: Any) -> bool:
    plain = tf.keras.callbacks.Callback
    for name in ("on_train_batch_end", "on_batch_end"):
        method = getattr(callback, name, None)
        if getattr(method, "__func__", method) is not getattr(plain, name):
            return True
    return False
