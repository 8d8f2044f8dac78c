"""Jobs that are watched by their status alone: processing, transform and tuning jobs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tidemill.sdk.console import Console
from tidemill.sdk.follow import TERMINAL, patiently
from tidemill.sdk.interruption import say_detached
from tidemill.sdk.job import AwaitedJob, raise_if_failed
from tidemill.sdk.logs import LogTail

_POLL_S = 0.25


@dataclass(frozen=True)
class PolledJob(AwaitedJob):
    """A job without phases: its progress and its log are shown until it ends."""

    _stem: ClassVar[str]
    """End of its operations' names and begin of its members', e.g. ``TransformJob``."""
    _title: ClassVar[str]
    """Name of its kind in messages."""
    _attach: ClassVar[str]
    """What returns the job for its name, for messages."""
    _log_group: ClassVar[str] = ""
    """Empty for a kind without a log of its own."""

    def describe(self) -> dict[str, Any]:
        """Return what the Describe operation of the job's kind answers now.

        Returns:
            The answer as boto3 returns it.
        """
        return self._sent("Describe")

    def stop(self) -> None:
        """Ask the job to stop: its scripts get SIGTERM and time to save, and stored results stay."""
        self._sent("Stop")

    def wait(self, logs: bool = True) -> dict[str, Any]:
        """Wait for the job's end, showing its progress and, if ``logs``, its log lines.

        Args:
            logs: Whether log lines are shown; for a job without a log, whether its progress is.

        Returns:
            The last description.

        Raises:
            JobFailed: The job failed; the message has the whole FailureReason.
            KeyboardInterrupt: The user does not want to wait any longer; the job goes on.
        """
        console = Console()
        try:
            description = self._watch(console, logs=logs)
        except KeyboardInterrupt:
            say_detached(console, self._title, self.name, attach=self._attach)
            raise
        raise_if_failed(self._title, self.name, self._status(description), description)
        return description

    def show_logs(self) -> None:
        """Print what the job has written so far, from the beginning."""
        _print_lines(Console(), self._tail(self.describe()), everything=True)

    def _sent(self, verb: str) -> dict[str, Any]:
        from botocore import xform_name

        operation = getattr(self.session.sagemaker_client, xform_name(f"{verb}{self._stem}"))
        return operation(**{f"{self._stem}Name": self.name})

    def _status(self, description: Mapping[str, Any]) -> str:
        return description[f"{self._stem}Status"]

    def _progress(self, description: Mapping[str, Any]) -> str:
        """Return what is shown when it changes."""
        return self._status(description)

    def _streams(self, description: Mapping[str, Any]) -> int:
        """Return the number of the job's log streams."""
        raise NotImplementedError(
            f"show_logs: the {self._title} {self.name} has no log of its own; show the logs of the jobs that it started"
        )

    def _tail(self, description: Mapping[str, Any], ask: Callable[[Callable[[], Any]], Any] | None = None) -> LogTail:
        client, streams = self.session.logs_client, self._streams(description)
        return LogTail(client, group=self._log_group, prefix=f"{self.name}/", instances=streams, ask=ask)

    def _watch(self, console: Console, *, logs: bool) -> dict[str, Any]:
        def ask(request: Any) -> Any:
            return patiently(request, session=self.session, console=console)

        shown, tail = "", None
        while True:
            description = ask(self.describe)
            is_over = self._status(description) in TERMINAL
            if logs and self._log_group:
                tail = tail or self._tail(description, ask)
                _print_lines(console, tail, everything=is_over)
            progress = self._progress(description)
            if progress != shown and (logs or self._log_group):
                console.say(f"{time.strftime('%H:%M:%S')} {self._title.capitalize()} {self.name}: {progress}")
                shown = progress
            if is_over:
                return description
            time.sleep(_POLL_S)


@dataclass(frozen=True)
class SubmittedProcessing(PolledJob):
    """One processing job by its name; `ProcessingJob` has its inputs and outputs, too."""

    _stem: ClassVar[str] = "ProcessingJob"
    _title: ClassVar[str] = "processing job"
    _attach: ClassVar[str] = "ProcessingJob.from_processing_name"
    _log_group: ClassVar[str] = "/aws/sagemaker/ProcessingJobs"

    def _streams(self, description: Mapping[str, Any]) -> int:
        return int(description["ProcessingResources"]["ClusterConfig"].get("InstanceCount", 1))


class TransformJob(PolledJob):
    """One batch transform job of the service, as `Transformer.latest_transform_job` gives it."""

    _stem: ClassVar[str] = "TransformJob"
    _title: ClassVar[str] = "transform job"
    _attach: ClassVar[str] = "Transformer.attach"
    _log_group: ClassVar[str] = "/aws/sagemaker/TransformJobs"

    def _streams(self, description: Mapping[str, Any]) -> int:
        # One stream for each instance, and one of what became of the objects.
        return int(description["TransformResources"]["InstanceCount"]) + 1


def _print_lines(console: Console, tail: LogTail, *, everything: bool) -> None:
    for lines in tail.read(everything=everything):
        console.log_all((message, instance) for _, message, instance in lines)
