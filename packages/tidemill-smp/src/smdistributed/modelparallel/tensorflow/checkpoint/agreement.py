"""Collective actions of saving and restoring: all ranks succeed, or all ranks raise."""

import secrets
from collections.abc import Callable
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow.session import RankSession


class RankAgreement:
    """This rank and its role among the ranks that save and restore together."""

    def __init__(self, session: RankSession) -> None:
        """Act together with the ranks of `session`."""
        self._session = session
        placement = session.placement
        self.rank: int = session.world.rank
        self.mp_rank: int = placement.mp_rank
        self.partitions: int = placement.partitions
        self.is_writer: bool = placement.dp_rank == 0
        """Whether this rank writes files: true in the first replica."""
        self.is_leader: bool = self.is_writer and placement.mp_rank == 0
        """Whether this rank writes the files that exist once per job."""
        self._writers = [placement.rank_at(partition, 0) for partition in range(placement.partitions)]

    def together(self, doing: str, function: Callable[[], Any]) -> list[Any]:
        """Call a function on all ranks.

        Args:
            doing: Description that continues "could not ..." in error messages.

        Returns:
            The results by rank.

        Raises:
            SMPCheckpointError: If the function failed on any rank.
        """
        result, failure = None, None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - it is raised again on all ranks
            failure = error
        text = None if failure is None else f"{type(failure).__name__}: {str(failure).strip()[:1000]}"
        answers = self._exchanged((text, result))
        failed = {rank: text for rank, (text, _) in enumerate(answers) if text is not None}
        if failed:
            where = "; ".join(f"rank {rank}: {text}" for rank, text in failed.items())
            raise SMPCheckpointError(f"could not {doing}: {where}") from failure
        return [value for _, value in answers]

    def by_writers(
        self, doing: str, function: Callable[[], Any], *, helped_by: Callable[[], None] = lambda: None
    ) -> list[Any]:
        """Call `function` on the writing ranks and `helped_by` on the others; return the results by partition.

        Args:
            doing: What the ranks do, for errors.
            helped_by: Called on the others. Default: nothing.

        Raises:
            SMPCheckpointError: If a rank failed; raised on all.
        """
        results = self.together(doing, function if self.is_writer else helped_by)
        return [results[rank] for rank in self._writers]

    def by_leader(self, doing: str, function: Callable[[], Any]) -> Any:
        """Call a function on the leader, and return its result on all ranks.

        Args:
            doing: What the ranks do, for errors.
            function: Called on the leader; its result must be picklable.
        """
        return self.together(doing, lambda: function() if self.is_leader else None)[self._writers[0]]

    def by_machine(self, doing: str, function: Callable[[], None]) -> None:
        """Call a function on one rank of each machine: on rank 0 first, in case all machines share the directory.

        Args:
            doing: What the ranks do, for errors.
            function: Called without arguments.
        """
        world = self._session.world
        self.together(doing, lambda: function() if world.rank == 0 else None)
        self.together(doing, lambda: function() if world.rank != 0 and world.local_rank == 0 else None)

    def token(self, name: str) -> str:
        """Return a unique token for one attempt to write `name`.

        Raises:
            SMPCheckpointError: If the ranks write different names.
        """
        answers = self._exchanged((name, secrets.token_hex(8)))
        _refuse_different("save under different names", "give the same number on all ranks", [n for n, _ in answers])
        return str(answers[0][1])

    def same_step(self, step: int) -> None:
        """Compare the step counters of the ranks.

        Raises:
            SMPCheckpointError: If they differ.
        """
        _refuse_different("save at different steps", "count step_counter alike on all", self._exchanged(step))

    def _exchanged(self, value: object) -> list[Any]:
        answers: list[Any] = self._session.world_group.allgather_objects(value, what="checkpoint")
        return answers


def _refuse_different(doing: str, advice: str, answers: list[Any]) -> None:
    if len(set(answers)) > 1:
        text = ", ".join(f"rank {rank}: {answer}" for rank, answer in enumerate(answers))
        raise SMPCheckpointError(f"the ranks {doing} ({text}): {advice}")
