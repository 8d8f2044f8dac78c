"""Stops `fit` on all ranks when a callback stops it on one.

A callback may depend on a clock, or on the logs of a batch, which differ between replicas. If one rank stopped alone,
the others would wait for it. So when one rank stops, all stop at the same batch or epoch.

For the same reason, different numbers of batches per rank are refused when training begins.
"""

from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasModel, Logs
from smdistributed.modelparallel.tensorflow.session import RankSession, current
from smdistributed.modelparallel.tensorflow.world.group import Group


def stopping_together(model: KerasModel, callbacks: Any) -> object:
    """Append a callback to those of `fit` that stops all ranks when one of them stops.

    Args:
        model: The model to train.
        callbacks: As in `fit`: None, one, several, or a `CallbackList`.

    Returns:
        The callbacks for Keras's `fit`.
    """
    group = _group(current())
    if group.size == 1:
        return callbacks
    is_list = isinstance(callbacks, tf.keras.callbacks.CallbackList)
    given = list(callbacks.callbacks) if is_list else [one for one in tf.nest.flatten(callbacks) if one is not None]
    # Callbacks may differ between ranks: a script may add one that writes a file to rank 0 only.
    acting = group.allgather_objects(any(map(_acts_on_batches, given)), what="whether callbacks act on batches")
    last = (_Batchwise if any(acting) else _Epochwise)(group)
    if not is_list:
        return [*given, last]
    callbacks.append(last)
    last.set_model(model)
    return callbacks


class _Epochwise(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Compares the numbers of batches when training begins, and agrees on stopping at the end of each epoch."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Stop if any rank stops."""
        del epoch, logs
        self._agree()

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raise `SMPUsageError` if the numbers of batches are known and differ between ranks."""
        del logs
        steps = self._group.allgather_objects((self.params or {}).get("steps"), what="how many batches fit has")
        if len({count for count in steps if count is not None}) > 1:
            counts = {f"rank {rank}": count for rank, count in zip(self._group.ranks, steps, strict=True)}
            raise SMPUsageError(
                f"fit was given different numbers of batches: {counts}. A rank that has more would wait for the "
                "others: give all ranks the same number, with dataset.take, repeat, or fit(steps_per_epoch=...)"
            )

    def _agree(self) -> None:
        wishes = self._group.allgather_objects(bool(self.model.stop_training), what="whether fit stops")
        self.model.stop_training = any(wishes)


class _Batchwise(_Epochwise):
    """Also agrees on stopping after each batch."""

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Stop if any rank stops."""
        del batch, logs
        self._agree()


def _group(session: RankSession) -> Group:
    """Return the ranks that wait for each other: with `ddp` all ranks, else the replica."""
    return session.world_group if session.config.ddp else session.mp_group


def _acts_on_batches(callback: object) -> bool:
    plain = tf.keras.callbacks.Callback
    for name in ("on_train_batch_end", "on_batch_end"):
        method = getattr(callback, name, None)
        if getattr(method, "__func__", method) is not getattr(plain, name):
            return True
    return False
