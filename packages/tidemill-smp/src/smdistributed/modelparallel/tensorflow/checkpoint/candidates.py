"""Selects the checkpoint to restore: the latest that every rank sees, or the requested one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.checkpoint.agreement import RankAgreement
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import exists
from smdistributed.modelparallel.tensorflow.checkpoint.directory import Commit, Directory
from smdistributed.modelparallel.tensorflow.checkpoint.saved import Saved


def find(ranks: RankAgreement, files: Directory, wanted: str | None) -> Saved | None:
    """Return the checkpoint to restore, the same on all ranks.

    Args:
        files: The directory to search.
        wanted: A name, or the path of a plain checkpoint; None for the latest.

    Returns:
        The checkpoint, or None if no rank sees it.

    Raises:
        SMPCheckpointError: If only some of the ranks see the checkpoint.
    """
    answers = ranks.together("look for checkpoints", lambda: _candidates(ranks, files, wanted))
    mine = answers[ranks.rank]
    on_all_ranks = [name for name in mine if all(name in names for names in answers)]
    if not on_all_ranks:
        if any(answers):
            _refuse_partly_visible(files, answers)
        return None
    name = on_all_ranks[-1]
    prefixes = mine[name]
    if not prefixes:
        return Saved(name, [Path(name)])
    cuts = [cut for commit in files.commits() if commit.name == name for cut in commit.cuts]
    return Saved.of_ranks(str(files.root / name), [Path(p) for p in prefixes], first=ranks.mp_rank, cuts=cuts)


def _candidates(ranks: RankAgreement, files: Directory, wanted: str | None) -> dict[str, tuple[str, ...]]:
    """Return prefixes by rank for each checkpoint that this rank sees, oldest first; none for a plain checkpoint."""
    if wanted is None:
        return _visible(ranks, files, None)
    is_plain = exists(wanted) and Path(wanted).resolve().parent.parent != files.root.resolve()
    return {wanted: ()} if is_plain else _visible(ranks, files, Path(wanted).name)


def _visible(ranks: RankAgreement, files: Directory, wanted: str | None) -> dict[str, tuple[str, ...]]:
    commits = files.commits()
    # If a machine is lost, the commit of another machine may be in S3, and not yet what the lost one had written.
    whole = [commit for commit in commits if _is_whole(ranks, files, commit)]
    found = {commit.name: _prefixes(files, commit.name, commit.partitions) for commit in whole or commits}
    if not commits:
        found = _uncommitted(files, wanted)
    return {name: prefixes for name, prefixes in found.items() if wanted in (None, name)}


def _is_whole(ranks: RankAgreement, files: Directory, commit: Commit) -> bool:
    """Return whether this machine has the files that this rank certainly needs: its own, or all if the cut differs."""
    needed = (ranks.mp_rank,) if commit.partitions == ranks.partitions else range(commit.partitions)
    return all(exists(files.prefix(commit.name, rank)) for rank in needed)


def _uncommitted(files: Directory, wanted: str | None) -> dict[str, tuple[str, ...]]:
    """Find files of ranks without a commit: sent by `smp.utils`, or saved by another library."""
    ranks = files.mp_ranks()
    states = [tf.train.get_checkpoint_state(str(files.rank(rank))) for rank in ranks]
    if wanted is not None:
        names = [wanted] if any(exists(files.prefix(wanted, rank)) for rank in ranks) else []
    else:
        listed = [[Path(p).name for p in state.all_model_checkpoint_paths] for state in states if state is not None]
        names = [name for name in listed[0] if all(name in others for others in listed)] if listed else []
    return {name: _prefixes(files, name, ranks[-1] + 1) for name in names}


def _prefixes(files: Directory, name: str, partitions: int) -> tuple[str, ...]:
    return tuple(str(files.prefix(name, rank)) for rank in range(partitions))


def _refuse_partly_visible(files: Directory, answers: list[Mapping[str, Any]]) -> None:
    listed = "; ".join(f"rank {rank}: {', '.join(names) or 'none'}" for rank, names in enumerate(answers))
    raise SMPCheckpointError(
        f"the ranks see different checkpoints in {files.root} ({listed}), so there is none that all ranks can "
        "restore: use a directory that all machines share, or copy it to all machines"
    )
