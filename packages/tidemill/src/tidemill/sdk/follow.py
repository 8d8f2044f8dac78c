"""Waiting for a training job: phases and log lines as they come, and an end for every end the job can have."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from tidemill.errors import JobFailed
from tidemill.sdk.console import Console
from tidemill.sdk.logs import LogTail

__all__ = ["TERMINAL", "Follower"]

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
        console: Where lines go.
        logs: Whether log lines are shown; phases always are.
        sleep: Waits between two looks.
        clock: Monotonic time in seconds.
    """

    session: Any
    job_name: str
    console: Console
    logs: bool = True
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def follow(self) -> dict[str, Any]:
        """Wait for the end of the job; its last description.

        Raises:
            JobFailed: The job failed; the message has the whole FailureReason.
            KeyboardInterrupt: The user does not want to wait any longer. The job goes on.
        """
        try:
            description = self._watch()
        except KeyboardInterrupt:
            self._say_how_to_come_back()
            raise
        return check_end(description)

    def _watch(self) -> dict[str, Any]:
        phases = _Phases()
        tail: LogTail | None = None
        while True:
            description = self._patiently(lambda: self.session.describe_training_job(self.job_name))
            over = description["TrainingJobStatus"] in TERMINAL
            if tail is None and self.logs:
                tail = LogTail(
                    self.session.logs_client, prefix=f"{self.job_name}/", instances=instance_count(description)
                )
            entries = phases.new(description)
            if tail is not None:
                entries += self._new_lines(tail, over)
            for _, show in sorted(entries, key=lambda entry: entry[0]):
                show(self.console)
            if over:
                self._show_end(description)
                return description
            self.sleep(_POLL_S)

    def _new_lines(self, tail: LogTail, over: bool) -> "list[_Entry]":
        if over and self.session.is_aws:
            self.sleep(_AWS_LOG_LAG_S)  # CloudWatch shows the last lines of a job later than its end
        lines = self._patiently(lambda: tail.read(everything=over))
        return [
            (line.timestamp_ms, _show_line(line.message, line.instance if tail.several else None)) for line in lines
        ]

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """Ask again while the service is away: its jobs outlive it, so a restart is no reason to stop waiting."""
        from botocore.exceptions import ConnectionError as AwayError
        from botocore.exceptions import HTTPClientError

        away_since: float | None = None
        while True:
            try:
                return ask()
            except (AwayError, HTTPClientError):
                now = self.clock()
                if away_since is None:
                    away_since = now
                    self.console.say(f"The service at {self.session.endpoint_url} does not answer; trying again.")
                if now - away_since > _UNREACHABLE_LIMIT_S:
                    raise
                self.sleep(_POLL_S)

    def _show_end(self, description: dict[str, Any]) -> None:
        status = description["TrainingJobStatus"]
        begin, end = description.get("CreationTime"), description.get("TrainingEndTime")
        took = f" after {(end - begin).total_seconds():.1f} s" if begin and end else ""
        self.console.say(f"Training job {self.job_name}: {status}{took}")
        model = description.get("ModelArtifacts", {}).get("S3ModelArtifacts")
        if model:
            self.console.say(f"Model: {model}")

    def _say_how_to_come_back(self) -> None:
        self.console.say(
            f"\nNo longer waiting; training job {self.job_name} goes on.\n"
            f"  attach: TensorFlow.attach({self.job_name!r}), or tidemill logs -f {self.job_name}\n"
            f"  stop:   tidemill stop {self.job_name}"
        )


def check_end(description: dict[str, Any]) -> dict[str, Any]:
    """The description of a job that is over, unless it failed.

    Raises:
        JobFailed: It failed.
    """
    name, status = description["TrainingJobName"], description["TrainingJobStatus"]
    if status == "Failed":
        raise JobFailed(f"training job {name} failed:\n{description.get('FailureReason', '(no reason was given)')}")
    if status == "Stopped":
        _logger.warning(
            "training job %s was stopped before it had completed (%s); check whether its model is what you expect",
            name,
            description.get("SecondaryStatus", status),
        )
    return description


def instance_count(description: dict[str, Any]) -> int:
    """How many instances a described job has."""
    resources = description["ResourceConfig"]
    groups = resources.get("InstanceGroups") or [resources]
    return sum(group.get("InstanceCount", 1) for group in groups)


_Entry = tuple[int, Callable[[Console], None]]


class _Phases:
    """Remembers which transitions have been shown; the last one again when its message changes."""

    def __init__(self) -> None:
        self._shown: list[tuple[str, str]] = []

    def new(self, description: dict[str, Any]) -> list[_Entry]:
        entries: list[_Entry] = []
        for number, transition in enumerate(description.get("SecondaryStatusTransitions", [])):
            current = (transition["Status"], transition.get("StatusMessage", ""))
            known = self._shown[number] if number < len(self._shown) else None
            if known == current:
                continue
            self._shown[number:] = [current]
            began: datetime = transition["StartTime"]
            entries.append((int(began.timestamp() * 1000), _show_phase(began, *current)))
        return entries


def _show_phase(began: datetime, status: str, message: str) -> Callable[[Console], None]:
    text = f"{began.astimezone():%H:%M:%S} {status}" + (f": {message}" if message else "")
    return lambda console: console.say(text)


def _show_line(message: str, colour: int | None) -> Callable[[Console], None]:
    return lambda console: console.log(message, colour=colour)
