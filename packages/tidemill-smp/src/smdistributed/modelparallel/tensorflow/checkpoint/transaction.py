"""One save: all ranks write uncommitted files, which a single commit then makes valid on all ranks."""

import shutil
import time
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import RankAgreement
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import OBJECT_GRAPH, Bundle
from smdistributed.modelparallel.tensorflow.checkpoint.directory import Commit, Directory, sync_files
from smdistributed.modelparallel.tensorflow.checkpoint.parts import help_to_write, write_part
from smdistributed.modelparallel.tensorflow.engine.engine import engine


class CheckpointTransaction:
    """One save under one name."""

    def __init__(self, ranks: RankAgreement, files: Directory, name: str) -> None:
        """Begin the save. Collective.

        Raises:
            SMPCheckpointError: If the ranks save under different names.
        """
        self._ranks = ranks
        self._files = files
        self._name = name
        self._path = files.root / name
        self._token = ranks.token(name)

    def run(self, checkpoint: tf.train.Checkpoint, options: tf.train.CheckpointOptions | None) -> None:
        """Write and commit. Collective.

        Raises:
            SMPCheckpointError: If any rank could not save.
        """
        commit = self._commit(self._stage(checkpoint, options))
        self._ranks.by_writers(
            f"move the files of {self._path} to their names", lambda: self._files.promote(commit, self._ranks.mp_rank)
        )

    def _stage(
        self, checkpoint: tf.train.Checkpoint, options: tf.train.CheckpointOptions | None
    ) -> list[dict[str, Any]]:
        """Write this rank's uncommitted files, and return the written keys by partition."""
        staged = self._files.staged(self._token, self._ranks.mp_rank)

        def write() -> dict[str, Any]:
            write_part(checkpoint, staged / self._name, options)
            sync_files(staged)
            return _written(Bundle(staged / self._name))

        try:
            doing = f"save {self._path}, so it does not count"
            return self._ranks.by_writers(doing, write, helped_by=lambda: help_to_write(checkpoint))
        except SMPCheckpointError:
            if self._ranks.is_writer:
                shutil.rmtree(staged, ignore_errors=True)
            raise

    def _commit(self, by_partition: list[dict[str, Any]]) -> Commit:
        def commit() -> Commit:
            before = self._files.commits()
            new = Commit(
                name=self._name,
                order=before[-1].order + 1 if before else 1,
                token=self._token,
                time_s=time.time(),
                partitions=self._ranks.partitions,
                variables=_held(by_partition),
                cuts=engine().decided.cuts,
            )
            self._files.commit(new)
            return new

        new: Commit = self._ranks.by_leader(f"save {self._path}, so it does not count", commit)

        def commit_on_other_disk() -> None:
            if new.token not in {known.token for known in self._files.commits()}:
                self._files.commit(new)

        self._ranks.by_writers(f"note {self._path} on all machines", commit_on_other_disk)
        return new


def _written(bundle: Bundle) -> dict[str, Any]:
    return {
        key: {"dtype": dtype.name, "shape": shape}
        for key, (dtype, shape) in bundle.forms.items()
        if key != OBJECT_GRAPH
    }


def _held(by_partition: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    held: dict[str, dict[str, Any]] = {}
    for partition, forms in enumerate(by_partition):
        for key, form in forms.items():
            held.setdefault(key, {**form, "ranks": []})["ranks"].append(partition)
    return held
