"""`smp.CheckpointManager`: checkpoints of a model whose parts live on different ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import Agreement
from smdistributed.modelparallel.tensorflow.checkpoint.candidates import find
from smdistributed.modelparallel.tensorflow.checkpoint.directory import Directory
from smdistributed.modelparallel.tensorflow.checkpoint.export import export
from smdistributed.modelparallel.tensorflow.checkpoint.restoration import Restoration
from smdistributed.modelparallel.tensorflow.checkpoint.retention import Retention
from smdistributed.modelparallel.tensorflow.checkpoint.transaction import Transaction
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.session import current

__all__ = ["CheckpointManager"]


class CheckpointManager(tf.train.CheckpointManager):
    """Saves and restores a `tf.train.Checkpoint` whose variables are spread over the ranks.

    Each rank of the first replica writes what it holds into `<directory>/mp_rank_<mp_rank>/`; a checkpoint counts once
    all have, on all ranks at one moment, so that a job that is killed while it saves goes on from the one before.
    All replicas restore, and any number of partitions restores what another number has saved.

        manager = smp.CheckpointManager(tf.train.Checkpoint(model=net, optimizer=optimizer, step=step))
        manager.restore()               # nothing saved yet: does nothing
        ...
        manager.save()                  # every rank calls it

    `directory` is the common one; the paths that `latest_checkpoint`, `checkpoints` and `save` give are those of this
    rank's files.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        directory: str | os.PathLike[str] = "/opt/ml/checkpoints",
        max_to_keep: int | None = None,
        checkpoint_name: str = "ckpt",
        **options: Any,
    ) -> None:
        """Manage the checkpoints of `directory`.

        Args:
            checkpoint: What to save; made alike on all ranks.
            directory: Below it each rank has a directory. On several machines it must be shared, unless ranks are only
                ever started again where they were.
            max_to_keep: How many checkpoints to keep; None keeps all.
            checkpoint_name: What the names of checkpoints begin with.
            **options: The others of `tf.train.CheckpointManager`.
        """
        self._ranks = Agreement(current())
        self._files = Directory(directory, checkpoint_name)
        self._is_cleaned = False
        self._restoration: Restoration | None = None
        super().__init__(
            checkpoint,
            str(self._files.rank(self._ranks.mp_rank)),
            max_to_keep,
            checkpoint_name=checkpoint_name,
            **options,
        )
        self._directory = os.fspath(directory)

    @property
    def latest_checkpoint(self) -> str | None:
        """This rank's files of the checkpoint that was saved last, as a prefix; None if there is none."""
        commits = self._files.commits()
        return self._path(commits[-1].name) if commits else None

    @property
    def checkpoints(self) -> list[str]:
        """This rank's files of all checkpoints under `max_to_keep`, as prefixes, oldest first."""
        return [self._path(commit.name) for commit in self._files.commits() if not commit.kept]

    def save(
        self,
        checkpoint_number: Any = None,
        check_interval: bool = True,
        options: tf.train.CheckpointOptions | None = None,
    ) -> str | None:
        """Save; every rank calls it, and all return when the checkpoint counts.

        Args:
            checkpoint_number: The number in the name; None takes `checkpoint.save_counter`, which grows with each save.
            check_interval: Whether `checkpoint_interval` may put the save off.
            options: How TensorFlow writes.

        Returns:
            This rank's files as a prefix, or None if `checkpoint_interval` put the save off.

        Raises:
            SMPCheckpointError: If any rank could not write; the checkpoint before stays the latest.
        """
        if not tf.executing_eagerly():
            raise SMPUsageError("CheckpointManager.save was called inside a tf.function: call it between steps")
        if options is not None and options.experimental_enable_async_checkpoint:
            raise SMPUsageError(
                "CheckpointManager.save cannot write in the background (experimental_enable_async_checkpoint): a "
                "checkpoint counts only when all ranks have written; leave the option out"
            )
        if not self._is_due(check_interval):
            return None
        self._clean()
        self._checkpoint.save_counter.assign_add(1)
        number = int(self._checkpoint.save_counter if checkpoint_number is None else checkpoint_number)
        name = f"{self._files.checkpoint_name}-{number}"
        Transaction(self._ranks, self._files, name).run(self._checkpoint, options)
        kept = Retention(self._max_to_keep, self._keep_checkpoint_every_n_hours, self._last_preserved_timestamp)
        kept.sweep(self._ranks, self._files)
        if self._checkpoint_interval is not None:
            self._last_checkpoint_step = int(self._step_counter)
        return self._path(name)

    def restore(self, restore_prefix: str | os.PathLike[str] | None = None) -> str | None:
        """Restore; every rank calls it. Without effect if there is no such checkpoint.

        What exists is restored at once. Before the first `smp.step` the model is not cut yet: its parts are restored
        when it is, before they are used, and the slots of optimizers when they are made.

        Args:
            restore_prefix: A name such as `ckpt-2`; or the path of a plain checkpoint, which `tf.train.Checkpoint`
                saved without this library. None takes the latest.

        Returns:
            What is restored, as a prefix, or None.

        Raises:
            SMPCheckpointError: If it cannot be read, does not fit, or some ranks see it and some do not; raised on all
                ranks, where the model is cut if that is when it shows.
        """
        with tf.init_scope():
            self._ranks.by_machine(f"look at the checkpoints in {self._files.root}", self._files.complete)
            saved = find(self._ranks, self._files, None if restore_prefix is None else os.fspath(restore_prefix))
            if saved is None:
                return None
            self._checkpoint.save_counter  # noqa: B018 - made by being asked for, so that its value has a place
            if self._restoration is not None:
                self._restoration.cancel()
            restoration = self._restoration = Restoration(self._checkpoint, saved, self._ranks)
            if not engine().is_partitioned:
                restoration.begin()
            engine().after_partition(restoration.proceed, and_later=True)
            if self._checkpoint_interval is not None:
                self._last_checkpoint_step = int(self._step_counter)
            return str(saved.prefixes[0])

    def restore_or_initialize(self) -> str | None:
        """Restore the latest checkpoint; if there is none, call `init_fn`."""
        restored = self.restore()
        if restored is None and self._init_fn is not None:
            self._init_fn()
        return restored

    def export(self, path: str | os.PathLike[str]) -> str:
        """Write everything as one plain checkpoint, which `tf.train.Checkpoint(...).restore(path)` reads anywhere.

        Every rank calls it. No more of the model than one rank's part is ever in memory on one rank. The seeds of
        random layers are left out, as `tf.train.Checkpoint` does. Lists and dictionaries of layers are in it; of Keras
        3 models `tf.train.Checkpoint` restores them only as what an optimizer trains, this manager restores them all.

        Args:
            path: What the files begin with; `<path>.index` and `<path>.data-...` are replaced.

        Returns:
            The path.

        Raises:
            SMPCheckpointError: If any rank could not write.
        """
        target = Path(path)
        self._checkpoint.save_counter  # noqa: B018 - made by being asked for; who restores plainly expects it
        export(self._ranks, self._checkpoint, target)
        return str(target)

    def _path(self, name: str) -> str:
        return str(self._files.prefix(name, self._ranks.mp_rank))

    def _is_due(self, check_interval: bool) -> bool:
        if self._checkpoint_interval is None:
            return True
        step, before = int(self._step_counter), self._last_checkpoint_step
        self._ranks.same_step(step)
        return before is None or (step != before and (not check_interval or step >= before + self._checkpoint_interval))

    def _clean(self) -> None:
        """Once per manager, remove what a crash of the job before has left."""
        if not self._is_cleaned:
            self._ranks.by_machine(f"look at the checkpoints in {self._files.root}", self._files.clean)
            self._is_cleaned = True
