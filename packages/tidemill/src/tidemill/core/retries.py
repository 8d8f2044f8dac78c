"""Limit the attempts of a training job that lost an instance, and their total time.

As on SageMaker, a job is restarted only after an InternalServerError, never because its script failed. Jobs on spot
instances restart until MaxWaitTimeInSeconds is over.
"""

from tidemill.core.training import TrainingJob

_RETRIES = 2
_MAX_RUNTIME_S = 86400
_LONGEST_PAUSE_S = 60.0


def attempts_allowed(job: TrainingJob) -> int | None:
    """Return the maximum number of attempts of a job; None if only the time is limited.

    Args:
        job: The job.
    """
    if job.is_spot:
        return None
    return 1 + int(job.request.get("RetryStrategy", {}).get("MaximumRetryAttempts", _RETRIES))


def wait_time_left_s(job: TrainingJob, now_ms: int) -> float | None:
    """Return the seconds left of MaxWaitTimeInSeconds, counted from the creation; None for jobs not on spot instances.

    Without MaxWaitTimeInSeconds a job waits no longer than its maximum run time.

    Args:
        now_ms: Milliseconds since the epoch.

    Returns:
        Negative if the time is over.
    """
    if not job.is_spot:
        return None
    condition = job.request.get("StoppingCondition", {})
    wait_s = condition.get("MaxWaitTimeInSeconds", condition.get("MaxRuntimeInSeconds", _MAX_RUNTIME_S))
    return float(wait_s) - (now_ms - job.created_ms) / 1000


def run_time_left_s(job: TrainingJob, now_ms: int) -> float:
    """Return the seconds that the next attempt may run: MaxRuntimeInSeconds limits all attempts together.

    Args:
        now_ms: Milliseconds since the epoch.

    Returns:
        Negative if the time is over.
    """
    runtime_s = job.request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", _MAX_RUNTIME_S)
    left_s = float(runtime_s) - job.trained_ms(now_ms) / 1000
    wait_left_s = wait_time_left_s(job, now_ms)
    return left_s if wait_left_s is None or job.attempt == 1 else min(left_s, wait_left_s)


def pause_before_restart_s(job: TrainingJob) -> float:
    """Return the seconds to wait before the job's current attempt, so that immediate losses do not use up the CPU.

    Args:
        job: The job, whose current attempt is about to begin.

    Returns:
        0 for the first two attempts.
    """
    if job.attempt <= 2 or job.interrupted_attempt == job.attempt - 1:
        return 0
    return float(min(2 ** (job.attempt - 3), _LONGEST_PAUSE_S))
