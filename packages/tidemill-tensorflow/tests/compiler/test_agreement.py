"""Agreement between processes, tested with threads: all meet at the same calls, whatever their own state is."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.compiler.several.agreement import EVERY, MAX_BALLOTS, Agreement, Ballot

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


reports = st.lists(
    st.tuples(st.sampled_from(("prepared", "compiled", "failed", "chooses", "loses", "due")), st.integers(0, 1)),
    max_size=3,
)
"""What becomes of a process's functions between two meetings: an event, and the function that it concerns."""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(reports, reports, reports), min_size=1, max_size=8), st.sampled_from(VARIANTS))
def test_whatever_happens_on_each_rank_all_know_the_same_after_each_meeting(
    happening: list[tuple[list[tuple[str, int]], ...]], chosen: str
) -> None:
    def work(agreement: Agreement) -> Any:
        ballots = [ballot for ballot in (agreement.join(), agreement.join()) if ballot is not None]
        seen = []
        for meeting in happening:
            for event, index in meeting[agreement.group.rank]:
                happen(ballots[index], event, chosen)
            advance(agreement)
            able = [ballot.is_compiled and not ballot.is_failed for ballot in ballots]
            known = [(each.begins, each.all_prepared, each.dropped, each.decision, each.is_refused) for each in ballots]
            seen.append((agreement.meetings, known, able))
        return seen

    for at_meeting in zip(*ranks(work), strict=True):
        meetings, known, able = zip(*at_meeting, strict=True)
        assert len(set(meetings)) == 1, "a rank that meets alone waits forever"
        assert known[0] == known[1] == known[2], "no rank may switch alone"
        for index, (_, all_prepared, _, decision, _) in enumerate(known[0]):
            if decision == "xla":
                assert all_prepared and all(each[index] for each in able), "each rank can run what was chosen"


def happen(ballot: Ballot, event: str, chosen: str) -> None:
    """Change what a process reports, in an order in which a step may do it."""
    if event == "prepared":
        ballot.fingerprint = "step"
    elif event == "compiled":
        ballot.is_compiled = bool(ballot.fingerprint) and not ballot.is_failed
    elif event == "failed":
        ballot.is_failed = ballot.is_failed or (ballot.decision is None and not ballot.is_compiled)
    elif event == "chooses":
        ballot.choice = chosen
    elif event == "loses":
        ballot.lost = frozenset({"xla"})
    else:
        ballot.is_due = True


def test_ranks_with_different_functions_decide_that_while_another_function_is_open() -> None:
    def work(agreement: Agreement) -> Any:
        different, other = agreement.join(), agreement.join()
        assert different is not None and other is not None
        different.fingerprint, different.is_compiled = f"step {agreement.group.rank}", True
        different.choice = "xla"
        advance(agreement)
        early = different.decision
        advance(agreement)
        return early, different.decision, different.is_refused, other.decision

    assert ranks(work) == [(None, "plain", True, None)] * 3


def test_a_function_that_only_some_ranks_have_begun_keeps_all_meeting() -> None:
    def work(agreement: Agreement) -> Any:
        first = agreement.join()
        assert first is not None
        first.fingerprint, first.is_compiled, first.choice = "first", True, "xla"
        second = agreement.join() if agreement.group.rank == 1 else None
        advance(agreement)
        second = second or agreement.join()
        assert second is not None
        second.fingerprint, second.is_compiled, second.choice = "second", True, "xla"
        advance(agreement)
        return first.decision, second.decision, agreement.meetings

    assert ranks(work) == [("xla", "xla", 2)] * 3


def test_after_the_last_call_all_ranks_give_up_what_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill_tensorflow.compiler.several.agreement.MAX_CALLS", 3 * EVERY)

    def work(agreement: Agreement) -> Any:
        ballot = agreement.join()
        assert ballot is not None
        advance(agreement, 2 * EVERY)
        ballot.fingerprint = "step" if agreement.group.rank == 0 else ""
        advance(agreement, 10 * EVERY)
        return ballot.decision, ballot.is_refused, agreement.meetings, agreement.join()

    assert ranks(work) == [("plain", True, 6, None)] * 3
