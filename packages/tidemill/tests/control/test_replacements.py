"""The time until a dead instance is replaced, and until replacements are given up."""

from tidemill.control.endpoints.replacements import Replacements
from tidemill.core.hosting import Instance


class SetClock:
    def __init__(self) -> None:
        self.s = 1000.0

    def now_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic_s(self) -> float:
        return self.s


def instance(clock: SetClock, *, ready: bool = False) -> Instance:
    return Instance(job_id="aa", log_stream="v/aa", created_ms=clock.now_ms(), ready=ready)


def test_the_first_is_replaced_at_once_and_the_next_after_pauses_that_grow() -> None:
    clock = SetClock()
    replacements, pauses = Replacements(clock), []
    for _ in range(9):
        replacements.died("e", instance(clock))
        began = clock.s
        while not replacements.due("e"):
            clock.s += 0.5
        pauses.append(clock.s - began)
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]


def test_an_endpoint_fails_after_five_consecutive_deaths() -> None:
    clock = SetClock()
    replacements = Replacements(clock)
    assert [replacements.died("e", instance(clock)) for _ in range(5)] == [True, True, True, True, False]
    assert replacements.died("other", instance(clock))


def test_an_instance_that_has_served_for_a_minute_begins_a_new_row() -> None:
    clock = SetClock()
    replacements = Replacements(clock)
    for _ in range(4):
        replacements.died("e", instance(clock))
    served = instance(clock, ready=True)
    clock.s += 61
    assert replacements.died("e", served)
    assert replacements.due("e")


def test_the_time_without_an_answer_counts_from_the_last_one() -> None:
    clock = SetClock()
    replacements, asked = Replacements(clock), instance(clock)
    assert replacements.ping_due(asked, every_s=5)
    assert not replacements.ping_due(asked, every_s=5)
    assert replacements.silent_s(asked, answers=False) == 0
    clock.s += 50
    assert replacements.ping_due(asked, every_s=5)
    assert replacements.silent_s(asked, answers=False) == 50
    assert replacements.silent_s(asked, answers=True) == 0
