"""The kinds of things that commands name, and how AWS's API calls the operations and members of each.

No imports beyond the standard library, because the completion of names uses this, too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

LIVE = ("InProgress", "Stopping")


@dataclass(frozen=True, slots=True)
class NamedKind:
    """A kind of job, or endpoints.

    Attributes:
        noun: For messages.
        stem: Begin of the members and end of the operations, e.g. ``TrainingJob``.
        listed: Member of a List answer that has the summaries.
        table: Name of the list in JSON.
    """

    noun: str
    stem: str
    listed: str
    table: str

    @property
    def lists(self) -> str:
        """The List operation."""
        return f"List{self.stem}s"

    @property
    def describes(self) -> str:
        """The Describe operation."""
        return f"Describe{self.stem}"

    @property
    def stops(self) -> str:
        """The Stop operation of a job."""
        return f"Stop{self.stem}"

    @property
    def member(self) -> str:
        """The member with the name."""
        return f"{self.stem}Name"

    def name(self, summary: Mapping[str, Any]) -> str:
        """Return the name in a summary or description.

        Args:
            summary: An entry of a list, or a description.
        """
        return str(summary[self.member])

    def status(self, summary: Mapping[str, Any]) -> str:
        """Return the status in a summary or description.

        Args:
            summary: An entry of a list, or a description.
        """
        return str(summary[f"{self.stem}Status"])

    def ended(self, summary: Mapping[str, Any]) -> datetime | None:
        """Return when a job ended, or None.

        Args:
            summary: An entry of a list, or a description.
        """
        return summary.get(f"{self.stem.removesuffix('Job')}EndTime")


TRAINING = NamedKind("job", "TrainingJob", "TrainingJobSummaries", "jobs")
PROCESSING = NamedKind("processing job", "ProcessingJob", "ProcessingJobSummaries", "processing_jobs")
TRANSFORM = NamedKind("transform job", "TransformJob", "TransformJobSummaries", "transform_jobs")
TUNING = NamedKind("tuning job", "HyperParameterTuningJob", "HyperParameterTuningJobSummaries", "tuning_jobs")
ENDPOINT = NamedKind("endpoint", "Endpoint", "Endpoints", "endpoints")
EXECUTION = NamedKind("execution", "PipelineExecution", "PipelineExecutionSummaries", "executions")
"""Executions of pipelines, which are named ``PIPELINE/ID``."""

JOBS = (TRAINING, PROCESSING, TRANSFORM, TUNING)
NAMED = (*JOBS, ENDPOINT)
"""In the order in which a name that several have is looked for."""


def python_name(operation: str) -> str:
    """Return the name of an operation's method in boto3, e.g. ``list_training_jobs``.

    Args:
        operation: Name of the operation.
    """
    return re.sub(r"(?<!^)([A-Z])", r"_\1", operation).lower()
