"""Decisions from paired times."""

import random

import pytest

from tidemill_tensorflow.compiler.trials import MAX_ROUNDS, PLAIN, Times, Trial


@pytest.mark.parametrize(
    ("factor", "noise", "winner"),
    [(0.5, 0.1, "xla"), (0.9, 0.02, "xla"), (1.0, 0.05, PLAIN), (1.2, 0.05, PLAIN), (5.0, 0.5, PLAIN)],
)
def test_the_faster_variant_wins_and_a_tie_goes_to_plain(factor: float, noise: float, winner: str) -> None:
    for seed in range(20):
        trial, steps = run(factor, noise=noise, seed=seed)
        assert trial.decision == winner
        assert steps <= 2 * (MAX_ROUNDS + 1)


def test_on_a_noisy_machine_a_tie_rarely_goes_to_the_compiled_step() -> None:
    wins = [run(1.0, noise=1.0, seed=seed)[0].decision for seed in range(200)].count("xla")
    assert wins <= 40


def test_clear_differences_are_decided_soon() -> None:
    assert run(0.5, noise=0.01, seed=1)[1] == run(2.0, noise=0.01, seed=1)[1] == 14


def test_the_variants_take_turns_and_one_slow_step_decides_nothing() -> None:
    trial = Trial((PLAIN, "xla"))
    order = []
    while trial.decision is None:
        variant = trial.next()
        order.append(variant)
        slow = len(order) == 7
        seconds = 30.0 if slow else {PLAIN: 1.0, "xla": 0.8}[variant]
        trial.record(variant, Times(seconds, seconds))
    assert order[:4] in ([PLAIN, "xla", "xla", PLAIN], ["xla", PLAIN, PLAIN, "xla"])
    assert trial.decision == "xla"


def test_on_a_busy_machine_cpu_time_decides() -> None:
    trial = Trial((PLAIN, "xla"), is_busy=lambda: True)
    while trial.decision is None:
        variant = trial.next()
        trial.record(variant, Times(1.0 if variant == PLAIN else 3.0, 1.0 if variant == PLAIN else 0.5))
    assert trial.decision == "xla"


def run(factor: float, *, noise: float, seed: int) -> tuple[Trial, int]:
    generator = random.Random(seed)
    trial = Trial((PLAIN, "xla"))
    steps = 0
    while trial.decision is None:
        variant = trial.next()
        seconds = (factor if variant == "xla" else 1.0) * (1.0 + noise * generator.random())
        trial.record(variant, Times(seconds, seconds))
        steps += 1
    return trial, steps
