"""A submitted training job, as `TensorFlow.latest_training_job` gives it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidemill.errors import JobFailed
from tidemill.sdk.console import Console
from tidemill.sdk.follow import TERMINAL, Follower
from tidemill.sdk.job import AwaitedJob
from tidemill.sdk.job_card import LiveCard, html_of
from tidemill.sdk.logs import LogTail
from tidemill.sdk.markup import table

_KEEP_ESCAPES = "raw"
_LOG_CHOICES = (True, False, "All", "None", "Training", "Rules", _KEEP_ESCAPES)


@dataclass(frozen=True)
class TrainingJob(AwaitedJob):
    """One training job of the service.

    Attributes:
        hint: Returns what to add to a FailureReason. Default: nothing.
    """

    hint: Callable[[str], str] | None = field(default=None, compare=False, repr=False)

    def describe(self) -> dict[str, Any]:
        """Return what DescribeTrainingJob answers now.

        Returns:
            The answer as boto3 returns it.
        """
        return self.session.describe_training_job(self.name)

    def stop(self) -> None:
        """Ask the job to stop: SIGTERM, time to save, then the end."""
        self.session.stop_training_job(self.name)

    @property
    def model_data(self) -> str:
        """S3 URI of the job's ``model.tar.gz``.

        Raises:
            ValueError: The job has no model, or has not ended.
        """
        description = self.describe()
        found = description.get("ModelArtifacts", {}).get("S3ModelArtifacts")
        if not found:
            status = description["TrainingJobStatus"]
            why = (
                "saved no model: the script has to write it below the directory that SM_MODEL_DIR names, /opt/ml/model"
                if status in TERMINAL
                else "has no model yet; wait for its end"
            )
            raise ValueError(f"training job {self.name} is {status} and {why}")
        return str(found)

    def wait(self, logs: bool | str = True) -> dict[str, Any]:
        """Wait for the job's end, showing phases and, unless ``logs`` is false, its log lines.

        In a notebook, a card with curves of the metrics is shown above them and redrawn.

        Args:
            logs: True or False; ``"raw"`` leaves escape bytes in when standard output is a terminal.

        Returns:
            The last description.

        Raises:
            JobFailed: The job failed; the message has the whole FailureReason.
        """
        show = wants_logs(logs)
        console = Console(keep_escapes=logs == _KEEP_ESCAPES)
        card = LiveCard.here(self.session)
        try:
            return Follower(
                session=self.session,
                job_name=self.name,
                console=console,
                logs=show,
                watch=card.show if card else None,
            ).follow()
        except JobFailed as error:
            if self.hint is not None:
                error.args = (f"{error}{self.hint(str(error))}",)
            raise

    def _repr_html_(self) -> str:
        """Return the card of the job as it is now; the name alone if nothing answers."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            description = self.describe()
        except (BotoCoreError, ClientError) as error:
            return table("Training job", {"name": self.name, "not described": error})
        return html_of(self.session, description)

    def show_logs(self) -> None:
        """Print what the job has written so far, from the beginning."""
        console = Console()
        tail = LogTail(self.session.logs_client, prefix=f"{self.name}/", instances=1)
        for lines in tail.read(everything=True):
            console.log_all((message, instance if tail.several else None) for _, message, instance in lines)


def say_tensorboard(job: TrainingJob, model_dir: str | None) -> None:
    """Print the command that shows a job in TensorBoard.

    Args:
        job: The job.
        model_dir: The script's argument ``--model_dir``.

    Raises:
        ValueError: The service is AWS, and the script gets no ``model_dir``.
    """
    console = Console()
    if not job.session.is_aws:
        console.say("TensorBoard shows what the script writes for it; run it beside the job:")
        console.say(f"  tidemill tensorboard {job.name}")
        return
    if model_dir is None:
        raise ValueError("run_tensorboard_locally needs a model_dir, and model_dir=False passes none to the script")
    console.say("TensorBoard shows what the script writes to its model_dir; run it beside the job:")
    console.say(f"  tensorboard --logdir {model_dir} --host localhost --port 6006")


def wants_logs(logs: bool | str) -> bool:
    """Return whether the argument ``logs`` of `fit` asks for log lines.

    Args:
        logs: A boolean, ``"raw"``, or a value that AWS's SDK allows.

    Raises:
        ValueError: Any other value.
    """
    if logs not in _LOG_CHOICES:
        raise ValueError(f"logs={logs!r} is not allowed; expected True, False, 'All', 'None' or 'raw'")
    return logs not in (False, "None", "Rules")
