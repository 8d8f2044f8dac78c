"""A submitted batch transform job, as `Transformer.latest_transform_job` gives it."""

import time
from typing import Any

from tidemill.sdk.console import Console
from tidemill.sdk.follow import TERMINAL, patiently
from tidemill.sdk.interruption import say_detached
from tidemill.sdk.job import AwaitedJob, raise_if_failed
from tidemill.sdk.logs import LogTail

__all__ = ["TransformJob"]

_GROUP = "/aws/sagemaker/TransformJobs"
_POLL_S = 0.25


class TransformJob(AwaitedJob):
    """One batch transform job of the service."""

    def describe(self) -> dict[str, Any]:
        """Return what DescribeTransformJob answers now.

        Returns:
            The answer as boto3 returns it.
        """
        return self.session.sagemaker_client.describe_transform_job(TransformJobName=self.name)

    def stop(self) -> None:
        """Ask the job to stop; the results that are there stay."""
        self.session.sagemaker_client.stop_transform_job(TransformJobName=self.name)

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
            say_detached(console, "transform job", self.name, attach="Transformer.attach")
            raise
        raise_if_failed("transform job", self.name, description["TransformJobStatus"], description)
        return description

    def _watch(self, console: Console, *, logs: bool) -> dict[str, Any]:
        def ask(request: Any) -> Any:
            return patiently(request, session=self.session, console=console)

        shown, tail = "", None
        while True:
            description = ask(self.describe)
            status = description["TransformJobStatus"]
            if logs and tail is None:
                # One stream for each instance, and one of what became of the objects.
                streams = description["TransformResources"]["InstanceCount"] + 1
                client = self.session.logs_client
                tail = LogTail(client, group=_GROUP, prefix=f"{self.name}/", instances=streams, ask=ask)
            if tail is not None:
                for lines in tail.read(everything=status in TERMINAL):
                    console.log_all((message, instance) for _, message, instance in lines)
            if status != shown:
                console.say(f"{time.strftime('%H:%M:%S')} Transform job {self.name}: {status}")
                shown = status
            if status in TERMINAL:
                return description
            time.sleep(_POLL_S)
