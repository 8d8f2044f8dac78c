"""Which running trainings are hopeless, from the values of the objective that their logs have so far.

Auto stops a training whose latest value is worse than the median of the running averages of completed trainings, as
SageMaker documents it. Hyperband stops a training at a rung unless its value there is among the best third of its
bracket: asynchronous successive halving (Li et al., 2018). A value in the log is one unit of Hyperband's resource.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import median

from tidemill.core.tuning import TuningJob

_FEWEST_COMPLETED = 4
_FEWEST_VALUES = 2
_REDUCTION = 3
_MOST_RUNGS = 17

Curves = Mapping[str, Sequence[float]]
"""Values of the objective in the order of the log, by the name of the training."""


def median_stops(job: TuningJob, curves: Curves) -> list[str]:
    """Return the running trainings that are worse than the median of the completed ones at the same place.

    Returns:
        Names of trainings; none while too few have completed.
    """
    sign = -1.0 if job.maximizes else 1.0
    completed = (curves.get(trial.name, ()) for trial in job.trials if trial.objective is not None)
    averages = [[total / number for number, total in enumerate(accumulate(each), start=1)] for each in completed]
    stopped: list[str] = []
    for trial in job.running:
        values = curves.get(trial.name, ())
        peers = [each[len(values) - 1] for each in averages if len(each) >= len(values) > 0]
        if len(values) < _FEWEST_VALUES or len(peers) < _FEWEST_COMPLETED:
            continue
        if sign * values[-1] > sign * median(peers):
            stopped.append(trial.name)
    return stopped


def hyperband_stops(job: TuningJob, curves: Curves) -> list[str]:
    """Return the running trainings that lost in their bracket at the last rung that they reached, or had MaxResource.

    Trainings are assigned to the brackets in turn. Each bracket begins one rung above the one before; without
    MaxResource there is one.

    Returns:
        Names of trainings.
    """
    given = job.config.get("StrategyConfig", {}).get("HyperbandStrategyConfig", {})
    highest = given.get("MaxResource", math.inf)
    rungs = [given.get("MinResource", 1) * _REDUCTION**number for number in range(_MOST_RUNGS)]
    brackets = max(1, sum(rung <= highest for rung in rungs)) if highest < math.inf else 1
    sign = -1.0 if job.maximizes else 1.0
    stopped: list[str] = []
    for number, trial in enumerate(job.trials):
        values, bracket = curves.get(trial.name, ()), number % brackets
        reached = [rung for rung in rungs[bracket:] if rung < highest and rung <= len(values)]
        if trial.status.terminal or not (reached or len(values) >= highest):
            continue
        at = reached[-1] - 1 if reached else 0
        curves_here = (curves.get(each.name, ()) for each in job.trials[bracket::brackets])
        rivals = [sign * each[at] for each in curves_here if len(each) > at]
        better = sum(rival < sign * values[at] for rival in rivals)
        if len(values) >= highest or better >= max(1, len(rivals) // _REDUCTION):
            stopped.append(trial.name)
    return stopped
