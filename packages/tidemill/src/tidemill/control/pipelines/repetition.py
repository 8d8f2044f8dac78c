"""When a step is not executed (CacheConfig), and when it is executed again (RetryPolicies)."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.control.pipelines.expressions import Unresolved
from tidemill.control.pipelines.step_types import JobStep

_SECONDS = {"Y": 365 * 86400, "MO": 30 * 86400, "W": 7 * 86400, "D": 86400, "H": 3600, "M": 60, "S": 1}
_DURATION = re.compile(
    r"P?(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE
)
_MOST_ATTEMPTS = 20
_MOST_MINUTES = 14400

_FAILURES = (
    "Step.SERVICE_FAULT",
    "Step.THROTTLING",
    "SageMaker.JOB_INTERNAL_ERROR",
    "SageMaker.CAPACITY_ERROR",
    "SageMaker.RESOURCE_LIMIT",
)
_MEMBERS = ("ExceptionType", "IntervalSeconds", "BackoffRate", "MaxAttempts", "ExpireAfterMin")


@dataclass(frozen=True, slots=True)
class StepRetry:
    """One of the RetryPolicies.

    Attributes:
        kinds: The failures after which the step is tried again.
        interval_s: Wait before the second attempt, in seconds.
        backoff: Factor of each further wait.
        attempts: Maximum number of retries; None without a limit.
        expires_s: Age of the first attempt in seconds at which no retry begins; None without a limit.
    """

    kinds: frozenset[str]
    interval_s: float
    backoff: float
    attempts: int | None
    expires_s: float | None

    def wait_s(self, *, attempts: int, age_s: float) -> float | None:
        """Return the wait before the next attempt in seconds, or None if there is none.

        Args:
            attempts: Number of the attempts so far.
            age_s: Seconds since the begin of the first attempt.
        """
        wait_s = self.interval_s * self.backoff ** (attempts - 1)
        over = self.attempts is not None and attempts > self.attempts
        late = self.expires_s is not None and age_s + wait_s > self.expires_s
        return None if over or late else wait_s


def parse_caching(value: Any, *, allowed: bool) -> float | None:
    """Return the age in seconds up to which a result is reused, `math.inf` for any age; None if none is.

    Args:
        value: The CacheConfig of a step; None without one.
        allowed: Whether steps of this type can be cached.

    Raises:
        Unresolved: It is malformed or not allowed; the message says why.
    """
    if value is None:
        return None
    if not isinstance(value, dict) or value.keys() - {"Enabled", "ExpireAfter"}:
        raise Unresolved(f"CacheConfig has Enabled and ExpireAfter; got {value!r}")
    if not value.get("Enabled"):
        return None
    if not allowed:
        raise Unresolved("CacheConfig is for steps that run a job; remove it")
    text = value.get("ExpireAfter")
    return math.inf if text is None else _duration_s(text)


def parse_retries(values: Any, *, allowed: bool) -> tuple[StepRetry, ...]:
    """Return the RetryPolicies of a step.

    Args:
        values: The list of the definition.
        allowed: Whether steps of this type can be tried again.

    Raises:
        Unresolved: One is malformed or not allowed; the message says why.
    """
    if values and not allowed:
        raise Unresolved("RetryPolicies are for steps that create a job or a resource; remove them")
    return tuple(_retry(each) for each in values)


def failure_kind(code: str, *, status: int, reason: str = "") -> str:
    """Return the ExceptionType of a failure; empty for one that no policy names.

    Args:
        code: Error code of the request that creates the job; empty if the job was created.
        status: HTTP status of that error.
        reason: FailureReason of the job.
    """
    if code == "ResourceLimitExceeded":
        return "SageMaker.RESOURCE_LIMIT"
    if code == "ThrottlingException":
        return "Step.THROTTLING"
    if code:
        return "Step.SERVICE_FAULT" if status >= 500 else ""
    if reason.startswith("InternalServerError"):
        return "SageMaker.JOB_INTERNAL_ERROR"
    return "SageMaker.CAPACITY_ERROR" if reason.startswith("CapacityError") else ""


def cache_key(pipeline_id: str, step: str, job: JobStep, arguments: Mapping[str, Any]) -> str:
    """Return the name of the record of a step's result, which depends on all that makes a difference for it.

    Args:
        pipeline_id: Id of the pipeline; results are not shared between pipelines.
        arguments: The arguments, without expressions.
    """
    compared = {name: arguments[name] for name in job.compared if name in arguments}
    text = json.dumps([step, job.operation("Create"), compared], sort_keys=True, ensure_ascii=False)
    return f"{pipeline_id}/{hashlib.sha256(text.encode()).hexdigest()}"


def _duration_s(text: Any) -> int:
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None or not any(match.groups()):
        raise Unresolved(f"ExpireAfter is a duration of ISO 8601, e.g. P30D or PT12H; got {text!r}")
    return sum(int(count or 0) * each for count, each in zip(match.groups(), _SECONDS.values(), strict=True))


def _retry(value: Any) -> StepRetry:
    if not isinstance(value, dict) or value.keys() - set(_MEMBERS):
        raise Unresolved(f"an element of RetryPolicies has {', '.join(_MEMBERS)}; got {value!r}")
    kinds = value.get("ExceptionType")
    if not isinstance(kinds, list) or not kinds or any(each not in _FAILURES for each in kinds):
        raise Unresolved(f"ExceptionType is a list of {', '.join(_FAILURES)}; got {kinds!r}")
    attempts, minutes = value.get("MaxAttempts"), value.get("ExpireAfterMin")
    for name, number, most in (("MaxAttempts", attempts, _MOST_ATTEMPTS), ("ExpireAfterMin", minutes, _MOST_MINUTES)):
        if number is not None and (not isinstance(number, int) or not 1 <= number <= most):
            raise Unresolved(f"{name} is a number from 1 to {most}; got {number!r}")
    if attempts is None and minutes is None:
        raise Unresolved("a retry policy has MaxAttempts or ExpireAfterMin")
    interval_s, backoff = value.get("IntervalSeconds", 1), value.get("BackoffRate", 2.0)
    for name, number in (("IntervalSeconds", interval_s), ("BackoffRate", backoff)):
        if not isinstance(number, int | float) or number < 0:
            raise Unresolved(f"{name} is a number from 0; got {number!r}")
    return StepRetry(frozenset(kinds), interval_s, backoff, attempts, None if minutes is None else minutes * 60.0)
