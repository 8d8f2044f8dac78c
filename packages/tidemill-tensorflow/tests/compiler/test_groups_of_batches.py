"""How `fit`'s steps become groups: each batch is trained once and in order, whatever was chosen and whoever trains."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill_tensorflow.compiler.several.keras_batches import COUNT, KerasBatches
from tidemill_tensorflow.compiler.variants.shapes import AT_ONCE, MAX_STEP_S
from tidemill_tensorflow.compiler.variants.trials import PLAIN, Times, Trial


class Session:
    """What the groups ask of the compiler's session."""

    def __init__(self, stored: str | None = None) -> None:
        self.stored = stored
        self.is_compiling = self.is_deterministic = False
        self.noted: list[str] = []

    def stored_decision(self, key: str) -> str | None:
        assert key.endswith(f" {COUNT} at once")
        return self.stored

    def note_batches(self, step: Any, key: str) -> None:
        self.noted.append(step.at_once.decision)


class Step:
    """A step of `fit`, whose shape has its variant, and the grouping of its runs."""

    def __init__(self, *, prepared: bool = True, pays: bool = True, step_s: float = 0.001) -> None:
        shape = SimpleNamespace(key="step", trial=object(), decision="xla", step_s=step_s)
        self.at_once: Trial | None = None
        self.reason: str | None = None
        self.promised: list[int] = []
        self.account = SimpleNamespace(promise=self.promised.append, may_group=lambda: pays)
        self.main_shape = lambda: shape
        self.step, self.is_prepared, self.ends = self, False, 0
        self.prepare = lambda count: prepared

    def raise_end(self) -> None:
        self.ends += 1


def epoch(batches: KerasBatches, step: Step | None, number: int) -> tuple[list[int], list[int]]:
    """Run an epoch of `fit`. Return the trained batches, and how many each call was asked for.

    Args:
        step: Reads how many runs are wanted; None if the function that trains is no step of the compiler.
    """
    data, trained, asked = iter(range(number)), [], []
    for _ in batches._grouped(iter(range(number)), lambda group: group[0]):
        runs = 1 if step is None else batches.runs_wanted(step)  # type: ignore[arg-type]
        asked.append(runs)
        trained += [next(data) for _ in range(runs)]
    return trained, asked


@given(st.lists(st.integers(0, 40), max_size=6), st.sampled_from([None, PLAIN, AT_ONCE]), st.booleans(), st.booleans())
def test_each_batch_of_each_epoch_is_trained_once_and_in_order(
    epochs: list[int], stored: str | None, prepared: bool, reads: bool
) -> None:
    batches = KerasBatches(Session(stored))  # type: ignore[arg-type]
    step = Step(prepared=prepared)
    for number in epochs:
        assert epoch(batches, step if reads else None, number)[0] == list(range(number))
        assert batches.wanted == 1, "what one epoch asks for must not reach the next one"


def test_a_stored_choice_is_used_from_the_second_call_on_and_remainders_are_single() -> None:
    batches = KerasBatches(Session(AT_ONCE))  # type: ignore[arg-type]
    assert epoch(batches, Step(), 2 * COUNT + 4)[1] == [1, COUNT, COUNT, 1, 1, 1]
    assert epoch(batches, Step(), COUNT)[1] == [COUNT]
    assert epoch(KerasBatches(Session(PLAIN)), Step(), COUNT)[1] == [1] * COUNT  # type: ignore[arg-type]


def test_without_a_choice_both_are_timed_and_the_faster_one_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("time.process_time", lambda: now[0])
    for price, chosen in ((0.5, AT_ONCE), (2.0, PLAIN)):
        session, step = Session(), Step()
        batches = KerasBatches(session)  # type: ignore[arg-type]
        for _ in batches._grouped(iter(range(100 * COUNT)), lambda group: group[0]):
            runs = batches.runs_wanted(step)  # type: ignore[arg-type]
            now[0] += COUNT * price if runs == COUNT else 1.0
        assert session.noted == [chosen]
        assert step.at_once is not None and step.at_once.times.keys() == {PLAIN, AT_ONCE}


@pytest.mark.parametrize(
    "step",
    [Step(prepared=False), Step(pays=False), Step(step_s=2 * MAX_STEP_S)],
    ids=["nothing is compiled yet", "it does not pay", "the steps are long"],
)
def test_a_step_that_is_not_ready_runs_single_batches_and_has_no_trial(step: Step) -> None:
    assert epoch(KerasBatches(Session()), step, 3 * COUNT)[1] == [1] * 3 * COUNT  # type: ignore[arg-type]
    assert step.at_once is None


def test_a_step_that_runs_plain_for_a_reason_is_not_grouped() -> None:
    step = Step()
    step.at_once, step.reason = Trial((PLAIN, AT_ONCE), decision=AT_ONCE), "XLA failed"
    assert epoch(KerasBatches(Session()), step, 2 * COUNT)[1] == [1] * 2 * COUNT  # type: ignore[arg-type]


def test_a_deterministic_run_times_nothing() -> None:
    session, step = Session(), Step()
    session.is_deterministic = True
    assert epoch(KerasBatches(session), step, 2 * COUNT)[1] == [1] * 2 * COUNT  # type: ignore[arg-type]
    assert step.at_once is not None and step.at_once.decision == PLAIN and not session.noted


def test_nothing_is_timed_while_the_compiler_works() -> None:
    session, step = Session(), Step()
    session.is_compiling = True
    epoch(KerasBatches(session), step, 4 * COUNT)  # type: ignore[arg-type]
    assert step.at_once is not None and step.at_once.times == {}
    step.at_once.record(PLAIN, Times(1.0, 1.0))
    assert step.at_once.times == {}


def test_a_call_that_failed_before_its_step_asks_the_next_fit_for_nothing() -> None:
    batches = KerasBatches(Session(AT_ONCE))  # type: ignore[arg-type]
    step = Step()
    epoch(batches, step, 2)
    abandoned = batches._grouped(iter(range(COUNT)), lambda group: group[0])
    next(abandoned)
    assert batches.wanted == COUNT, "the script interrupts `fit` here, and keeps the error with its frames"
    batches._promise(None, None)  # the next epoch, of any `fit`
    assert batches.runs_wanted(step) == 1  # type: ignore[arg-type]


def test_a_promise_reaches_the_step_of_the_next_call_once() -> None:
    batches, step = KerasBatches(Session()), Step()  # type: ignore[arg-type]
    fit = {"epoch": 2, "epochs": 5, "callbacks": SimpleNamespace(callbacks=[])}
    batches._promise(fit, 20)
    assert [batches.runs_wanted(step) for _ in range(2)] == [1, 1]  # type: ignore[arg-type]
    for unknown in (None, 0):
        batches._promise(fit, unknown)
        batches.runs_wanted(step)  # type: ignore[arg-type]
    assert step.promised == [60, 0, 0]
