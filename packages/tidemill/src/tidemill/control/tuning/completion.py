"""When a tuning job is complete, and when it has failed. Everything is derived from the stored trials."""

from dataclasses import dataclass

from tidemill.control.tuning.definition import Definition
from tidemill.control.tuning.search import grid_points
from tidemill.core.training import JobStatus
from tidemill.core.tuning import TuningJob, TuningTrial, best_trial

LARGEST_TUNING = 750
"""Trainings of a job that gives no MaxNumberOfTrainingJobs, but another end."""

_IMPROVEMENT = 0.01
"""Part of the best value by which a training must be better to count as improving."""
_CONVERGED_AFTER = 20
_HOPELESS_AFTER = 5


@dataclass(frozen=True, slots=True)
class TuningDecision:
    """The decision that no further training is created.

    Attributes:
        status: Final status of the job.
        failure_reason: Why it failed; else empty.
        converged: Whether ConvergenceDetected decided.
    """

    status: JobStatus
    failure_reason: str = ""
    converged: bool = False


def trials_allowed(job: TuningJob, definitions: tuple[Definition, ...]) -> int:
    """Return how many trainings a job may have in all."""
    if job.config["Strategy"] == "Grid":
        return sum(grid_points(each.ranges) for each in definitions)
    return job.config["ResourceLimits"].get("MaxNumberOfTrainingJobs", LARGEST_TUNING)


def not_improving(job: TuningJob) -> int:
    """Return how many trainings have ended since one improved the best value by at least 1 %."""
    sign = -1 if job.maximizes else 1
    best, count = None, 0
    ended = (trial for trial in job.trials if trial.ended_ms is not None)
    for trial in sorted(ended, key=lambda trial: trial.ended_ms or 0):
        value = None if trial.objective is None else sign * trial.objective
        if value is not None and (best is None or (best - value >= _IMPROVEMENT * abs(best) and value < best)):
            best, count = value, 0
        else:
            count += 1
    return count


def decision_on(job: TuningJob, definitions: tuple[Definition, ...], *, now_ms: int) -> TuningDecision | None:
    """Return the decision to create no further training; None if the search goes on."""
    ended = [trial for trial in job.trials if trial.status.terminal]
    everything = len(job.trials) >= trials_allowed(job, definitions) and not job.running
    if len(ended) >= _HOPELESS_AFTER or everything:
        failed = _failure(ended)
        if failed:
            return TuningDecision(JobStatus.FAILED, failed)
    if everything:
        return TuningDecision(JobStatus.COMPLETED)
    limit_s = job.config["ResourceLimits"].get("MaxRuntimeInSeconds")
    if limit_s is not None and now_ms - job.created_ms >= limit_s * 1000:
        return TuningDecision(JobStatus.COMPLETED)
    return _criteria(job)


def _criteria(job: TuningJob) -> TuningDecision | None:
    criteria = job.config.get("TuningJobCompletionCriteria", {})
    target = criteria.get("TargetObjectiveMetricValue")
    best = best_trial(job.trials, maximizes=job.maximizes)
    if target is not None and best is not None and best.objective is not None:
        reached = best.objective >= target if job.maximizes else best.objective <= target
        if reached:
            return TuningDecision(JobStatus.COMPLETED)
    allowed = criteria.get("BestObjectiveNotImproving", {}).get("MaxNumberOfTrainingJobsNotImproving")
    if allowed is not None and not_improving(job) >= allowed:
        return TuningDecision(JobStatus.COMPLETED)
    converges = criteria.get("ConvergenceDetected", {}).get("CompleteOnConvergence") == "Enabled"
    if converges and not_improving(job) >= _CONVERGED_AFTER:
        return TuningDecision(JobStatus.COMPLETED, converged=True)
    return None


def _failure(ended: list[TuningTrial]) -> str:
    """Return why the job failed: no training has completed; empty if one has."""
    if any(trial.objective is not None for trial in ended):
        return ""
    failures = [trial for trial in ended if trial.failure_reason]
    if failures:
        first = f"the first failed with: {failures[0].failure_reason}"
    else:
        first = "none logged the objective metric; check that its Regex matches a line of the log"
    return f"No training job succeeded after {len(ended)} attempts: {first}"[:1024]
