"""Placement of partitions and replicas on ranks, for all sizes."""

import itertools

import pytest

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow.placement import STRATEGIES, place

pytestmark = pytest.mark.smp_first

ALL = [
    (size, partitions, strategy)
    for size, strategy in itertools.product(range(1, 33), STRATEGIES)
    for partitions in range(1, size + 1)
    if size % partitions == 0
]


@pytest.mark.parametrize(("strategy", "mp", "dp"), [
    ("cluster", [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ("spread", [[0, 4], [1, 5], [2, 6], [3, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]]),
])  # fmt: skip
def test_the_groups_of_eight_ranks_and_two_partitions_are_as_documented(strategy, mp, dp):
    places = [place(rank, size=8, partitions=2, strategy=strategy) for rank in range(8)]
    assert [list(group) for group in sorted({one.mp_group for one in places})] == mp
    assert [list(group) for group in sorted({one.dp_group for one in places})] == dp


def test_the_documented_ranks_of_spread():
    assert place(6, size=8, partitions=2, strategy="spread").dp_rank == 2
    places = [place(rank, size=8, partitions=4, strategy="spread") for rank in range(8)]
    assert {one.mp_group for one in places} == {(0, 2, 4, 6), (1, 3, 5, 7)}


@pytest.mark.parametrize(("size", "partitions", "strategy"), ALL)
def test_every_rank_has_one_place_and_its_groups_agree(size, partitions, strategy):
    places = [place(rank, size=size, partitions=partitions, strategy=strategy) for rank in range(size)]
    replicas = size // partitions
    assert {(one.mp_rank, one.dp_rank) for one in places} == set(itertools.product(range(partitions), range(replicas)))
    for one in places:
        assert len(one.mp_group) == partitions and len(one.dp_group) == replicas == one.replicas
        assert one.mp_group[one.mp_rank] == one.rank == one.dp_group[one.dp_rank]
        assert one.rank_at(one.mp_rank, one.dp_rank) == one.rank
        assert all(places[other].mp_group == one.mp_group for other in one.mp_group)
        assert all(places[other].dp_group == one.dp_group for other in one.dp_group)
        neighbor = (one.mp_rank if strategy == "cluster" else one.dp_rank) + 1
        if neighbor < (partitions if strategy == "cluster" else replicas):
            group = one.mp_group if strategy == "cluster" else one.dp_group
            assert group[neighbor] == one.rank + 1  # the rightmost letter varies fastest


def test_ranks_that_make_no_whole_replicas_are_refused():
    with pytest.raises(SMPConfigurationError, match="there are 3 ranks and 'partitions' is 2"):
        place(0, size=3, partitions=2)
    with pytest.raises(SMPConfigurationError, match="there are 1 ranks and 'partitions' is 2"):
        place(0, size=1, partitions=2)
