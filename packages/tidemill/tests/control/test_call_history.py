"""The requests to endpoints over time, in memory that does not grow with them."""

import pytest

from tidemill.control.endpoints.call_history import PERIOD_MS, CallHistory
from tidemill.services.cloudwatch.statistics import CountedPoint, Window

HOUR_MS = 3600 * 1000


class SetClock:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.ms = 100 * HOUR_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def test_a_latency_is_kept_with_an_error_of_a_fortieth(clock: SetClock) -> None:
    history = CallHistory(clock)
    for duration_s in (0.0, 0.000_2, 0.013, 1.0, 59.0):
        history.note("digits", "A", status=200, duration_s=duration_s)
    (period,) = history.periods("digits", "A", start_ms=0, end_ms=clock.ms + 1)
    shown = [latency_s for latency_s, _ in period.latencies_s()]
    assert shown == pytest.approx([1e-6, 0.000_2, 0.013, 1.0, 59.0], rel=0.025)


def test_many_requests_take_the_room_of_a_few_classes(clock: SetClock) -> None:
    history = CallHistory(clock)
    for number in range(1000):
        history.note("digits", "A", status=200 if number % 4 else 0, duration_s=number / 1000)
    (period,) = history.periods("digits", "A", start_ms=0, end_ms=clock.ms + 1)
    assert (period.calls, period.unanswered) == (1000, 250)
    assert len(list(period.latencies_s())) < 200


def test_only_the_last_six_hours_and_twenty_thousand_periods_are_kept(clock: SetClock) -> None:
    history = CallHistory(clock)
    for variant in range(20_100):
        history.note("many", str(variant), status=200, duration_s=0.1)
    assert len(history.variants()) == 20_000
    clock.ms += 7 * HOUR_MS
    history.note("digits", "A", status=200, duration_s=0.1)
    clock.ms += PERIOD_MS
    history.note("digits", "A", status=500, duration_s=0.1)
    assert history.variants() == [("digits", "A")]
    begun = [period.begin_ms for period in history.periods("digits", "A", start_ms=0, end_ms=clock.ms + 1)]
    assert begun == [clock.ms - PERIOD_MS, clock.ms]
    history.forget("digits")
    assert history.variants() == []


def test_percentiles_of_counted_values_are_those_of_the_values_written_out(clock: SetClock) -> None:
    counted = [(3.0, 5), (1.0, 2), (8.0, 1), (2.0, 7)]
    window = Window(start_ms=0, end_ms=1000, period_ms=1000)
    ((_, by_count),) = window.grouped([CountedPoint(0, value, count) for value, count in counted])
    ((_, written_out),) = window.grouped([(0, value) for value, count in counted for _ in range(count)])
    for fraction in (0, 0.1, 0.25, 0.5, 0.77, 0.9, 0.99, 1):
        assert by_count.percentile(fraction) == written_out.percentile(fraction)
    assert (len(by_count), by_count.sum) == (len(written_out), written_out.sum)
