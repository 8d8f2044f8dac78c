"""Decisions from paired times."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from tidemill_tensorflow.compiler.report import times
from tidemill_tensorflow.compiler.variants.trials import MAX_ROUNDS, MAX_SHORT_ROUNDS, MIN_ROUNDS, PLAIN, Times, Trial


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


def test_each_of_three_variants_has_every_position_and_none_follows_itself() -> None:
    trial = Trial((PLAIN, "xla", "fused"))
    order = []
    for _ in range(18):
        order.append(trial.next())
        trial.record(order[-1], Times(1.0, 1.0))
    assert all(one != other for one, other in itertools.pairwise(order))
    for position in range(3):
        assert Counter(order[position::3]) == {PLAIN: 2, "xla": 2, "fused": 2}


def test_on_a_busy_machine_cpu_time_decides_if_wall_times_only_vary() -> None:
    for cpu_factor, winner in ((0.7, "xla"), (1.3, PLAIN)):
        decisions = [run(1.0, noise=3.0, seed=seed, cpu_factor=cpu_factor)[0].decision for seed in range(100)]
        assert decisions.count(winner) >= 80


@pytest.mark.parametrize(
    ("factor", "noise", "rounds"), [(2.0, 0.1, MIN_ROUNDS), (2.0, 1.0, 12), (2.5, 3.0, MAX_ROUNDS)]
)
def test_on_a_busy_machine_a_variant_with_clearly_longer_wall_times_loses(
    factor: float, noise: float, rounds: int
) -> None:
    for seed in range(20):
        trial, steps = run(factor, noise=noise, seed=seed, cpu_factor=0.5)
        assert trial.decision == PLAIN
        assert steps <= 2 * (rounds + 1)


def test_a_clear_loser_runs_no_more_steps_while_the_others_are_compared() -> None:
    ended_late = 0
    for seed in range(20):
        steps = {PLAIN: 0, "slow": 0, "near": 0}
        generator = random.Random(seed)
        trial = Trial(tuple(steps))
        while trial.decision is None:
            name = trial.next()
            steps[name] += 1
            seconds = {PLAIN: 1.0, "slow": 3.0, "near": 0.97}[name] * (1.0 + 0.1 * generator.random())
            trial.record(name, Times(seconds, seconds))
        assert trial.decision in (PLAIN, "near")
        assert steps["slow"] == MIN_ROUNDS + 1
        assert steps[PLAIN] == steps["near"] >= steps["slow"]
        ended_late += steps["near"] > steps["slow"]
    assert ended_late >= 10


def test_the_fastest_of_several_variants_wins() -> None:
    trial = Trial((PLAIN, "one", "two"))
    while trial.decision is None:
        seconds = {PLAIN: 1.0, "one": 0.9, "two": 0.7}[trial.next()]
        trial.record(trial.next(), Times(seconds, seconds))
    assert trial.decision == "two"


def test_short_steps_have_more_rounds() -> None:
    for plain_s, rounds in ((0.001, MAX_SHORT_ROUNDS), (1.0, MAX_ROUNDS)):
        trial = Trial((PLAIN, "xla"))
        steps = 0
        while trial.decision is None:
            # Means of 1.0 and 0.95 with rounds of different signs never decide early.
            factor = 1.0 if trial.next() == PLAIN else (0.5, 1.4)[steps // 2 % 2]
            trial.record(trial.next(), Times(plain_s * factor, plain_s * factor))
            steps += 1
        assert steps == 2 * (rounds + 1)


def test_the_medians_have_the_order_of_the_variants() -> None:
    trial = Trial((PLAIN, "fused", "xla"))
    while trial.decision is None:
        trial.record(trial.next(), Times(1.0, 1.0))
    assert list(trial.medians_s()) == [PLAIN, "fused", "xla"]


def test_the_log_names_the_times_that_decided() -> None:
    walls, busy = run(0.8, noise=0.01, seed=1)[0], run(0.8, noise=0.01, seed=1, cpu_factor=0.5)[0]
    assert times(walls).startswith("plain 1004.") and "xla 80" in times(walls)
    assert times(busy).startswith("plain 10") and times(busy).endswith(" ms; CPU times, because the machine was busy")
    assert "xla 50" in times(busy), "its wall times are near 800"
    assert times(walls, runs=2, names=("1", "8")).startswith("1 502.")
    assert times(Trial((PLAIN, "xla"), decision="xla")) == "as rank 0 decided"


def run(factor: float, *, noise: float, seed: int, cpu_factor: float | None = None) -> tuple[Trial, int]:
    """Run a trial of steps whose wall times vary; with `cpu_factor`, on a busy machine, where CPU times do not."""
    generator = random.Random(seed)
    trial = Trial((PLAIN, "xla"), is_busy=lambda: cpu_factor is not None)
    steps = 0
    while trial.decision is None:
        is_xla = trial.next() == "xla"
        wall_s = (factor if is_xla else 1.0) * (1.0 + noise * generator.random())
        cpu_s = wall_s if cpu_factor is None else (cpu_factor if is_xla else 1.0) * (1.0 + 0.05 * generator.random())
        trial.record("xla" if is_xla else PLAIN, Times(wall_s, cpu_s))
        steps += 1
    return trial, steps
