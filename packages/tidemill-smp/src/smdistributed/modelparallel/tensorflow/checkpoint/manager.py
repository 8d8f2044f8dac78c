"""`smp.CheckpointManager`: checkpoints of a model whose variables are spread over ranks."""

import os
from pathlib import Path

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import RankAgreement
from smdistributed.modelparallel.tensorflow.checkpoint.candidates import find
from smdistributed.modelparallel.tensorflow.checkpoint.directory import Directory
from smdistributed.modelparallel.tensorflow.checkpoint.export import export
from smdistributed.modelparallel.tensorflow.checkpoint.restoration import Restoration
from smdistributed.modelparallel.tensorflow.checkpoint.retention import Retention
from smdistributed.modelparallel.tensorflow.checkpoint.transaction import CheckpointTransaction
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.session import current


class CheckpointManager(tf.train.CheckpointManager):
    """Saves and restores a `tf.train.Checkpoint` whose variables are spread over the ranks.

    Each rank of the first replica writes the variables that it holds into `<directory>/mp_rank_<mp_rank>/`. A
    checkpoint becomes valid on all ranks at once, when all ranks have written, so that a job that is killed while it
    saves resumes from the checkpoint before. All replicas restore, with any number of partitions.

        manager = smp.CheckpointManager(tf.train.Checkpoint(model=net, optimizer=optimizer, step=step))
        manager.restore()               # does nothing if there is no checkpoint
        ...
        manager.save()                  # collective: every rank calls it

    `directory` is the common root; `latest_checkpoint`, `checkpoints` and `save` return prefixes of this rank's files.
    """

    def __init__(
        self,
        checkpoint: tf.train.Checkpoint,
        directory: str | os.PathLike[str] = "/opt/ml/checkpoints",
        max_to_keep: int | None = None,
        checkpoint_name: str = "ckpt",
        **options: object,
    ) -> None:
        """Manage the checkpoints in `directory`.

        Args:
            checkpoint: The objects to save; constructed equally on all ranks.
            directory: The root, with one directory per rank of a replica. Several machines must share it, unless each
                rank always restarts on the same machine. Default: `/opt/ml/checkpoints`, which SageMaker keeps in S3.
            max_to_keep: Number of checkpoints to keep; None keeps all.
            checkpoint_name: Prefix of the names of checkpoints.
            **options: Other options of `tf.train.CheckpointManager`.
        """
        self._ranks = RankAgreement(current())
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
        """Prefix of this rank's files of the latest checkpoint; None without a checkpoint."""
        commits = self._files.commits()
        return self._path(commits[-1].name) if commits else None

    @property
    def checkpoints(self) -> list[str]:
        """Prefixes of this rank's files of all checkpoints that count toward `max_to_keep`, oldest first."""
        return [self._path(commit.name) for commit in self._files.commits() if not commit.kept]

    def save(
        self,
        checkpoint_number: int | None = None,
        check_interval: bool = True,
        options: tf.train.CheckpointOptions | None = None,
    ) -> str | None:
        """Save a checkpoint. Collective; all ranks return when the checkpoint is committed.

        Args:
            checkpoint_number: The number in the name. Default: `checkpoint.save_counter`, which each save increases.
            check_interval: Whether to skip the save if fewer than `checkpoint_interval` steps have passed.
            options: How TensorFlow writes; asynchronous writing is refused.

        Returns:
            The prefix of this rank's files, or None if the save was skipped.

        Raises:
            SMPUsageError: If called inside a `tf.function`, or with asynchronous writing.
            SMPCheckpointError: If any rank could not write; the checkpoint before remains the latest.
        """
        if not tf.executing_eagerly():
            raise SMPUsageError("CheckpointManager.save was called inside a tf.function: call it between steps")
        if options is not None and options.experimental_enable_async_checkpoint:
            raise SMPUsageError(
                "CheckpointManager.save cannot write in the background (experimental_enable_async_checkpoint): a "
                "checkpoint is valid only when all ranks have written; leave the option out"
            )
        if not self._is_due(check_interval):
            return None
        self._clean()
        self._checkpoint.save_counter.assign_add(1)
        number = int(self._checkpoint.save_counter if checkpoint_number is None else checkpoint_number)
        name = f"{self._files.checkpoint_name}-{number}"
        CheckpointTransaction(self._ranks, self._files, name).run(self._checkpoint, options)
        kept = Retention(self._max_to_keep, self._keep_checkpoint_every_n_hours, self._last_preserved_timestamp)
        kept.sweep(self._ranks, self._files)
        if self._checkpoint_interval is not None:
            self._last_checkpoint_step = int(self._step_counter)
        return self._path(name)

    def restore(self, restore_prefix: str | os.PathLike[str] | None = None) -> str | None:
        """Restore a checkpoint. Collective; has no effect if there is no such checkpoint.

        Objects that exist are restored immediately. Before the first `smp.step` the model is not partitioned yet: its
        variables are restored when it is, before they are used, and the slots of optimizers when they are created. An
        unchanged model is then partitioned as it was when the checkpoint was saved.

        Args:
            restore_prefix: A name such as `ckpt-2`, or the path of a plain checkpoint that `tf.train.Checkpoint` saved
                without this library. Default: the latest checkpoint.

        Returns:
            The prefix of the restored checkpoint, or None.

        Raises:
            SMPCheckpointError: If the checkpoint cannot be read, does not match the objects, or is visible to some of
                the ranks only; raised on all ranks, here or when the model is partitioned.
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
                engine().decided.kept_cuts = list(saved.cuts)
                restoration.begin()
            engine().after_partition(restoration.proceed, and_later=True)
            if self._checkpoint_interval is not None:
                self._last_checkpoint_step = int(self._step_counter)
            return str(saved.prefixes[0])

    def restore_or_initialize(self) -> str | None:
        """Restore the latest checkpoint; without one, call `init_fn`. Collective.

        Returns:
            The prefix of the restored checkpoint, or None.
        """
        restored = self.restore()
        if restored is None and self._init_fn is not None:
            self._init_fn()
        return restored

    def export(self, path: str | os.PathLike[str]) -> str:
        """Write all objects as one plain checkpoint that `tf.train.Checkpoint(...).restore(path)` reads anywhere.

        Collective. No rank ever has more than its own part of the model in memory. As with `tf.train.Checkpoint`, seeds
        of random layers are omitted. Lists and dictionaries of layers are included; for Keras 3 models,
        `tf.train.Checkpoint` restores from them only the variables that an optimizer trains, this manager all of them.

        Args:
            path: The prefix of the files; `<path>.index` and `<path>.data-...` are replaced.

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
        """Remove, once per manager, the leftovers of an earlier job that crashed."""
        if not self._is_cleaned:
            self._ranks.by_machine(f"look at the checkpoints in {self._files.root}", self._files.clean)
            self._is_cleaned = True
