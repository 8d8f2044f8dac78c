"""Suggest the next point by a model of the objectives so far (optuna's TPE). This runs as a separate program:

    python -m tidemill.control.tuning.model < TASKS > ANSWERS

A service without Bayesian tuning never imports optuna and NumPy. TASKS are JSON objects, one per line: ``choices`` of
each dimension (0 for a number from 0 to 1); ``points`` tried, and their ``values``, lower ones better, null while a
trial runs; and ``seed``. Each ANSWER is a list of coordinates. The program keeps nothing between tasks, and ends with
its input.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial


def main() -> None:
    """Answer the tasks of standard input."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(suggest(json.loads(line))) + "\n")
        sys.stdout.flush()


def suggest(task: Mapping[str, Any]) -> list[float]:
    """Return the point to try next.

    Args:
        task: A task, as the module's text says.
    """
    space = {str(number): _distribution(choices) for number, choices in enumerate(task["choices"])}
    # Dimensions are modeled together, and running trials count as bad ones, so that parallel trials spread.
    sampler = TPESampler(seed=task["seed"], multivariate=True, constant_liar=True, n_startup_trials=0)
    study = optuna.create_study(sampler=sampler)
    for point, value in zip(task["points"], task["values"], strict=True):
        params = {name: _given(space[name], at) for name, at in zip(space, point, strict=True)}
        state = TrialState.RUNNING if value is None else TrialState.COMPLETE
        study.add_trial(create_trial(state=state, params=params, distributions=space, value=value))
    params = study.ask(space).params
    return [params[name] for name in space]


def _distribution(choices: int) -> BaseDistribution:
    return CategoricalDistribution(tuple(range(choices))) if choices else FloatDistribution(0, 1)


def _given(distribution: BaseDistribution, coordinate: float) -> float | int:
    return int(coordinate) if isinstance(distribution, CategoricalDistribution) else coordinate


if __name__ == "__main__":
    main()
