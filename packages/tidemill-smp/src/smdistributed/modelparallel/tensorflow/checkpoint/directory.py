"""The directory of checkpoints, with atomic commits over all ranks.

    <root>/ckpt-3.json                 the commit: once this file exists, ckpt-3 is valid on all ranks
    <root>/mp_rank_0/ckpt-3.index      variables that rank 0 of the replica holds, an ordinary TensorFlow checkpoint
    <root>/mp_rank_0/ckpt-3.data-...
    <root>/mp_rank_0/checkpoint        TensorFlow's list of checkpoints in this directory
    <root>/mp_rank_1/...

A rank first writes into `mp_rank_<k>/.ckpt.staged-<token>/`. When all ranks have written, the commit with that token is
written, and the files are renamed to their final names. After a crash, the next reader finishes the renames of
committed checkpoints, and the next save removes the rest. So one job may read while another saves, and managers with
different names may share a directory.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import data_files
from smdistributed.modelparallel.tensorflow.partitioning.automatic import Decision
from tensorflow.python.checkpoint import checkpoint_management

_FORMAT = 2
_OLDEST_FORMAT = 1
"""Oldest format that can be read."""


@dataclasses.dataclass(frozen=True)
class Commit:
    """One committed checkpoint, as described by its JSON file."""

    name: str
    """Name, such as `ckpt-3`."""
    order: int
    """Increases with each commit, regardless of the number in the name."""
    token: str
    """Identifies the completed attempt to save under this name."""
    time_s: float
    """Time of the commit, in seconds since 1970."""
    partitions: int
    variables: dict[str, dict[str, Any]]
    """Key in the files -> `dtype`, `shape` and `ranks`, the `mp_rank`s whose files contain the key."""
    kept: bool = False
    """Whether the checkpoint is kept beyond `max_to_keep`."""
    cuts: Sequence[Decision] = ()
    """Automatic placement of each model; empty in format 1."""


class Directory:
    """The checkpoints with one name below one root."""

    def __init__(self, root: str | os.PathLike[str], checkpoint_name: str) -> None:
        """Use `root`, which need not exist yet."""
        self.root = Path(root)
        self.checkpoint_name = checkpoint_name
        self._read: dict[Path, tuple[tuple[int, int, int], Commit]] = {}

    def rank(self, mp_rank: int) -> Path:
        """Return the directory of a rank of the replica.

        Args:
            mp_rank: From 0.
        """
        return self.root / f"mp_rank_{mp_rank}"

    def prefix(self, name: str, mp_rank: int) -> Path:
        """Return the prefix of a rank's files of a checkpoint.

        Args:
            mp_rank: From 0.
        """
        return self.rank(mp_rank) / name

    def staged(self, token: str, mp_rank: int) -> Path:
        """Return the directory for a rank's uncommitted files.

        Args:
            token: Token of the save in progress.
            mp_rank: From 0.
        """
        return self.rank(mp_rank) / f".{self.checkpoint_name}.staged-{token}"

    def commits(self) -> list[Commit]:
        """Return the committed checkpoints, oldest first."""
        found = [self._load(path) for path in self._named(self.root, r"NAME-\d+\.json")]
        return sorted((commit for commit in found if commit is not None), key=lambda commit: commit.order)

    def commit(self, commit: Commit) -> None:
        """Write the commit, which makes a checkpoint valid.

        Args:
            commit: Name, token and partitions.
        """
        text = json.dumps({"format": _FORMAT, **dataclasses.asdict(commit)}, indent=1)
        path = self.root / f"{commit.name}.json"
        fresh = self.root / f".{commit.name}.{commit.token}.json"
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        _sync(self.root)

    def promote(self, commit: Commit, mp_rank: int) -> None:
        """Rename a rank's files of a committed checkpoint to their final names. Repeatable after a crash.

        Args:
            commit: A commit that was written.
            mp_rank: From 0.
        """
        staged = self.staged(commit.token, mp_rank)
        target = self.rank(mp_rank)
        with contextlib.suppress(FileNotFoundError):  # another process may finish it at the same time
            for file in sorted(staged.iterdir()):  # data files before the index
                with contextlib.suppress(FileNotFoundError):
                    file.replace(target / file.name)
            _sync(target)
            staged.rmdir()

    def drop(self, names: Iterable[str]) -> None:
        """Invalidate checkpoints; their files still exist."""
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                (self.root / f"{name}.json").replace(self.root / f".{name}.dropped")

    def delete(self, names: Iterable[str], mp_ranks: Iterable[int]) -> None:
        """Delete the files of dropped checkpoints."""
        for name in names:
            for mp_rank in mp_ranks:
                prefix = self.prefix(name, mp_rank)
                for file in (Path(f"{prefix}.index"), *data_files(prefix)):
                    file.unlink(missing_ok=True)

    def forget(self, names: Iterable[str]) -> None:
        """Remove the records of dropped checkpoints, once all their files are deleted."""
        for name in names:
            (self.root / f".{name}.dropped").unlink(missing_ok=True)

    def complete(self) -> None:
        """Finish interrupted renames of committed checkpoints. Safe while other jobs save."""
        for commit in self.commits():
            for mp_rank in range(commit.partitions):
                self.promote(commit, mp_rank)

    def clean(self) -> None:
        """Finish committed checkpoints, and remove leftovers of others. Not safe while another job saves."""
        self.complete()
        commits = self.commits()
        dropped = [path.name[1 : -len(".dropped")] for path in self._named(self.root, r"\.NAME-\d+\.dropped")]
        names = [name for name in dropped if name not in {commit.name for commit in commits}]
        ranks = self.mp_ranks()
        self.delete(names, ranks)
        self.forget(dropped)
        for mp_rank in ranks:
            for stale in self._named(self.rank(mp_rank), r"\.NAME\.staged-[0-9a-f]+"):
                shutil.rmtree(stale, ignore_errors=True)
            self.write_state(mp_rank, commits)
        for unfinished in self._named(self.root, r"\.NAME-\d+\.[0-9a-f]+\.json"):
            unfinished.unlink(missing_ok=True)

    def write_state(self, mp_rank: int, commits: Sequence[Commit]) -> None:
        """Write the list in a rank's directory that `tf.train.latest_checkpoint` reads.

        Args:
            mp_rank: From 0.
            commits: All commits, oldest first.
        """
        here = [commit for commit in commits if mp_rank < commit.partitions]
        if not here:
            return
        checkpoint_management.update_checkpoint_state_internal(
            str(self.rank(mp_rank)),
            model_checkpoint_path=str(self.prefix(here[-1].name, mp_rank)),
            all_model_checkpoint_paths=[str(self.prefix(commit.name, mp_rank)) for commit in here],
            all_model_checkpoint_timestamps=[commit.time_s for commit in here],
            last_preserved_timestamp=here[0].time_s - 1.0,
            save_relative_paths=True,
        )

    def mp_ranks(self) -> list[int]:
        """Return the ranks of a replica that have a directory below the root."""
        found = [path for path in self._named(self.root, r"mp_rank_\d+") if path.is_dir()]
        return sorted(int(path.name.removeprefix("mp_rank_")) for path in found)

    def _named(self, directory: Path, pattern: str) -> list[Path]:
        """Return the files that match a pattern, in which NAME is replaced by the name of the checkpoints."""
        form = re.compile(pattern.replace("NAME", re.escape(self.checkpoint_name)))
        return sorted(path for path in directory.iterdir() if form.fullmatch(path.name)) if directory.is_dir() else []

    def _load(self, path: Path) -> Commit | None:
        try:
            stat = path.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if path not in self._read or self._read[path][0] != stamp:
                self._read[path] = stamp, _parse(path)
        except FileNotFoundError:
            return None
        return self._read[path][1]


def sync_files(directory: Path) -> None:
    """Flush the files of a directory, and the directory itself, to the disk.

    Args:
        directory: Its files; subdirectories are not entered.
    """
    for path in directory.iterdir():
        _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _parse(path: Path) -> Commit:
    try:
        values = json.loads(path.read_text())
        if not _OLDEST_FORMAT <= values.pop("format") <= _FORMAT:
            raise SMPCheckpointError(f"{path} was written by a newer release of the library: use that one to read it")
        cuts = values.pop("cuts", [])
        return Commit(**values, cuts=[Decision(**one) for one in cuts])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SMPCheckpointError(
            f"{path} does not describe a checkpoint ({error}); if this library did not write the file, remove it, or "
            "use a separate directory for checkpoints"
        ) from error
