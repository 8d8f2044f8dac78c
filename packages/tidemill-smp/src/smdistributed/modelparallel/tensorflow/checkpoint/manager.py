"""`smp.CheckpointManager`: checkpoints of a model whose parts live on different ranks."""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError, SMPUsageError
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import OBJECT_GRAPH, Bundle, exists
from smdistributed.modelparallel.tensorflow.checkpoint.children import all_listed, lost_variables
from smdistributed.modelparallel.tensorflow.checkpoint.directory import Commit, Directory, sync_files
from smdistributed.modelparallel.tensorflow.checkpoint.merging import merge
from smdistributed.modelparallel.tensorflow.checkpoint.restoration import Restoration
from smdistributed.modelparallel.tensorflow.checkpoint.saved import Saved
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.engine.variables import ForeignVariable, standing_in
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
        self._session = current()
        placement = self._session.placement
        self._files = Directory(directory, checkpoint_name)
        self._is_cleaned = False
        self._restoration: Restoration | None = None
        super().__init__(
            checkpoint,
            str(self._files.rank(placement.mp_rank)),
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
        token = self._agreed_token(name)
        commit = self._commit(name, token, self._stage(name, token, options))
        self._promote(commit)
        self._sweep_older()
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
            self._by_machine(f"look at the checkpoints in {self._files.root}", self._files.complete)
            saved = self._find(None if restore_prefix is None else os.fspath(restore_prefix))
            if saved is None:
                return None
            self._checkpoint.save_counter  # noqa: B018 - made by being asked for, so that its value has a place
            if self._restoration is not None:
                self._restoration.is_cancelled = True
            restoration = self._restoration = Restoration(self._checkpoint, saved, rank=self._session.world.rank)
            if not engine().is_partitioned:
                self._together(f"restore {saved.name}", restoration.apply)
            engine().after_partition(lambda: self._finish(restoration, saved.name))
            return str(saved.prefixes[0])

    def restore_or_initialize(self) -> str | None:
        """Restore the latest checkpoint; if there is none, call `init_fn`."""
        restored = self.restore()
        if restored is None and self._init_fn is not None:
            self._init_fn()
        if restored is not None and self._checkpoint_interval is not None:
            self._last_checkpoint_step = int(self._step_counter)
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
        name = target.name
        token = self._agreed_token(str(target))
        parts = target.parent / f".{name}.{token}"
        me = self._session.placement.mp_rank
        self._checkpoint.save_counter  # noqa: B018 - made by being asked for; who restores plainly expects it

        def write() -> None:
            if self._is_writer:
                self._write(parts / f"mp_rank_{me}" / "part", None, seeds=False)

        def put_together() -> None:
            if self._is_leader:
                ranks = range(self._session.placement.partitions)
                merge([parts / f"mp_rank_{rank}" / "part" for rank in ranks], target, room=parts / "merging")

        try:
            self._together(f"export {target}", write)
            self._together(f"export {target}", put_together)
        finally:
            if self._is_leader:
                shutil.rmtree(parts, ignore_errors=True)
        return str(target)

    # --- who does what ----------------------------------------------------------------------------------------

    @property
    def _is_writer(self) -> bool:
        return self._session.placement.dp_rank == 0

    @property
    def _is_leader(self) -> bool:
        return self._is_writer and self._session.placement.mp_rank == 0

    def _path(self, name: str) -> str:
        return str(self._files.prefix(name, self._session.placement.mp_rank))

    def _by_machine(self, doing: str, function: Callable[[], None]) -> None:
        """Do something in the directory of each machine; not by two at a time, should they share it."""
        world = self._session.world
        self._together(doing, lambda: function() if world.rank == 0 else None)
        self._together(doing, lambda: function() if world.rank != 0 and world.local_rank == 0 else None)

    def _clean(self) -> None:
        """Once per manager, remove what a crash of the job before has left."""
        if not self._is_cleaned:
            self._by_machine(f"look at the checkpoints in {self._files.root}", self._files.clean)
            self._is_cleaned = True

    def _together(self, doing: str, function: Callable[[], Any]) -> list[Any]:
        """Do something on all ranks, and return their results; if it fails on one, it fails on all."""
        result, failure = None, None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - it is raised again on all ranks
            failure = error
        said = None if failure is None else f"{type(failure).__name__}: {str(failure).strip()[:1000]}"
        answers = self._session.world_group.allgather_objects((said, result), what="checkpoint")
        failed = {rank: text for rank, (text, _) in enumerate(answers) if text is not None}
        if failed:
            where = "; ".join(f"rank {rank}: {text}" for rank, text in failed.items())
            raise SMPCheckpointError(f"could not {doing}: {where}") from failure
        return [value for _, value in answers]

    def _agreed_token(self, name: str) -> str:
        answers = self._session.world_group.allgather_objects((name, secrets.token_hex(8)), what="checkpoint")
        names = {theirs for theirs, _ in answers}
        if len(names) > 1:
            said = ", ".join(f"rank {rank}: {theirs}" for rank, (theirs, _) in enumerate(answers))
            raise SMPCheckpointError(
                f"the ranks save under different names ({said}): give the same number on all ranks"
            )
        return str(answers[0][1])

    # --- saving -----------------------------------------------------------------------------------------------

    def _is_due(self, check_interval: bool) -> bool:
        if self._checkpoint_interval is None:
            return True
        step, before = int(self._step_counter), self._last_checkpoint_step
        steps = self._together("compare the steps of the ranks", lambda: step)
        if len(set(steps)) > 1:
            said = ", ".join(f"rank {rank}: {theirs}" for rank, theirs in enumerate(steps))
            raise SMPCheckpointError(f"the ranks save at different steps ({said}): count step_counter alike on all")
        return before is None or (step != before and (not check_interval or step >= before + self._checkpoint_interval))

    def _stage(self, name: str, token: str, options: Any) -> list[dict[str, Any]]:
        """Write this rank's files where they do not count yet; what each rank wrote."""
        me = self._session.placement.mp_rank
        staged = self._files.staged(token, me)

        def write() -> dict[str, Any]:
            if not self._is_writer:
                return {}
            self._write(staged / name, options)
            sync_files(staged)
            forms = Bundle(staged / name).forms
            return {
                key: {"dtype": dtype.name, "shape": shape}
                for key, (dtype, shape) in forms.items()
                if key != OBJECT_GRAPH
            }

        try:
            return self._together(f"save {self._files.root / name}, so it does not count", write)
        except SMPCheckpointError:
            if self._is_writer:
                shutil.rmtree(staged, ignore_errors=True)
            raise

    def _write(self, prefix: Path, options: Any, *, seeds: bool = True) -> None:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with standing_in(_LeftOut()), all_listed():
            lost = [variable.name for variable in lost_variables(self._checkpoint)]
            if lost:
                raise SMPCheckpointError(
                    f"{len(lost)} variables of the model would not be saved ({', '.join(lost[:5])}): they are in an "
                    "object that TensorFlow does not track, or two of a set's layers have one name; keep their layers "
                    "as attributes of the model, or in its lists and dictionaries"
                )
        with standing_in(_LeftOut()), all_listed(seeds=seeds):
            self._checkpoint.write(str(prefix), options=options)

    def _promote(self, commit: Commit) -> None:
        def promote() -> None:
            if self._is_writer:
                self._files.promote(commit, self._session.placement.mp_rank)

        self._together(f"move the files of {self._files.root / commit.name} to their names", promote)

    def _commit(self, name: str, token: str, written: list[dict[str, Any]]) -> Commit:
        placement = self._session.placement
        by_partition = [written[placement.rank_at(partition, 0)] for partition in range(placement.partitions)]

        def commit() -> Commit | None:
            if not self._is_leader:
                return None
            before = self._files.commits()
            new = Commit(
                name=name,
                order=before[-1].order + 1 if before else 1,
                token=token,
                time_s=time.time(),
                partitions=placement.partitions,
                variables=_held(by_partition),
            )
            self._files.commit(new)
            return new

        doing = f"save {self._files.root / name}, so it does not count"
        leader = placement.rank_at(0, 0)
        new = self._together(doing, commit)[leader]

        def commit_on_other_disk() -> None:
            if self._is_writer and new.token not in {known.token for known in self._files.commits()}:
                self._files.commit(new)

        self._together(f"note {self._files.root / name} on all machines", commit_on_other_disk)
        assert isinstance(new, Commit)
        return new

    def _sweep_older(self) -> None:
        """Keep `max_to_keep` checkpoints: they stop to count first, and then their files go."""
        me, leader = self._session.placement.mp_rank, self._session.placement.rank_at(0, 0)
        dropped: list[str] = self._together("choose the checkpoints to keep", self._surplus)[leader]

        def drop() -> None:
            if self._is_writer:
                self._files.drop(dropped)

        def delete() -> None:
            if self._is_writer:
                self._files.delete(dropped, {me} | (set(self._files.mp_ranks()) if self._is_leader else set()))
                self._files.write_state(me, self._files.commits())

        if dropped:
            self._together("forget old checkpoints", drop)
        self._together("delete old checkpoints", delete)
        if dropped:
            self._together("forget old checkpoints", lambda: self._files.forget(dropped) if self._is_writer else None)

    def _surplus(self) -> list[str]:
        if not self._is_leader or self._max_to_keep is None:
            return []
        commits = self._files.commits()
        mortal = [commit for commit in commits if not commit.kept]
        surplus = mortal[: max(0, len(mortal) - self._max_to_keep)]
        if self._keep_checkpoint_every_n_hours:
            kept_s = max([self._last_preserved_timestamp, *(commit.time_s for commit in commits if commit.kept)])
            for commit in list(surplus):
                if commit.time_s - self._keep_checkpoint_every_n_hours * 3600.0 >= kept_s:
                    self._files.commit(dataclasses.replace(commit, kept=True))
                    surplus.remove(commit)
                    kept_s = commit.time_s
        return [commit.name for commit in surplus]

    # --- restoring --------------------------------------------------------------------------------------------

    def _finish(self, restoration: Restoration, name: str) -> None:
        if not restoration.is_cancelled:
            self._together(f"restore {name}", restoration.finish)

    # --- finding what to restore ------------------------------------------------------------------------------

    def _find(self, wanted: str | None) -> Saved | None:
        """What to restore; the same on all ranks."""
        answers = self._together("look for checkpoints", lambda: self._candidates(wanted))
        found = answers[self._session.world.rank]
        everywhere = [name for name in found if all(name in theirs for theirs in answers)]
        if not everywhere:
            if any(answers):
                self._refuse_partly_visible(answers)
            return None
        name = everywhere[-1]
        prefixes = found[name]
        if not prefixes:
            return Saved(name, [Path(name)])
        return Saved.of_ranks(
            str(self._files.root / name), [Path(p) for p in prefixes], first=self._session.placement.mp_rank
        )

    def _candidates(self, wanted: str | None) -> dict[str, tuple[str, ...]]:
        if wanted is None:
            return self._visible(None)
        is_plain = exists(wanted) and Path(wanted).resolve().parent.parent != self._files.root.resolve()
        return {wanted: ()} if is_plain else self._visible(Path(wanted).name)

    def _visible(self, wanted: str | None) -> dict[str, tuple[str, ...]]:
        """Name -> prefixes by rank, of the checkpoints that this rank sees, oldest first."""
        commits = self._files.commits()
        found = {commit.name: self._prefixes(commit.name, commit.partitions) for commit in commits}
        if not commits:
            found = self._uncommitted(wanted)
        return {name: prefixes for name, prefixes in found.items() if wanted in (None, name)}

    def _uncommitted(self, wanted: str | None) -> dict[str, tuple[str, ...]]:
        """Files of ranks that came here without a commit: sent by `smp.utils`, or saved by another library."""
        ranks = self._files.mp_ranks()
        states = [tf.train.get_checkpoint_state(str(self._files.rank(rank))) for rank in ranks]
        if wanted is not None:
            names = [wanted] if any(exists(self._files.prefix(wanted, rank)) for rank in ranks) else []
        else:
            listed = [[Path(p).name for p in state.all_model_checkpoint_paths] for state in states if state is not None]
            names = [name for name in listed[0] if all(name in others for others in listed)] if listed else []
        return {name: self._prefixes(name, ranks[-1] + 1) for name in names}

    def _prefixes(self, name: str, partitions: int) -> tuple[str, ...]:
        return tuple(str(self._files.prefix(name, rank)) for rank in range(partitions))

    def _refuse_partly_visible(self, answers: list[Mapping[str, Any]]) -> None:
        said = "; ".join(f"rank {rank}: {', '.join(names) or 'none'}" for rank, names in enumerate(answers))
        raise SMPCheckpointError(
            f"the ranks see different checkpoints in {self._files.root} ({said}), so there is none that all can "
            "restore: use a directory that all machines share, or copy it to all"
        )


class _LeftOut:
    """In a rank's files, a variable of another rank has its place among the objects and no value."""

    def value(self, variable: ForeignVariable) -> Any:
        variable._refuse("read")

    def tensors(self, variable: ForeignVariable) -> dict[str, Any]:
        return {}


def _held(by_partition: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    held: dict[str, dict[str, Any]] = {}
    for partition, forms in enumerate(by_partition):
        for key, form in forms.items():
            held.setdefault(key, {**form, "ranks": []})["ranks"].append(partition)
    return held
