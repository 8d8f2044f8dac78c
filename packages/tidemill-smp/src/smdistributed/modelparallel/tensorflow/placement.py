"""Mapping between ranks, partitions and replicas: pure tables without processes.

`cluster` gives the ranks of a replica consecutive numbers, `spread` the ranks with the same partition:

    8 ranks, 2 partitions     replicas (MP groups)           same partition (DP groups)
    cluster                   [0,1] [2,3] [4,5] [6,7]        [0,2,4,6] [1,3,5,7]
    spread                    [0,4] [1,5] [2,6] [3,7]        [0,1,2,3] [4,5,6,7]
"""

from dataclasses import dataclass

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError

STRATEGIES = ("cluster", "spread")


@dataclass(frozen=True)
class RankPlacement:
    """The partition and replica of one rank among `size` ranks."""

    rank: int
    size: int
    partitions: int
    strategy: str

    @property
    def replicas(self) -> int:
        """Number of replicas: full copies of the model."""
        return self.size // self.partitions

    @property
    def mp_rank(self) -> int:
        """The partition of this rank, which is its rank in its replica."""
        return self.partition_of(self.rank)

    @property
    def dp_rank(self) -> int:
        """The replica of this rank, which is its rank among those with the same partition."""
        return self.replica_of(self.rank)

    @property
    def mp_group(self) -> tuple[int, ...]:
        """The global ranks of this rank's replica, ordered by partition."""
        return tuple(self.rank_at(partition, self.dp_rank) for partition in range(self.partitions))

    @property
    def dp_group(self) -> tuple[int, ...]:
        """The global ranks that hold this rank's partition, ordered by replica."""
        return tuple(self.rank_at(self.mp_rank, replica) for replica in range(self.replicas))

    def partition_of(self, rank: int) -> int:
        """Return the partition that global rank `rank` holds.

        Args:
            rank: From 0.
        """
        return rank % self.partitions if self.strategy == "cluster" else rank // self.replicas

    def replica_of(self, rank: int) -> int:
        """Return the replica of global rank `rank`.

        Args:
            rank: From 0.
        """
        return rank // self.partitions if self.strategy == "cluster" else rank % self.replicas

    def rank_at(self, partition: int, replica: int) -> int:
        """Return the global rank that holds `partition` of `replica`.

        Args:
            partition: From 0.
            replica: From 0.
        """
        if self.strategy == "cluster":
            return replica * self.partitions + partition
        return partition * self.replicas + replica


def place(rank: int, *, size: int, partitions: int, strategy: str = "cluster") -> RankPlacement:
    """Return the placement of a rank.

    Raises:
        SMPConfigurationError: If the ranks cannot be divided into replicas of `partitions` ranks.
    """
    if strategy not in STRATEGIES:
        raise SMPConfigurationError(
            f"'placement_strategy' is {strategy!r}; allowed is one of " + ", ".join(map(repr, STRATEGIES))
        )
    if partitions < 1 or size % partitions:
        raise SMPConfigurationError(
            f"there are {size} ranks and 'partitions' is {partitions}; the number of ranks must be a multiple of it: "
            f"start {partitions} ranks (or 2 x {partitions}, ...), or set 'partitions' to a divisor of {size}"
        )
    return RankPlacement(rank, size, partitions, strategy)
