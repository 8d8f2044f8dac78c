"""Reports of many agents, by a simulated clock: they spread after a stall, and stay as rare as they are."""

import heapq
import random
from collections import Counter

from tidemill.core.instances import InstanceRef
from tidemill.executors.cluster.report_times import wait_of_report_s

PERIOD_S = 10.0
INSTANCES = 2000


def simulate(begin_s: float, seconds: float, *, agents_s: float) -> list[float]:
    """Return the times of the reports of agents that all report at the same moment.

    Args:
        agents_s: Longest time that an agent takes from an answer to its next report.
    """
    chance = random.Random(0)
    refs = [InstanceRef(f"{number:032x}", 0) for number in range(INSTANCES)]
    due = [(begin_s, number) for number in range(INSTANCES)]
    times = []
    while due[0][0] < begin_s + seconds:
        now_s, number = heapq.heappop(due)
        times.append(now_s)
        wait_s = wait_of_report_s(refs[number], now_s=now_s, period_s=PERIOD_S)
        assert 0 < wait_s <= PERIOD_S
        fires_s = now_s + max(0.0, wait_s + chance.uniform(-0.001, 0.001))
        heapq.heappush(due, (fires_s + chance.uniform(0, agents_s), number))
    return times


def test_reports_that_come_together_are_spread_evenly_within_a_period() -> None:
    times = simulate(1234.5, 3 * PERIOD_S, agents_s=0.005)
    later = Counter(int((each - 1234.5) * 10) for each in times if each >= 1234.5 + 2 * PERIOD_S)
    fair = INSTANCES / (PERIOD_S * 10)
    assert max(later.values()) < 2.5 * fair
    assert len(later) == PERIOD_S * 10


def test_an_instance_reports_once_in_each_period() -> None:
    periods = 50
    times = simulate(1234.5, periods * PERIOD_S, agents_s=0.005)
    assert INSTANCES * (periods - 1) <= len(times) <= INSTANCES * (periods + 2)


def test_an_agent_that_allows_no_wait_is_answered_at_once() -> None:
    assert wait_of_report_s(InstanceRef("ab", 0), now_s=5.0, period_s=0) == 0
