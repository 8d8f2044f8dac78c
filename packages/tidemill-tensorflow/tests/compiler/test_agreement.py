"""Agreement between processes, tested with threads: all meet at the same calls, whatever their own state is."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tidemill_tensorflow.compiler.several.agreement import EVERY, MAX_BALLOTS, Agreement

VARIANTS = ("plain", "xla")


class Threads:
    """Group whose ranks are threads. Each thread has one of these objects."""

    def __init__(self, rank: int, size: int, shared: dict[str, Any]) -> None:
        self.rank = rank
        self.size = size
        self._shared = shared

    def sum(self, values: Sequence[int]) -> list[int]:
        self._shared["values"][self.rank] = list(values)
        self._shared["barrier"].wait(timeout=20)
        sums = [sum(column) for column in zip(*self._shared["values"].values(), strict=True)]
        self._shared["barrier"].wait(timeout=20)
        return sums


def ranks(work: Callable[[Agreement], Any], size: int = 3) -> list[Any]:
    """Run the same work on each rank. If a rank meets alone, the barrier breaks for all ranks."""
    shared = {"values": {}, "barrier": threading.Barrier(size)}
    found: list[Any] = [None] * size

    def run(rank: int) -> None:
        found[rank] = work(Agreement(Threads(rank, size, shared), VARIANTS))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def advance(agreement: Agreement, calls: int = EVERY) -> None:
    for _ in range(calls):
        agreement.advance()


@pytest.mark.parametrize("choice", VARIANTS)
def test_the_choice_of_rank_0_holds_for_all_at_the_same_call(choice: str) -> None:
    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        advance(agreement)
        ballot.fingerprint = "step"
        advance(agreement)
        assert ballot.all_prepared and not ballot.all_compiled
        ballot.is_compiled = True
        ballot.choice = choice if agreement.group.rank == 0 else "xla"
        advance(agreement, EVERY - 1)
        before = ballot.decision
        advance(agreement, 1)
        advance(agreement, 10 * EVERY)
        return before, ballot.decision, ballot.is_refused, agreement.meetings

    assert ranks(work) == [(None, choice, False, 3)] * 3


def test_xla_waits_until_the_last_rank_has_compiled() -> None:
    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        ballot.fingerprint, ballot.choice = "step", "xla"
        ballot.is_compiled = agreement.group.rank != 2
        advance(agreement)
        early = ballot.decision
        ballot.is_compiled = True
        advance(agreement)
        return early, ballot.decision

    assert ranks(work) == [(None, "xla")] * 3


def test_one_rank_that_cannot_compile_makes_all_run_plain() -> None:
    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        ballot.is_failed = agreement.group.rank == 1
        ballot.fingerprint = "" if ballot.is_failed else "step"
        advance(agreement, 5 * EVERY)
        return ballot.decision, ballot.is_refused, agreement.meetings

    assert ranks(work) == [("plain", True, 1)] * 3


def test_ranks_with_different_functions_run_plain() -> None:
    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        ballot.fingerprint, ballot.is_compiled, ballot.choice = f"step {agreement.group.rank // 2}", True, None
        advance(agreement, 5 * EVERY)
        return ballot.decision, ballot.is_refused

    assert ranks(work) == [("plain", True)] * 3


def test_functions_that_come_late_or_too_many_have_no_ballot() -> None:
    def work(agreement: Agreement) -> Any:
        ballots = [agreement.join() for _ in range(MAX_BALLOTS + 1)]
        for ballot in ballots[:MAX_BALLOTS]:
            assert ballot is not None
            ballot.is_failed = True
        advance(agreement)
        return ballots[-1], agreement.join()

    assert ranks(work) == [(None, None)] * 3


def test_variants_that_are_too_slow_for_rank_0_are_dropped_by_all() -> None:
    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        ballot.fingerprint, ballot.is_compiled = "step", True
        ballot.lost = frozenset({"xla"} if agreement.group.rank == 0 else {"plain"})
        advance(agreement, EVERY - 1)
        before = ballot.dropped
        advance(agreement, 1)
        return before, ballot.dropped, ballot.decision

    assert ranks(work) == [(frozenset(), frozenset({"xla"}), None)] * 3


def test_all_ranks_begin_when_compiling_pays_on_rank_0() -> None:
    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        ballot.is_due = agreement.group.rank == 2
        advance(agreement, 2 * EVERY)
        early = ballot.begins
        ballot.is_due = agreement.group.rank == 0
        advance(agreement)
        return early, ballot.begins

    assert ranks(work) == [(False, True)] * 3


def test_a_function_that_begins_later_keeps_its_ballot_when_another_one_is_decided() -> None:
    def work(agreement: Agreement) -> Any:
        first, second = agreement.join(), agreement.join()
        assert first is not None and second is not None
        first.fingerprint, first.is_compiled, first.choice = "first", True, "xla"
        advance(agreement, 2 * EVERY)
        early = first.decision, second.decision
        second.fingerprint, second.is_compiled, second.choice = "second", True, "xla"
        advance(agreement)
        return early, second.decision, second.is_refused

    assert ranks(work) == [(("xla", None), "xla", False)] * 3
