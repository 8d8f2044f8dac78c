"""Times at which the launcher ends the remaining ranks after a rank failure, measured with a fake clock."""

import signal
from unittest import mock

import pytest

from smdistributed.modelparallel.tensorflow import run

pytestmark = pytest.mark.smp_saved


class Clock:
    """A clock that the test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def signals(clock: Clock, spoken: dict[int, float], ranks: set[int]) -> dict[int, list[tuple[str, float]]]:
    """Return the signals and their delays after the failure, for ranks that report at `spoken` and never exit."""
    begun_s, got = clock.now_s, {rank: [] for rank in ranks}
    with mock.patch.object(run.time, "monotonic", clock):
        ending = run._Ending(lambda rank: clock.now_s - begun_s >= spoken.get(rank, 1000.0))
        while clock.now_s < begun_s + 20.0:
            for rank, number in ending.due(ranks):
                got[rank].append((signal.Signals(number).name, clock.now_s - begun_s))
                assert ending.has_signaled(rank)
            clock.now_s += 0.5
    return got


def test_a_rank_without_a_report_gets_five_seconds_and_two_after_sigterm(clock: Clock) -> None:
    assert signals(clock, {}, {0}) == {0: [("SIGTERM", 5.0), ("SIGKILL", 7.0)]}


def test_a_rank_that_has_reported_the_loss_gets_two_seconds_to_exit(clock: Clock) -> None:
    got = signals(clock, {0: 0.5, 2: 4.5}, {0, 1, 2})
    assert got[0] == [("SIGTERM", 2.5), ("SIGKILL", 4.5)]
    assert got[1] == got[2] == [("SIGTERM", 5.0), ("SIGKILL", 7.0)], "speaking late does not put the end off"


def test_ranks_that_have_exited_get_no_signal(clock: Clock) -> None:
    assert signals(clock, {}, set()) == {}
