"""The search for hyperparameters: scales, grids, seeds, and whether a model finds better values than chance."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from random import Random
from statistics import median
from typing import Any

import numpy as np
import pytest

from tidemill.control.tuning.model import suggest
from tidemill.control.tuning.ranges import Categories, Range, ranges_of
from tidemill.control.tuning.search import (
    ModelProcess,
    grid_point,
    grid_points,
    model_task,
    random_point,
    texts_at,
)
from tidemill.core.training import JobStatus
from tidemill.core.tuning import TuningTrial


def numbers(name: str, low: float, high: float, scale: str = "Linear") -> dict[str, str]:
    return {"Name": name, "MinValue": str(low), "MaxValue": str(high), "ScalingType": scale}


def ranges(**kinds: Any) -> tuple[Range, ...]:
    return ranges_of({f"{kind}ParameterRanges": given for kind, given in kinds.items()})


def trial(number: int, hyperparameters: Mapping[str, str], value: float | None) -> TuningTrial:
    status = JobStatus.IN_PROGRESS if value is None else JobStatus.COMPLETED
    return TuningTrial(
        name=f"t-{number}", definition=0, hyperparameters=hyperparameters, created_ms=0, status=status, value=value
    )


@pytest.mark.parametrize(
    ("given", "middle"),
    [
        (numbers("x", 1e-4, 1.0, "Logarithmic"), 1e-2),
        (numbers("x", 1e-4, 1.0, "Auto"), 1e-2),
        (numbers("x", 0.1, 0.9, "Auto"), 0.5),
        (numbers("x", 0.0, 0.9999, "ReverseLogarithmic"), 0.99),
        (numbers("x", -3.0, 5.0, "Linear"), 1.0),
    ],
)
def test_half_of_a_range_of_numbers_is_below_the_middle_of_its_scale(given: Any, middle: float) -> None:
    (found,) = ranges(Continuous=[given])
    assert float(found.text(0.5)) == pytest.approx(middle)
    ends = [float(given["MinValue"]), float(given["MaxValue"])]
    assert [float(found.text(0)), float(found.text(1))] == pytest.approx(ends, rel=1e-12)
    assert ends[0] <= float(found.text(0)) and float(found.text(1)) <= ends[1]
    for coordinate in (0.0, 0.25, 0.5, 1.0):
        assert found.coordinate(found.text(coordinate)) == pytest.approx(coordinate)
    assert found.coordinate("7e9") is None and found.coordinate("adam") is None


def test_each_integer_has_an_equal_part_of_a_linear_range() -> None:
    (found,) = ranges(Integer=[numbers("n", 1, 4)])
    texts = [found.text(step / 1000) for step in range(1001)]
    assert {text: texts.count(text) for text in texts} == pytest.approx(dict.fromkeys("1234", 250), abs=2)
    for text in "1234":
        place = found.coordinate(text)
        assert place is not None and found.text(place) == text
    assert found.coordinate("2.5") is None and found.coordinate("5") is None


def test_an_auto_parameter_is_tuned_around_its_hint() -> None:
    given = [("lr", "0.01"), ("units", "64"), ("optimizer", '"adam"'), ("decay", "0")]
    found = {each.name: each for each in ranges_of({"AutoParameters": [{"Name": n, "ValueHint": h} for n, h in given]})}
    assert [float(found["lr"].text(at)) for at in (0, 0.5, 1)] == pytest.approx([0.001, 0.01, 0.1])
    assert (found["units"].text(0), found["units"].text(1)) == ("6", "640")
    assert found["optimizer"] == Categories("optimizer", ('"adam"',)) and found["decay"] == Categories("decay", ("0",))


def test_a_grid_has_every_combination_once() -> None:
    found = ranges(Categorical=[{"Name": "a", "Values": ["1", "2"]}, {"Name": "b", "Values": ["x", "y", "z"]}])
    points = [texts_at(found, grid_point(found, number)) for number in range(grid_points(found))]
    assert points == [{"a": a, "b": b} for a in "12" for b in "xyz"]


def test_random_points_repeat_with_their_seed_and_do_not_repeat_values() -> None:
    found = ranges(Integer=[numbers("n", 1, 3)], Categorical=[{"Name": "c", "Values": ["x", "y"]}])

    def draw() -> list[dict[str, str]]:
        tried: list[dict[str, str]] = []
        for number in range(6):
            tried.append(texts_at(found, random_point(found, Random(f"7 {number}"), tried=tried)))
        return tried

    tried = draw()
    assert tried == draw()
    assert len({tuple(each.items()) for each in tried}) == 6
    assert texts_at(found, random_point(found, Random("7 7"), tried=tried)) in tried, "there is no seventh"


def test_the_model_learns_only_from_trials_in_its_ranges_that_did_not_fail() -> None:
    found = ranges(Continuous=[numbers("x", 0, 1)])
    ignored = [
        trial(1, {"x": "3"}, 1.0),
        trial(2, {"y": "0.5"}, 1.0),
        TuningTrial(
            name="t-4", definition=0, hyperparameters={"x": "0"}, created_ms=0, status=JobStatus.FAILED, value=9.0
        ),
    ]
    running = trial(3, {"x": "0.5"}, None)
    ended = [trial(5 + number, {"x": f"0.{number}"}, 2.0 * number) for number in range(5)]
    assert model_task(found, [*ended[:4], running, *ignored], maximizes=True, seed=1) is None, "too few"
    task = model_task(found, [*ended, running, *ignored], maximizes=True, seed=1)
    assert task is not None
    assert task["points"] == [[0.0], [0.1], [0.2], [0.3], [0.4], [0.5]]
    assert task["values"] == [0, -2, -4, -6, -8, None]
    assert suggest(task) == suggest(task), "the program keeps nothing between tasks"


def test_a_killed_model_process_is_replaced_and_one_that_cannot_answer_is_an_error() -> None:
    task = {"choices": [0], "points": [], "values": [], "seed": 1}

    async def search() -> None:
        model = ModelProcess()
        first = await model.suggest(task)
        assert model._process is not None
        asking = asyncio.create_task(model.suggest(task))
        while not model._turn.locked():
            await asyncio.sleep(0)
        model._process.kill()
        assert await asking == first
        with pytest.raises(RuntimeError, match="2 processes ended without an answer"):
            await model.suggest({**task, "choices": None})
        assert await model.suggest(task) == first
        await model.close()

    asyncio.run(search())


def test_the_service_does_not_import_what_only_the_model_needs() -> None:
    program = "import sys, tidemill.server.run; print([name for name in ('optuna', 'numpy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- a model against chance -------------------------------------------------------------------------------------

Objective = Callable[[Mapping[str, str]], float]


def cube(count: int, low: float, high: float) -> tuple[Range, ...]:
    return ranges(Continuous=[numbers(f"x{number}", low, high) for number in range(count)])


def vector(given: Mapping[str, str]) -> np.ndarray:
    return np.array([float(given[name]) for name in sorted(given)])


def branin(given: Mapping[str, str]) -> float:
    x, y = vector(given) * 15 - [5, 0]
    bent = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def rosenbrock(given: Mapping[str, str]) -> float:
    x, y = vector(given)
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def ackley(given: Mapping[str, str]) -> float:
    x = vector(given)
    spread = -20 * math.exp(-0.2 * math.sqrt(float(np.mean(x * x))))
    return spread - math.exp(float(np.mean(np.cos(2 * math.pi * x)))) + 20 + math.e


def rastrigin(given: Mapping[str, str]) -> float:
    x = vector(given)
    return float(np.sum(10 + x * x - 10 * np.cos(2 * math.pi * x)))


def sphere(given: Mapping[str, str]) -> float:
    return float(np.sum((vector(given) - 0.3) ** 2))


FUNCTIONS: dict[str, tuple[tuple[Range, ...], Objective]] = {
    "sphere": (cube(4, 0, 1), sphere),
    "branin": (cube(2, 0, 1), branin),
    "rosenbrock": (cube(2, -2, 2), rosenbrock),
    "ackley": (cube(3, -4, 6), ackley),
    "rastrigin": (cube(3, -5, 5), rastrigin),
}


def spirals() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    turn = np.linspace(0.5, 2.5, 60)
    arm = np.stack([turn * np.cos(2 * turn), turn * np.sin(2 * turn)], axis=1)
    points = np.concatenate([arm, -arm]) + draw.normal(0, 0.1, (120, 2))
    return points, np.repeat([0.0, 1.0], 60)


def classifier(given: Mapping[str, str]) -> float:
    """Return the log loss of a network with a hidden layer on two spirals, after 60 steps of momentum."""
    points, labels = spirals()
    draw, units = np.random.default_rng(1), int(given["units"])
    w1, b1 = draw.normal(0, float(given["spread"]), (2, units)), np.zeros(units)
    w2, b2 = draw.normal(0, float(given["spread"]) / math.sqrt(units), units), 0.0
    speed = [0.0, 0.0, 0.0, 0.0]
    for _ in range(60):
        hidden = np.tanh(points @ w1 + b1)
        wrong = 1 / (1 + np.exp(-np.clip(hidden @ w2 + b2, -30, 30))) - labels
        back = np.outer(wrong, w2) * (1 - hidden**2) / len(labels)
        slopes = [points.T @ back, back.sum(0), hidden.T @ wrong / len(labels), wrong.mean()]
        speed = [0.9 * s - float(given["lr"]) * g for s, g in zip(speed, slopes, strict=True)]
        w1, b1, w2, b2 = w1 + speed[0], b1 + speed[1], w2 + speed[2], b2 + speed[3]
    logits = np.tanh(points @ w1 + b1) @ w2 + b2
    return float(np.mean(np.logaddexp(0, logits) - labels * logits))


def regressor(given: Mapping[str, str]) -> float:
    """Return the validation error of random features with ridge regression, for a noisy wave."""
    draw = np.random.default_rng(2)
    x = draw.uniform(-3, 3, (120, 1))
    y = np.sin(3 * x[:, 0]) + draw.normal(0, 0.1, 120)
    activation = {"tanh": np.tanh, "relu": lambda v: np.maximum(v, 0), "cos": np.cos}[given["activation"]]
    units = int(given["units"])
    features = activation(x @ draw.normal(0, float(given["width"]), (1, units)) + draw.uniform(-3, 3, units))
    train, held = features[:80], features[80:]
    weights = np.linalg.solve(train.T @ train + float(given["ridge"]) * np.eye(units), train.T @ y[:80])
    return float(np.mean((held @ weights - y[80:]) ** 2))


NETWORKS: dict[str, tuple[tuple[Range, ...], Objective]] = {
    "classifier": (
        ranges(
            Continuous=[numbers("lr", 1e-4, 10, "Auto"), numbers("spread", 1e-2, 10, "Logarithmic")],
            Integer=[numbers("units", 2, 32)],
        ),
        classifier,
    ),
    "regressor": (
        ranges(
            Continuous=[numbers("ridge", 1e-8, 10, "Logarithmic"), numbers("width", 1e-2, 100, "Logarithmic")],
            Integer=[numbers("units", 2, 64)],
            Categorical=[{"Name": "activation", "Values": ["tanh", "relu", "cos"]}],
        ),
        regressor,
    ),
}


def best_of(space: tuple[Range, ...], objective: Objective, *, seed: int, budget: int, models: bool) -> float:
    """Return the best value of a search, whose suggestions are those of the driver."""
    trials: list[TuningTrial] = []
    for number in range(budget):
        task = model_task(space, trials, maximizes=False, seed=seed * 1000 + number) if models else None
        point = suggest(task) if task else [*random_point(space, Random(f"{seed} {number}"))]
        texts = texts_at(space, point)
        trials.append(trial(number, texts, objective(texts)))
    return min(each.value for each in trials if each.value is not None)


def check_model_beats_chance(space: tuple[Range, ...], objective: Objective, *, seeds: int, budget: int) -> None:
    found = {
        models: median(best_of(space, objective, seed=seed, budget=budget, models=models) for seed in range(seeds))
        for models in (False, True)
    }
    assert found[True] < found[False]


@pytest.mark.parametrize("name", ["sphere", "branin"])
def test_a_model_finds_a_better_value_than_chance(name: str) -> None:
    check_model_beats_chance(*FUNCTIONS[name], seeds=7, budget=30)


@pytest.mark.matrix
@pytest.mark.parametrize("name", [*FUNCTIONS, *NETWORKS])
def test_a_model_finds_a_better_value_than_chance_in_the_median_of_20_seeds(name: str) -> None:
    check_model_beats_chance(*{**FUNCTIONS, **NETWORKS}[name], seeds=20, budget=40)
