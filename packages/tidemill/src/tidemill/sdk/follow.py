"""Wait for a training job: print its phases and log lines, then return, raise or warn according to how it ended."""

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeVar

from tidemill.sdk.console import Console
from tidemill.sdk.interruption import on_interrupt
from tidemill.sdk.job import raise_if_failed
from tidemill.sdk.logs import LogLine, LogTail

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})

_POLL_S = 0.25
_UNREACHABLE_LIMIT_S = 60.0
_AWS_LOG_LAG_S = 10.0

_T = TypeVar("_T")
_logger = logging.getLogger("tidemill.sdk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Follows one training job to its end.

    Attributes:
        session: The SDK's session.
        job_name: The job.
        console: Prints the lines.
        logs: Whether to print log lines; phases are always printed.
        sleep: Waits between two requests; called with seconds.
        clock: Monotonic time in seconds.
        watch: Called with each description. Default: nothing.
    """

    session: Any
    job_name: str
    console: Console
    logs: bool = True
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    watch: Callable[[dict[str, Any]], None] | None = None

    def follow(self) -> dict[str, Any]:
        """Wait for the end of the job and return its last description.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
            KeyboardInterrupt: The user pressed Ctrl-C. On a terminal the user was asked whether to stop the job;
                otherwise the job continues.
        """
        try:
            description = self._watch()
        except KeyboardInterrupt:
            raise on_interrupt(self.session, self.job_name, console=self.console) from None
        return check_end(description)

    def _watch(self) -> dict[str, Any]:
        phases = _Phases()
        tail: LogTail | None = None
        while True:
            description = self._patiently(lambda: self.session.describe_training_job(self.job_name))
            over = description["TrainingJobStatus"] in TERMINAL
            if self.watch is not None:
                self.watch(description)
            if tail is None and self.logs:
                tail = LogTail(
                    self.session.logs_client,
                    prefix=f"{self.job_name}/",
                    instances=instance_count(description),
                    ask=self._patiently,
                )
            self._show(phases.new(description), tail, over)
            if over:
                self._show_end(description)
                return description
            self.sleep(_POLL_S)

    def _show(self, phases: "list[_Phase]", tail: LogTail | None, over: bool) -> None:
        """Print new phases and log lines in order of time; all lines between two phases in one write."""
        waiting = sorted(phases, key=itemgetter(0))
        several = tail is not None and tail.several
        for lines in self._new_lines(tail, over) if tail is not None else ():
            shown = 0
            while waiting and waiting[0][0] <= lines[-1][0]:
                began_ms, text = waiting.pop(0)
                earlier = bisect_left(lines, began_ms, lo=shown, key=itemgetter(0))
                self._log(lines[shown:earlier], several=several)
                self.console.say(text)
                shown = earlier
            self._log(lines[shown:], several=several)
        for _, text in waiting:
            self.console.say(text)

    def _new_lines(self, tail: LogTail, over: bool) -> Iterator[list[LogLine]]:
        if over and self.session.is_aws:
            self.sleep(_AWS_LOG_LAG_S)  # CloudWatch shows the last lines of a job some time after its end
        return tail.read(everything=over)

    def _log(self, lines: list[LogLine], *, several: bool) -> None:
        if lines:
            self.console.log_all((message, instance if several else None) for _, message, instance in lines)

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        return patiently(ask, session=self.session, console=self.console, sleep=self.sleep, clock=self.clock)

    def _show_end(self, description: dict[str, Any]) -> None:
        status = description["TrainingJobStatus"]
        begin, end = description.get("CreationTime"), description.get("TrainingEndTime")
        took = f" after {(end - begin).total_seconds():.1f} s" if begin and end else ""
        self.console.say(f"Training job {self.job_name}: {status}{took}")
        model = description.get("ModelArtifacts", {}).get("S3ModelArtifacts")
        if model:
            self.console.say(f"Model: {model}")


def patiently(
    ask: Callable[[], _T],
    *,
    session: Any,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> _T:
    """Retry a request while the service is unreachable, e.g. during a restart, which its jobs survive.

    Args:
        ask: Sends the request.
        session: The SDK's session.
        console: Prints once that the service does not answer.
        sleep: Waits between two tries; called with seconds.
        clock: Monotonic time in seconds.

    Raises:
        Exception: The exception of ``ask``: connection errors after 60 s of retries, others immediately.
    """
    from botocore.exceptions import ConnectionError as AwayError
    from botocore.exceptions import HTTPClientError

    away_since: float | None = None
    while True:
        try:
            return ask()
        except (AwayError, HTTPClientError):
            now = clock()
            if away_since is None:
                away_since = now
                console.say(f"The service at {session.endpoint_url} does not answer; trying again.")
            if now - away_since > _UNREACHABLE_LIMIT_S:
                raise
            sleep(_POLL_S)


def check_end(description: dict[str, Any]) -> dict[str, Any]:
    """Return the description of an ended job; warn if it was stopped.

    Raises:
        JobFailed: The job failed.
    """
    name, status = description["TrainingJobName"], description["TrainingJobStatus"]
    raise_if_failed("training job", name, status, description)
    if status == "Stopped":
        _logger.warning(
            "training job %s was stopped before it had completed (%s); check whether its model is what you expect",
            name,
            description.get("SecondaryStatus", status),
        )
    return description


def instance_count(description: dict[str, Any]) -> int:
    """Return the number of instances of a described job.

    Args:
        description: Answer of DescribeTrainingJob.
    """
    resources = description["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    return sum(group.get("InstanceCount", 1) for group in groups)


_Phase = tuple[int, str]
"""Start of a phase in milliseconds since the epoch, and the line to print for it."""


class _Phases:
    """Remembers which phases have been printed. The last one is printed again when its message changes."""

    def __init__(self) -> None:
        self._shown: list[tuple[str, str]] = []

    def new(self, description: dict[str, Any]) -> list[_Phase]:
        entries: list[_Phase] = []
        for number, transition in enumerate(description.get("SecondaryStatusTransitions", [])):
            current = (transition["Status"], transition.get("StatusMessage", ""))
            known = self._shown[number] if number < len(self._shown) else None
            if known == current:
                continue
            self._shown[number:] = [current]
            began: datetime = transition["StartTime"]
            entries.append((int(began.timestamp() * 1000), _phase_line(began, *current)))
        return entries


def _phase_line(began: datetime, status: str, message: str) -> str:
    return f"{began.astimezone():%H:%M:%S} {status}" + (f": {message}" if message else "")
