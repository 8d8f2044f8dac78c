"""Selects the checkpoints to keep after a new one is saved, and deletes the others."""

import dataclasses

from smdistributed.modelparallel.tensorflow.checkpoint.agreement import RankAgreement
from smdistributed.modelparallel.tensorflow.checkpoint.directory import Directory


@dataclasses.dataclass(frozen=True)
class Retention:
    """Rule for keeping checkpoints."""

    max_to_keep: int | None
    """Number of checkpoints to keep; None keeps all."""
    keep_every_n_hours: float | None
    """One checkpoint per this many hours is kept beyond `max_to_keep`; None keeps no more."""
    since_s: float
    """Start of the first of these intervals, in seconds since 1970."""

    def sweep(self, ranks: RankAgreement, files: Directory) -> None:
        """Delete older checkpoints on all ranks: first invalidate them, then delete their files.

        Args:
            ranks: The ranks of the replica.
        """
        dropped: list[str] = ranks.by_leader("choose the checkpoints to keep", lambda: self._surplus(files))

        def delete() -> None:
            files.delete(dropped, {ranks.mp_rank} | (set(files.mp_ranks()) if ranks.is_leader else set()))
            files.write_state(ranks.mp_rank, files.commits())

        if dropped:
            ranks.by_writers("forget old checkpoints", lambda: files.drop(dropped))
        ranks.by_writers("delete old checkpoints", delete)
        if dropped:
            ranks.by_writers("forget old checkpoints", lambda: files.forget(dropped))

    def _surplus(self, files: Directory) -> list[str]:
        if self.max_to_keep is None:
            return []
        commits = files.commits()
        mortal = [commit for commit in commits if not commit.kept]
        surplus = mortal[: max(0, len(mortal) - self.max_to_keep)]
        if self.keep_every_n_hours:
            kept_s = max([self.since_s, *(commit.time_s for commit in commits if commit.kept)])
            for commit in list(surplus):
                if commit.time_s - self.keep_every_n_hours * 3600.0 >= kept_s:
                    files.commit(dataclasses.replace(commit, kept=True))
                    surplus.remove(commit)
                    kept_s = commit.time_s
        return [commit.name for commit in surplus]
