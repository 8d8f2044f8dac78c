"""Jobs that are watched by their status alone: processing and transform jobs."""

import time
from abc import abstractmethod
from collections.abc import Mapping
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
    """A job without phases: its status and its log are shown until it ends."""

    _title: ClassVar[str]
    """Name of its kind in messages."""
    _log_group: ClassVar[str]
    _status_member: ClassVar[str]
    """Member of its description with the status."""
    _attach: ClassVar[str]
    """What returns the job for its name, for messages."""

    def wait(self, logs: bool = True) -> dict[str, Any]:
        """Wait for the job's end, showing its states and, if ``logs``, its log lines.

        Args:
            logs: Whether log lines are shown.

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
        raise_if_failed(self._title, self.name, description[self._status_member], description)
        return description

    def show_logs(self) -> None:
        """Print what the job has written so far, from the beginning."""
        console, streams = Console(), self._streams(self.describe())
        tail = LogTail(self.session.logs_client, group=self._log_group, prefix=f"{self.name}/", instances=streams)
        for lines in tail.read(everything=True):
            console.log_all((message, instance) for _, message, instance in lines)

    @abstractmethod
    def _streams(self, description: Mapping[str, Any]) -> int:
        """Return the number of the job's log streams."""

    def _watch(self, console: Console, *, logs: bool) -> dict[str, Any]:
        def ask(request: Any) -> Any:
            return patiently(request, session=self.session, console=console)

        shown, tail = "", None
        while True:
            description = ask(self.describe)
            status = description[self._status_member]
            if logs and tail is None:
                client, streams = self.session.logs_client, self._streams(description)
                tail = LogTail(client, group=self._log_group, prefix=f"{self.name}/", instances=streams, ask=ask)
            if tail is not None:
                for lines in tail.read(everything=status in TERMINAL):
                    console.log_all((message, instance) for _, message, instance in lines)
            if status != shown:
                console.say(f"{time.strftime('%H:%M:%S')} {self._title.capitalize()} {self.name}: {status}")
                shown = status
            if status in TERMINAL:
                return description
            time.sleep(_POLL_S)
