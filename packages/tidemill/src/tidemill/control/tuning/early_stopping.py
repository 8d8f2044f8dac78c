"""Which running trainings are hopeless, from the values of the objective that their logs have so far.

Auto stops a training whose latest value is worse than the median of the running averages of completed trainings, as
SageMaker documents it. Hyperband stops a training at a rung unless its value there is among the best third of its
bracket: asynchronous successive halving (Li et al., 2018). A value in the log is one unit of Hyperband's resource.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median

from tidemill.core.tuning import TuningJob, TuningTrial

_FEWEST_COMPLETED = 4
_FEWEST_VALUES = 2
_REDUCTION = 3

Curves = Mapping[str, Sequence[float]]
"""Values of the objective in the order of the log, by the name of the training."""


def median_stops(job: TuningJob, curves: Curves) -> list[str]:
    """Return the running trainings that are worse than the median of the completed ones at the same place."""
    sign = -1.0 if job.maximizes else 1.0
    averages = [_running_averages(curves[trial.name]) for trial in job.trials if _is_completed(trial, curves)]
    stopped: list[str] = []
    for trial in job.running:
        values = curves.get(trial.name, ())
        count = len(values)
        peers = [each[count - 1] for each in averages if len(each) >= count]
        if count < _FEWEST_VALUES or len(peers) < _FEWEST_COMPLETED:
            continue
        if sign * values[-1] > sign * median(peers):
            stopped.append(trial.name)
    return stopped


@dataclass(frozen=True, slots=True)
class Brackets:
    """The brackets of Hyperband: trainings are assigned to them in turn, and each has its own first rung.

    Attributes:
        lowest: MinResource, the values that every training may log.
        highest: MaxResource, the values at which a training is stopped; None for no limit.
    """

    lowest: int = 1
    highest: int | None = None

    @classmethod
    def of(cls, job: TuningJob) -> "Brackets":
        """Return the brackets of a job; without a configuration one bracket whose first rung is at one value."""
        given = job.config.get("StrategyConfig", {}).get("HyperbandStrategyConfig", {})
        return cls(given.get("MinResource", 1), given.get("MaxResource"))

    def stops(self, job: TuningJob, curves: Curves) -> list[str]:
        """Return the running trainings to stop."""
        stopped: list[str] = []
        for number, trial in enumerate(job.trials):
            if trial.status.terminal:
                continue
            values = curves.get(trial.name, ())
            if self.highest is not None and len(values) >= self.highest:
                stopped.append(trial.name)
                continue
            reached = [rung for rung in self._rungs(number) if rung <= len(values)]
            if reached and self._loses(job, curves, number, reached[-1]):
                stopped.append(trial.name)
        return stopped

    def _loses(self, job: TuningJob, curves: Curves, number: int, rung: int) -> bool:
        sign = -1.0 if job.maximizes else 1.0
        mine = sign * curves[job.trials[number].name][rung - 1]
        rivals = [
            sign * curves[trial.name][rung - 1]
            for other, trial in enumerate(job.trials)
            if self._bracket(other) == self._bracket(number) and len(curves.get(trial.name, ())) >= rung
        ]
        return sum(rival < mine for rival in rivals) >= max(1, len(rivals) // _REDUCTION)

    def _rungs(self, number: int) -> list[int]:
        """Return the numbers of values at which a trial is compared; at the highest it ends anyway."""
        rung, rungs = self.lowest * _REDUCTION ** self._bracket(number), list[int]()
        while rung < (self.highest or self.lowest * _REDUCTION**16):
            rungs.append(rung)
            rung *= _REDUCTION
        return rungs

    def _bracket(self, number: int) -> int:
        return number % self._brackets

    @property
    def _brackets(self) -> int:
        if self.highest is None:
            return 1
        count = 1
        while self.lowest * _REDUCTION**count <= self.highest:
            count += 1
        return count


def _running_averages(values: Sequence[float]) -> list[float]:
    return [total / number for number, total in enumerate(accumulate(values), start=1)]


def _is_completed(trial: TuningTrial, curves: Curves) -> bool:
    return trial.objective is not None and bool(curves.get(trial.name))
