"""How long a training job takes, as far as earlier ones tell: the median of those that ran the same.

Comparable are completed jobs of the same entry point on as many instances of the same type. Among them those win that
ran the same code with the same hyperparameters, then those that ran the same code. Nothing is said without any.

Only the newest completed jobs count: a service may have ten thousands, and to read them all takes it seconds.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tidemill.cli.comparison import own_hyperparameters
from tidemill.cli.text import age
from tidemill.core.names import S3Uri

if TYPE_CHECKING:
    from tidemill.sdk import Session

_PROGRAM, _CODE = "sagemaker_program", "sagemaker_submit_directory"
_MOST = 20
"""Newest runs that are looked at."""
_AMONG = 500
"""Newest completed jobs among which they are."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What earlier runs took.

    Attributes:
        typical_s: Median of their seconds of training.
        runs: Their number.
        basis: What they have in common with the job.
    """

    typical_s: float
    runs: int
    basis: str

    @property
    def text(self) -> str:
        """For people, e.g. ``about 3m12s, the median of 4 runs of the same code``."""
        runs = f"the median of {self.runs} runs" if self.runs > 1 else "as one run"
        return f"about {_duration(self.typical_s)}, {runs} {self.basis}"

    @property
    def members(self) -> dict[str, Any]:
        """For programs."""
        return {"TypicalSeconds": self.typical_s, "Runs": self.runs, "Basis": self.basis}

    def left(self, job: Mapping[str, Any]) -> str:
        """Return how long a job still runs, e.g. ``~2m5s``; empty if it has not begun or already took longer.

        Args:
            job: Its description.
        """
        begin = job.get("TrainingStartTime")
        seconds = 0.0 if begin is None else self.typical_s - (datetime.now(UTC) - begin).total_seconds()
        return f"~{_duration(seconds)}" if seconds > 0 else ""


class Estimates:
    """Estimates of several jobs; equal questions are asked once.

    Args:
        session: A session of the SDK for the service.
    """

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._runs: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
        self._digests: dict[str, str | None] = {}
        self._since: str | None = None

    def of(self, job: Mapping[str, Any]) -> Estimate | None:
        """Return what earlier runs of a job's script took; None if there are none.

        Args:
            job: Description of the training job.
        """
        program = job.get("HyperParameters", {}).get(_PROGRAM)
        resources = job.get("ResourceConfig", {})
        if program is None or "InstanceType" not in resources:
            return None
        key = (program, resources["InstanceType"], resources["InstanceCount"])
        if key not in self._runs:
            self._runs[key] = self._completed(*key)
        runs = [run for run in self._runs[key] if run["TrainingJobName"] != job["TrainingJobName"]]
        same_code = [run for run in runs if self._digest(run) == self._digest(job) is not None]
        same = [run for run in same_code if own_hyperparameters(run) == own_hyperparameters(job)]
        bases = {
            "of the same code with the same hyperparameters": same,
            "of the same code": same_code,
            f"of {program.strip(chr(34))}": runs,
        }
        return next((_median(found, basis) for basis, found in bases.items() if found), None)

    def _completed(self, program: str, instance_type: str, instances: int) -> list[dict[str, Any]]:
        equal = {
            "TrainingJobStatus": "Completed",
            f"HyperParameters.{_PROGRAM}": program,
            "ResourceConfig.InstanceType": instance_type,
            "ResourceConfig.InstanceCount": str(instances),
        }
        filters = [{"Name": name, "Operator": "Equals", "Value": value} for name, value in equal.items()]
        try:
            since = {"Name": "CreationTime", "Operator": "GreaterThanOrEqualTo", "Value": self._since_when()}
            answer = self._session.sagemaker_client.search(
                Resource="TrainingJob",
                SearchExpression={"Filters": [*filters, since]},
                SortBy="CreationTime",
                SortOrder="Descending",
                MaxResults=_MOST,
            )
        except ClientError:  # e.g. the policy of the key does not allow it
            return []
        found = [result["TrainingJob"] for result in answer["Results"]]
        return [job for job in found if job.get("TrainingStartTime") and job.get("TrainingEndTime")]

    def _since_when(self) -> str:
        """Return when the oldest of the completed jobs was created among which runs are looked for."""
        if self._since is None:
            pages = self._session.sagemaker_client.get_paginator("list_training_jobs").paginate(
                StatusEquals="Completed",
                SortBy="CreationTime",
                SortOrder="Descending",
                PaginationConfig={"MaxItems": _AMONG, "PageSize": 100},
            )
            created = [each["CreationTime"] for page in pages for each in page["TrainingJobSummaries"]]
            self._since = min(created, default=datetime.now(UTC)).isoformat()
        return self._since

    def _digest(self, job: Mapping[str, Any]) -> str | None:
        """Return the ETag of the job's code; None if it cannot be read."""
        place = job["HyperParameters"].get(_CODE, "").strip('"')
        if place not in self._digests:
            try:
                uri = S3Uri.parse(place)
                self._digests[place] = self._session.s3_client.head_object(Bucket=uri.bucket, Key=uri.key)["ETag"]
            except (ValueError, ClientError):
                self._digests[place] = None
        return self._digests[place]


def _median(runs: Sequence[Mapping[str, Any]], basis: str) -> Estimate:
    took = [(run["TrainingEndTime"] - run["TrainingStartTime"]).total_seconds() for run in runs]
    return Estimate(round(statistics.median(took), 1), len(runs), basis)


def _duration(seconds: float) -> str:
    begin = datetime(2000, 1, 1, tzinfo=UTC)
    return age(begin, until=begin + timedelta(seconds=seconds))
