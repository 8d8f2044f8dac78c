"""Any graph of layers with any placement trains like the plain model."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import parity
import programs

pytestmark = pytest.mark.smp_long

CASES = st.tuples(programs.programs(), st.sampled_from([2, 3]), st.sampled_from([1, 2, 4]), st.booleans())
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    # Without shrinking: each example trains two models, and shrinking would take an hour.
    "phases": [Phase.generate],
}


@settings(max_examples=6, **COMMON)
@given(CASES)
def test_placed_by_hand(case: tuple[programs.Program, int, int, bool]) -> None:
    check(case)


@settings(max_examples=3, **COMMON)
@given(CASES)
def test_placed_by_the_library(case: tuple[programs.Program, int, int, bool]) -> None:
    check(case, auto_partition=True)


@pytest.mark.matrix
@settings(max_examples=150, **COMMON)
@given(CASES, st.booleans())
def test_many_models_placed_by_hand_or_by_the_library(
    case: tuple[programs.Program, int, int, bool], by_library: bool
) -> None:
    check(case, auto_partition=by_library)


def test_a_revisited_layer_updates_its_statistics_in_another_order_and_all_else_is_equal() -> None:
    program = programs.Program(
        (
            programs.Instruction("batch normalize", (1, 1), 1),
            programs.Instruction("dense", (1, 1), 0),
            programs.Instruction("batch normalize", (1, 1), 1),
            programs.Instruction("again", (2, 2), 0),
        ),
        1,
    )
    (losses, plain), (_, others) = parity.compare(program, 2, 2, "simple", steps=4)
    (plain_losses, first), (_, second) = plain["keras"], others["keras"]
    assert losses == pytest.approx(plain_losses, rel=parity.TOLERANCE)
    gaps = sorted((first | second).values())
    assert gaps[-3] <= parity.TOLERANCE < gaps[-2], "a mean and a variance"
    assert gaps[-1] < 0.1


def check(case: tuple[programs.Program, int, int, bool], **config: bool) -> None:
    """Train for a few steps in partitions and as a plain model."""
    program, partitions, microbatches, is_interleaved = case
    pipeline = "interleaved" if is_interleaved else "simple"
    parity.check(program, partitions, microbatches, pipeline, steps=4, **config)
